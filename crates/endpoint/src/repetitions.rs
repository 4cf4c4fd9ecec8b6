//! Lines of the log that strangers cause: so many of a kind, then none for a while, then one that tells how many more there
//! were like it. Whoever sends a million segments does not write a million lines.

use plait_base::{Duration, Instant};
use std::collections::BTreeMap;

/// In which as many lines of a kind are written as may be.
const INTERVAL: Duration = Duration::from_secs(30);

/// By what the line says.
#[derive(Default)]
pub(crate) struct Repetitions(BTreeMap<&'static str, Repetition>);

struct Repetition {
    until: Instant,
    written: u32,
    silent: u64,
}

impl Repetitions {
    /// `what` has happened: `None` if no line is due, as `most` were written lately; else how many more there were like it since
    /// the last line.
    pub(crate) fn note(&mut self, now: Instant, what: &'static str, most: u32) -> Option<u64> {
        let fresh = || Repetition { until: now + INTERVAL, written: 0, silent: 0 };
        let known = self.0.entry(what).or_insert_with(fresh);
        if known.until <= now {
            *known = Repetition { silent: known.silent, ..fresh() };
        }
        if known.written >= most {
            known.silent += 1;
            return None;
        }
        known.written += 1;
        Some(core::mem::take(&mut known.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_a_few_lines_and_the_next_one_tells_of_all_others() {
        let mut log = Repetitions::default();
        let start = Instant::from_millis(5000);
        let lines = (0..1000).filter_map(|_| log.note(start, "a stranger", 3)).count();
        assert_eq!(lines, 3);
        assert_eq!(log.note(start, "another kind", 1), Some(0));
        let later = start + INTERVAL;
        assert_eq!(log.note(later, "a stranger", 3), Some(997));
        assert_eq!(log.note(later, "a stranger", 3), Some(0), "each is counted once");
    }
}
