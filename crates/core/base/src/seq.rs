//! TCP sequence numbers: 32 bits that wrap (RFC 9293, section 3.4).

use crate::serial::serial_number;

serial_number! {
    /// A position in the sequence space of one TCP connection.
    SeqNum(u32), distance i32, shown as "seq";

    /// A non-empty run of sequence numbers, end excluded, shorter than half the space.
    SeqRange;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let last = SeqNum::new(u32::MAX);
        assert!(last.is_before(last + 1));
        assert!((last + 1).is_after(last));
        assert_eq!((last + 3).distance(last), 3);
        assert_eq!(last.distance(last + 3), -3);
        assert_eq!(last.later(last + 1), SeqNum::new(0));
    }

    #[test]
    fn a_range_over_the_wrap_knows_its_length() {
        let range = SeqRange::new(SeqNum::new(u32::MAX - 1), SeqNum::new(2)).expect("four numbers");
        assert_eq!(range.len(), 4);
        assert!(range.contains(SeqNum::new(0)));
        assert!(!range.contains(SeqNum::new(2)));
    }

    #[test]
    fn empty_and_backward_ranges_do_not_exist() {
        let seq = SeqNum::new(7);
        assert_eq!(SeqRange::new(seq, seq), None);
        assert_eq!(SeqRange::new(seq, seq - 1), None);
    }

    #[test]
    fn ranges_that_only_touch_have_nothing_in_common() {
        let at = |a: u32, b: u32| SeqRange::new(SeqNum::new(a), SeqNum::new(b)).expect("not empty");
        assert_eq!(at(1, 5).intersection(at(5, 9)), None);
        assert_eq!(at(1, 6).intersection(at(5, 9)), Some(at(5, 6)));
    }
}
