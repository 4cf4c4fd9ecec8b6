//! Detects that this host did not run: its process was stopped, or the machine was suspended.
//!
//! The clock counts both ([`crate::clock`]). The driver says until when it waits at most. If the next look at the clock comes much later,
//! the time between is an absence. The process cannot be told that it was stopped, and needs no other evidence than this.

use plait_base::{Duration, Instant};

/// Shortest lateness that is an absence: longer than load alone keeps the driver waiting, and shorter than any limit of silence.
const SHORTEST: Duration = Duration::from_secs(5);

/// Longest wait of the driver. An absence during a longer wait could end before the wait, and would not be noticed.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// When the next look at the clock is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attendance {
    due: Instant,
}

impl Attendance {
    /// The first look.
    pub(crate) fn new(now: Instant) -> Self {
        Self { due: now }
    }

    /// The next look is due at this time at the latest.
    pub(crate) fn wait_until(&mut self, latest: Instant) {
        self.due = latest;
    }

    /// Looks at the clock. Returns the length of the absence that has just ended, if there was one.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Duration> {
        let late = now.saturating_since(self.due);
        self.due = now;
        (late >= SHORTEST).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(1000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_look_that_comes_much_too_late_ends_an_absence_of_that_length() {
        let mut attendance = Attendance::new(START);
        let due = START + LONGEST_WAIT;
        attendance.wait_until(due);
        assert_eq!(attendance.look(due + 120 * SECOND), Some(120 * SECOND));
        assert_eq!(attendance.look(due + 121 * SECOND), None, "it is over");
    }

    #[test]
    fn waiting_and_a_loaded_machine_are_no_absence() {
        let mut attendance = Attendance::new(START);
        attendance.wait_until(START + LONGEST_WAIT);
        assert_eq!(attendance.look(START + LONGEST_WAIT + 2 * SECOND), None);
    }

    #[test]
    fn a_host_that_is_stopped_in_the_middle_of_its_work_was_absent() {
        let mut attendance = Attendance::new(START);
        attendance.wait_until(START + LONGEST_WAIT);
        // A packet ends the wait early.
        assert_eq!(attendance.look(START + SECOND), None);
        assert_eq!(attendance.look(START + 11 * SECOND), Some(10 * SECOND));
    }
}
