//! Rate limit for log lines that other hosts cause: a number of lines in a while, then none, then one with the number of omitted lines. A
//! million segments of an unknown peer do not cause a million lines.

use alloc::collections::BTreeMap;

use crate::{Duration, Instant};

/// Time in which as many lines are written as may be.
pub const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The limit of one line.
#[derive(Clone, Copy, Default, Debug)]
pub struct LogLimit {
    until: Option<Instant>,
    written: u32,
    silent: u64,
}

impl LogLimit {
    /// It has happened once more. `None` if `most` lines were written in this [`LOG_INTERVAL`]; else a line is due, and this is
    /// how many times that no line tells of there were before.
    pub fn note(&mut self, now: Instant, most: u32) -> Option<u64> {
        if self.until.is_none_or(|until| until <= now) {
            *self = Self { until: Some(now + LOG_INTERVAL), written: 0, silent: self.silent };
        }
        if self.written >= most {
            self.silent += 1;
            return None;
        }
        self.written += 1;
        Some(core::mem::take(&mut self.silent))
    }
}

/// The limits of lines of several kinds, each identified by its text. The texts are part of the program, so that other hosts cannot add
/// entries.
#[derive(Default, Debug)]
pub struct LogLimits(BTreeMap<&'static str, LogLimit>);

impl LogLimits {
    /// Notes one more event with this text: as [`LogLimit::note`].
    pub fn note(&mut self, now: Instant, what: &'static str, most: u32) -> Option<u64> {
        self.0.entry(what).or_default().note(now, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_millis(5000);

    #[test]
    fn a_flood_writes_a_few_lines_and_the_next_one_tells_of_all_others() {
        let mut log = LogLimits::default();
        let lines = (0..1000).filter_map(|_| log.note(START, "a stranger", 3)).count();
        assert_eq!(lines, 3);
        assert_eq!(log.note(START, "another kind", 1), Some(0));
        let later = START + LOG_INTERVAL;
        assert_eq!(log.note(later, "a stranger", 3), Some(997));
        assert_eq!(log.note(later, "a stranger", 3), Some(0), "each is counted once");
    }

    #[test]
    fn the_first_is_told_of_at_once_and_the_next_after_the_interval() {
        let mut log = LogLimit::default();
        assert_eq!(log.note(START, 1), Some(0));
        assert_eq!(log.note(START + LOG_INTERVAL / 2, 1), None);
        assert_eq!(log.note(START + LOG_INTERVAL, 1), Some(1));
        assert_eq!(log.note(START + LOG_INTERVAL * 2, 1), Some(0));
    }
}
