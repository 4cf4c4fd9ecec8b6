//! Data sequence numbers: 64 bits, one space per direction of a Multipath TCP connection
//! (RFC 8684, section 3.3).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A position in the data sequence space of one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Dsn(u64);

impl Dsn {
    /// The data sequence number with these 64 bits.
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// The 64 bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

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

    /// How far `self` lies behind `earlier`, in bytes; negative if it lies before it.
    pub const fn distance(self, earlier: Self) -> i64 {
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

impl Add<u64> for Dsn {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u64> for Dsn {
    fn add_assign(&mut self, bytes: u64) {
        *self = *self + bytes;
    }
}

impl Sub<u64> for Dsn {
    type Output = Self;

    fn sub(self, bytes: u64) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dsn {}", self.0)
    }
}

/// A non-empty run of data sequence numbers, end excluded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DsnRange {
    start: Dsn,
    end: Dsn,
}

impl DsnRange {
    /// `start..end`, or `None` where that is empty or runs backwards.
    pub const fn new(start: Dsn, end: Dsn) -> Option<Self> {
        if start.is_before(end) { Some(Self { start, end }) } else { None }
    }

    /// First number of the range.
    pub const fn start(self) -> Dsn {
        self.start
    }

    /// First number behind the range.
    pub const fn end(self) -> Dsn {
        self.end
    }

    /// Bytes in the range; never zero, which is why there is no `is_empty`.
    #[expect(clippy::len_without_is_empty)]
    pub const fn len(self) -> u64 {
        self.end.distance(self.start).cast_unsigned()
    }

    /// Whether `dsn` lies inside.
    pub const fn contains(self, dsn: Dsn) -> bool {
        dsn.is_at_or_after(self.start) && dsn.is_before(self.end)
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
