//! The time.

use std::time::Duration;

/// Returns `None`: no system but Linux is asked.
#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    None
}

/// Time since the machine was started, time asleep included: CLOCK_MONOTONIC of Apple's systems, where [`std::time::Instant`] reads
/// CLOCK_UPTIME_RAW, which stops.
#[cfg(target_vendor = "apple")]
pub(crate) fn since_boot() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("macOS has this clock since 10.12").into()
}

/// Time since the first call. On Windows [`std::time::Instant`] reads QueryPerformanceCounter, which counts time asleep.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
