//! A line in the log for what may happen at any rate, but not one for each time.

use plait_base::{Duration, Instant};

/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(30);

/// When the last line was written, and how many times it knew of.
#[derive(Default, Debug)]
pub(crate) struct LogLimit {
    quiet_until: Option<Instant>,
    told: u64,
}

impl LogLimit {
    /// It happened `total` times so far: how many of the times before the last one no line tells of, if it is time for a
    /// line.
    pub(crate) fn note(&mut self, now: Instant, total: u64) -> Option<u64> {
        if self.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        self.quiet_until = Some(now + INTERVAL);
        let others = total.saturating_sub(self.told + 1);
        self.told = total;
        Some(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_cannot_be_flooded_and_all_times_are_counted() {
        let mut limit = LogLimit::default();
        let start = Instant::ZERO;
        assert_eq!(limit.note(start, 1), Some(0), "the first is told of at once");
        let lines = (2..=1000).filter_map(|total| limit.note(start + INTERVAL / 2, total)).count();
        assert_eq!(lines, 0);
        assert_eq!(limit.note(start + INTERVAL, 1001), Some(999));
        assert_eq!(limit.note(start + INTERVAL * 2, 1002), Some(0), "each is counted once");
    }
}
