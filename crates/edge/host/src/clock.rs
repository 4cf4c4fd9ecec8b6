//! The only place that reads the time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plait_base::{Instant, WallClock};

use crate::sys::since_boot;

/// Time of the core, counted from the start of the host, and the date.
///
/// Time goes on while the machine is suspended: what expires meanwhile at the peer has expired here, too.
#[derive(Clone)]
pub(crate) struct Clock {
    source: Arc<dyn Source>,
    start: Duration,
}

/// The source of a [`Clock`].
pub(crate) trait Source: Send + Sync {
    /// Time since a fixed moment, time in suspend included. It never runs backwards.
    fn elapsed(&self) -> Duration;

    /// Time since 1970-01-01 UTC. It jumps when the date of the machine is set.
    fn since_epoch(&self) -> Duration;
}

/// The clocks of the operating system.
struct System;

impl Clock {
    /// A clock of the operating system that stands at zero.
    pub(crate) fn start() -> Self {
        Self::of(Arc::new(System))
    }

    /// A clock that stands at zero and reads `source`.
    pub(crate) fn of(source: Arc<dyn Source>) -> Self {
        let start = source.elapsed();
        Self { source, start }
    }

    pub(crate) fn now(&self) -> Instant {
        let elapsed = self.source.elapsed().saturating_sub(self.start);
        Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl WallClock for Clock {
    fn unix_time(&self, _now: Instant) -> u64 {
        self.source.since_epoch().as_secs()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

impl Source for System {
    fn elapsed(&self) -> Duration {
        since_boot()
    }

    /// Zero before 1970: certificates are then not valid yet.
    fn since_epoch(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Clocks that a test sets.
#[cfg(test)]
pub(crate) mod set_by_hand {
    use super::{Duration, Source};
    use std::sync::Mutex;

    /// Time since boot, and since 1970.
    #[derive(Default)]
    pub(crate) struct ByHand(Mutex<(Duration, Duration)>);

    impl ByHand {
        pub(crate) fn set_elapsed(&self, elapsed: Duration) {
            self.0.lock().expect("no panic").0 = elapsed;
        }

        pub(crate) fn set_date(&self, unix_seconds: u64) {
            self.0.lock().expect("no panic").1 = Duration::from_secs(unix_seconds);
        }
    }

    impl Source for ByHand {
        fn elapsed(&self) -> Duration {
            self.0.lock().expect("no panic").0
        }

        fn since_epoch(&self) -> Duration {
            self.0.lock().expect("no panic").1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use set_by_hand::ByHand;

    #[test]
    fn time_in_suspend_counts_and_the_date_is_read_each_time() {
        let source = Arc::new(ByHand::default());
        source.set_elapsed(Duration::from_secs(500));
        let clock = Clock::of(source.clone());
        assert_eq!((clock.now(), clock.unix_time(clock.now())), (Instant::ZERO, 0));
        // A suspend of an hour, as CLOCK_BOOTTIME shows it.
        source.set_elapsed(Duration::from_secs(500 + 3600));
        assert_eq!(clock.now(), Instant::ZERO + Duration::from_secs(3600));
        // The date is set long after the start, and put back later.
        for date in [1_790_000_000, 1_789_999_000] {
            source.set_date(date);
            assert_eq!(clock.unix_time(clock.now()), date);
        }
    }
}
