//! Serial number arithmetic (as in RFC 1982): what TCP's and Multipath TCP's sequence numbers have in common.

/// Makes a number type of `$bits` bits that wrap, and the type of non-empty ranges of it.
///
/// There is no `Ord`: serial numbers are only ordered when they are less than half the space apart, so the
/// comparisons are named functions that say so.
macro_rules! serial_number {
    (
        $(#[$number_doc:meta])* $number:ident($bits:ty), distance $signed:ty, shown as $shown:literal;
        $(#[$range_doc:meta])* $range:ident;
    ) => {
        $(#[$number_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $number($bits);

        impl $number {
            /// The number with these bits.
            pub const fn new(bits: $bits) -> Self {
                Self(bits)
            }

            /// Its bits.
            pub const fn bits(self) -> $bits {
                self.0
            }

            /// Returns the distance from `earlier` to `self`, in bytes; negative if `self` is before it.
            pub const fn distance(self, earlier: Self) -> $signed {
                self.0.wrapping_sub(earlier.0).cast_signed()
            }

            /// `self` < `other`, modulo the wrap.
            pub const fn is_before(self, other: Self) -> bool {
                self.distance(other) < 0
            }

            /// `self` > `other`, modulo the wrap.
            pub const fn is_after(self, other: Self) -> bool {
                self.distance(other) > 0
            }

            /// `self` <= `other`, modulo the wrap.
            pub const fn is_at_or_before(self, other: Self) -> bool {
                self.distance(other) <= 0
            }

            /// `self` >= `other`, modulo the wrap.
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

        impl core::ops::Add<$bits> for $number {
            type Output = Self;

            fn add(self, bytes: $bits) -> Self {
                Self(self.0.wrapping_add(bytes))
            }
        }

        impl core::ops::AddAssign<$bits> for $number {
            fn add_assign(&mut self, bytes: $bits) {
                *self = *self + bytes;
            }
        }

        impl core::ops::Sub<$bits> for $number {
            type Output = Self;

            fn sub(self, bytes: $bits) -> Self {
                Self(self.0.wrapping_sub(bytes))
            }
        }

        impl core::fmt::Debug for $number {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!($shown, " {}"), self.0)
            }
        }

        $(#[$range_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $range {
            start: $number,
            end: $number,
        }

        impl $range {
            /// `start..end`, or `None` where that is empty or runs backwards.
            pub const fn new(start: $number, end: $number) -> Option<Self> {
                if start.is_before(end) { Some(Self { start, end }) } else { None }
            }

            /// First number of the range.
            pub const fn start(self) -> $number {
                self.start
            }

            /// First number behind the range.
            pub const fn end(self) -> $number {
                self.end
            }

            /// Bytes in the range; never zero, which is why there is no `is_empty`.
            #[expect(clippy::len_without_is_empty)]
            pub const fn len(self) -> $bits {
                self.end.distance(self.start).cast_unsigned()
            }

            /// Whether a number lies inside.
            pub const fn contains(self, number: $number) -> bool {
                number.is_at_or_after(self.start) && number.is_before(self.end)
            }

            /// The part that lies in both.
            pub const fn intersection(self, other: Self) -> Option<Self> {
                Self::new(self.start.later(other.start), self.end.earlier(other.end))
            }
        }
    };
}

pub(crate) use serial_number;
