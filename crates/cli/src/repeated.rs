//! Lines of the log that strangers cause: a few of a kind, then none for a while, then one that tells how many more there were.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// In which as many lines of a kind are written as may be.
const INTERVAL: Duration = Duration::from_secs(30);
/// Lines of a kind in that time.
const MOST: u32 = 8;

/// What was said lately, by what it says.
#[derive(Debug, Default)]
pub(crate) struct Repeated(Mutex<BTreeMap<&'static str, Repetition>>);

#[derive(Debug)]
struct Repetition {
    until: Instant,
    written: u32,
    silent: u64,
}

impl Repeated {
    /// `what` has happened: how many more times since the last line, if it is time for a line.
    pub(crate) fn note(&self, what: &'static str) -> Option<u64> {
        self.note_at(Instant::now(), what)
    }

    fn note_at(&self, now: Instant, what: &'static str) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Repetition { until: now + INTERVAL, written: 0, silent: 0 };
        let known = known.entry(what).or_insert_with(fresh);
        if known.until <= now {
            *known = Repetition { silent: known.silent, ..fresh() };
        }
        if known.written >= MOST {
            known.silent += 1;
            return None;
        }
        known.written += 1;
        Some(std::mem::take(&mut known.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_a_few_lines_and_the_next_one_tells_of_all_others() {
        let log = Repeated::default();
        let start = Instant::now();
        let lines = (0..1000).filter_map(|_| log.note_at(start, "refused")).count();
        assert_eq!(lines, MOST as usize);
        assert_eq!(log.note_at(start, "another kind"), Some(0));
        assert_eq!(log.note_at(start + INTERVAL, "refused"), Some(1000 - u64::from(MOST)));
        assert_eq!(log.note_at(start + INTERVAL, "refused"), Some(0), "each is counted once");
    }
}
