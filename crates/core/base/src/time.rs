//! Time as a number that the driver hands in.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

pub use core::time::Duration;

/// A moment: nanoseconds since a start that only the driver knows.
///
/// Two instants of one run can be compared; nothing can be learned from a single one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// The date, which certificates and tickets are judged by. [`Instant`]s do not tell it: the date of a machine is set and corrected.
pub trait WallClock {
    /// Seconds since 1970-01-01 UTC, at the moment of the call, which is `now`.
    fn unix_time(&self, now: Instant) -> u64;
}

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);

    /// The moment `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The moment `millis` milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the start.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time passed since `earlier`; zero if `earlier` is in the future.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time (584 years), which no timer of ours means.
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the start of the run.
    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(earlier.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_the_start_is_the_start() {
        assert_eq!(Instant::from_millis(1) - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO.saturating_since(Instant::from_millis(5)), Duration::ZERO);
    }

    #[test]
    fn no_sum_overflows() {
        assert_eq!(Instant::from_nanos(u64::MAX) + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
