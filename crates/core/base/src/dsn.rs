//! Data sequence numbers: 64 bits, one space per direction of a Multipath TCP connection
//! (RFC 8684, section 3.3).

use crate::serial::serial_number;

serial_number! {
    /// A position in the data sequence space of one direction of a connection.
    Dsn(u64), distance i64, shown as "dsn";

    /// A non-empty run of data sequence numbers, end excluded.
    DsnRange;
}

impl Dsn {
    /// The lower 32 bits, as in the short form of the DSS option.
    pub const fn low32(self) -> u32 {
        self.0 as u32
    }

    /// The full number that the short form `low` stands for, near the expected number `self`.
    ///
    /// RFC 8684, section 3.3.1: the upper half is taken from the state of the connection; the nearest
    /// of the candidates is meant, since windows are far below 2^31.
    pub const fn expand(self, low: u32) -> Self {
        let ahead = low.wrapping_sub(self.low32()).cast_signed();
        Self(self.0.wrapping_add_signed(ahead as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc8684 3.3.1-11
    //= rfc8684 3.3.1-12
    #[test]
    fn the_short_form_is_read_near_the_expected_number() {
        let expected = Dsn::new(0x1_ffff_fff0);
        assert_eq!(expected.expand(0xffff_fff8), Dsn::new(0x1_ffff_fff8));
        assert_eq!(expected.expand(0x0000_0008), Dsn::new(0x2_0000_0008), "over the wrap of the lower half");
        assert_eq!(Dsn::new(0x2_0000_0008).expand(0xffff_fff8), Dsn::new(0x1_ffff_fff8), "and back");
    }

    #[test]
    fn the_short_form_wraps_with_the_whole_space() {
        assert_eq!(Dsn::new(u64::MAX).expand(4), Dsn::new(4));
    }

    #[test]
    fn order_survives_the_wrap() {
        let last = Dsn::new(u64::MAX);
        assert!(last.is_before(last + 1));
        assert_eq!(DsnRange::new(last, last + 2).expect("two numbers").len(), 2);
        assert_eq!(DsnRange::new(last, last), None);
    }
}
