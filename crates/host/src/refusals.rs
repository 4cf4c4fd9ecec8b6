//! Strangers that were refused because they cannot be sealed: a line in the log, but not one for each.

use base::{Duration, Instant};
use endpoint::{Endpoint, Unsealed};

/// Time between two lines: anybody can be refused as often as he likes, and in anybody's name.
const INTERVAL: Duration = Duration::from_secs(30);

/// When the last line was written, and of whom it knew.
#[derive(Default)]
pub(crate) struct Refusals {
    quiet_until: Option<Instant>,
    told: u64,
}

/// A line for the log.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Line {
    unsealed: Unsealed,
    /// Refused since the last line, without those of this line.
    others: u64,
}

impl Refusals {
    /// The line that is due, if somebody was refused.
    pub(crate) fn look(&mut self, now: Instant, endpoint: &mut Endpoint) -> Option<Line> {
        let (unsealed, total) = endpoint.take_unsealed()?;
        let others = self.note(now, total)?;
        Some(Line { unsealed, others })
    }

    /// `total` were refused so far: how many of them no line tells of, if it is time for one.
    fn note(&mut self, now: Instant, total: u64) -> Option<u64> {
        if self.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        self.quiet_until = Some(now + INTERVAL);
        let others = total.saturating_sub(self.told + 1);
        self.told = total;
        Some(others)
    }
}

impl Line {
    pub(crate) fn write(&self) {
        let Self { unsealed: Unsealed { remote, why }, others } = self;
        tracing::warn!(from = %remote, why, others, "refused a peer that cannot be sealed; nothing less is allowed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cannot_flood_the_log_and_all_of_them_are_counted() {
        let mut refusals = Refusals::default();
        let start = Instant::ZERO;
        assert_eq!(refusals.note(start, 1), Some(0), "the first is told of at once");
        let lines = (2..=1000).filter_map(|total| refusals.note(start + INTERVAL / 2, total)).count();
        assert_eq!(lines, 0);
        assert_eq!(refusals.note(start + INTERVAL, 1001), Some(999));
        assert_eq!(refusals.note(start + INTERVAL * 2, 1002), Some(0), "each is counted once");
    }
}
