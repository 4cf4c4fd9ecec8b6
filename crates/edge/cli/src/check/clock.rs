//! Faults of the clocks of both ends: certificates and tickets are judged by them.

use plait::WayReport;
use serde::Serialize;

/// A clock by which certificates cannot be judged.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(super) struct ClockReport {
    pub(super) why: String,
    pub(super) fix: String,
}

impl ClockReport {
    /// The fault that this machine knows of its own clock, with its fix; without one, what the server's answers show.
    pub(super) fn of(own: Option<(String, String)>, ways: &[WayReport]) -> Option<Self> {
        let ahead = || ways.iter().find_map(|way| way.measured.as_ref()?.clock_difference());
        own.map(|(why, fix)| Self { why, fix }).or_else(|| ahead().map(Self::differing))
    }

    /// The clock of the server is this many seconds ahead, or behind.
    fn differing(ahead: i64) -> Self {
        let seconds = ahead.unsigned_abs();
        let which = if ahead < 0 { "ahead of" } else { "behind" };
        Self {
            why: format!("it is {seconds} s {which} that of the server: one of both is wrong"),
            fix: "timedatectl set-ntp true, on the machine whose clock is wrong".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_from_this_end_and_a_known_fault_comes_first() {
        assert!(ClockReport::differing(120).why.starts_with("it is 120 s behind that of the server"));
        assert!(ClockReport::differing(-40).why.starts_with("it is 40 s ahead of that of the server"));
        let own = Some(("it is 1970".to_owned(), "date --set".to_owned()));
        assert_eq!(ClockReport::of(own, &[]).expect("a fault").fix, "date --set");
        assert_eq!(ClockReport::of(None, &[]), None);
    }
}
