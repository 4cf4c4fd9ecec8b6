//! TCP sequence numbers: 32 bits that wrap (RFC 9293, section 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A position in the sequence space of one TCP connection.
///
/// There is no `Ord`: order on a circle only exists between numbers less than half a turn apart, so
/// the comparisons are named functions that say so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(u32);

impl SeqNum {
    /// The sequence number with these 32 bits.
    pub const fn new(bits: u32) -> Self {
        Self(bits)
    }

    /// The 32 bits, as in the header.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// How far `self` lies behind `earlier`, in bytes; negative if it lies before it.
    pub const fn distance(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }

    /// `self` < `other` on the circle.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// `self` > `other` on the circle.
    pub const fn is_after(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// `self` <= `other` on the circle.
    pub const fn is_at_or_before(self, other: Self) -> bool {
        self.distance(other) <= 0
    }

    /// `self` >= `other` on the circle.
    pub const fn is_at_or_after(self, other: Self) -> bool {
        self.distance(other) >= 0
    }

    /// The later of the two.
    pub const fn later(self, other: Self) -> Self {
        if self.is_after(other) { self } else { other }
    }

    /// The earlier of the two.
    pub const fn earlier(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;

    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;

    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {}", self.0)
    }
}

/// A non-empty run of sequence numbers, end excluded, shorter than half the space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SeqRange {
    start: SeqNum,
    end: SeqNum,
}

impl SeqRange {
    /// `start..end`, or `None` where that is empty or runs backwards.
    pub const fn new(start: SeqNum, end: SeqNum) -> Option<Self> {
        if start.is_before(end) { Some(Self { start, end }) } else { None }
    }

    /// First number of the range.
    pub const fn start(self) -> SeqNum {
        self.start
    }

    /// First number behind the range.
    pub const fn end(self) -> SeqNum {
        self.end
    }

    /// Bytes in the range; never zero, which is why there is no `is_empty`.
    #[expect(clippy::len_without_is_empty)]
    pub const fn len(self) -> u32 {
        self.end.distance(self.start).cast_unsigned()
    }

    /// Whether `seq` lies inside.
    pub const fn contains(self, seq: SeqNum) -> bool {
        seq.is_at_or_after(self.start) && seq.is_before(self.end)
    }

    /// The part that lies in both.
    pub const fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.later(other.start), self.end.earlier(other.end))
    }
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
