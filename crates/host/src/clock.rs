//! The one place where the time is read.

use std::time;

use plait_base::Instant;

/// CLOCK_MONOTONIC, counted from the start of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(time::Instant::now())
    }

    /// Seconds since 1970-01-01 UTC when this clock stood at zero.
    pub(crate) fn unix_epoch(self) -> u64 {
        let started = time::SystemTime::now() - self.0.elapsed();
        started.duration_since(time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
