//! The time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine was started, time in suspend included: CLOCK_BOOTTIME, where [`std::time::Instant`] reads CLOCK_MONOTONIC.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock since 2.6.39").into()
}

/// Whether a program keeps the clock of this machine right (NTP), as the kernel says; `None` if the kernel does not say.
#[allow(unsafe_code)]
#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    // SAFETY: all fields are numbers, and zero is one.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes one structure of this type, and with zero in `modes` it changes nothing.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const TEST: &str = "sys::linux::time::tests::the_clock_is_the_one_that_counts_suspend";
    const INSIDE: &str = "PLAIT_TEST_IN_A_TIME_NAMESPACE";

    /// What [`since_boot`] reads where CLOCK_BOOTTIME is an hour ahead, as after a suspend: this test runs itself there.
    #[test]
    #[ignore = "needs root"]
    fn the_clock_is_the_one_that_counts_suspend() {
        let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"));
        let ahead = since_boot().saturating_sub(monotonic).as_secs();
        if std::env::var_os(INSIDE).is_some() {
            println!("{ahead} s ahead");
            return;
        }
        let program = std::env::current_exe().expect("a program");
        let mut unshare = Command::new("unshare");
        unshare.args(["--time", "--boottime", "3600", "--fork"]).arg(program).env(INSIDE, "");
        let done = unshare.args(["--exact", TEST, "--ignored", "--nocapture"]).output().expect("unshare");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains(&format!("{} s ahead", ahead + 3600)), "{said}");
    }
}
