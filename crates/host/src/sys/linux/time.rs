//! The time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine was started, time in suspend included: CLOCK_BOOTTIME, where [`std::time::Instant`] reads CLOCK_MONOTONIC.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock since 2.6.39").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const INSIDE: &str = "sys::linux::time::tests::inside_a_time_namespace";

    /// What [`since_boot`] reads where CLOCK_BOOTTIME is an hour ahead, as after a suspend.
    #[test]
    #[ignore = "needs root"]
    fn the_clock_is_the_one_that_counts_suspend() {
        let program = std::env::current_exe().expect("a program");
        let mut unshare = Command::new("unshare");
        unshare.args(["--time", "--boottime", "3600", "--fork"]).arg(program);
        let done = unshare.args(["--exact", INSIDE, "--ignored", "--nocapture"]).output().expect("unshare");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "run by the test above"]
    fn inside_a_time_namespace() {
        let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"));
        let ahead = since_boot().saturating_sub(monotonic).as_secs();
        assert!(ahead >= 3600, "{ahead} s");
    }
}
