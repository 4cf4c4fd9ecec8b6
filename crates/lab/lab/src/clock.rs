//! The lab's time: since its start, the same for all paths.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plait_base::Instant;

/// Reads the time since the lab came up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    epoch: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: std::time::Instant::now(), epoch }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Wall-clock time of its zero, since 1970.
    pub(crate) const fn epoch(self) -> Duration {
        self.epoch
    }
}

/// As time since the lab came up.
pub(crate) const fn since_start(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}
