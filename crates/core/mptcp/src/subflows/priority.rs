//! MP_PRIO (RFC 8684, section 3.3.8) has no acknowledgment: it is repeated until the peer's segments show that it was received.

use plait_base::{Duration, Instant};

/// First interval; doubles.
const INTERVAL: Duration = Duration::from_millis(200);
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Repetitions without a cause.
const REPEATS: u8 = 3;

/// The priority of a subflow that the peer was told since the subflow was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Priority(Option<Said>);

#[derive(Clone, Copy, Debug)]
struct Said {
    at: Instant,
    times: u8,
    /// Whether it is repeated at the next deadline without a cause.
    repeats: bool,
}

impl Priority {
    /// Notes that it was sent for the first time.
    pub(crate) fn on_said(&mut self, now: Instant) {
        self.0 = Some(Said { at: now, times: 1, repeats: true });
    }

    /// Whether a priority was sent.
    pub(crate) fn is_said(&self) -> bool {
        self.0.is_some()
    }

    /// Returns when it is repeated.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.filter(|said| said.repeats).map(|said| said.next())
    }

    /// Whether it must be repeated now, because it may have been lost.
    pub(crate) fn repeat(&mut self, now: Instant) -> bool {
        match &mut self.0 {
            Some(said) if said.repeats && said.next() <= now => {
                said.say(now);
                said.repeats = said.times <= REPEATS;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Handles arriving data. Returns whether the priority must be repeated because the data should have gone elsewhere: the subflow is a
    /// backup, and others work (`is_unwanted`).
    pub(crate) fn on_data(&mut self, now: Instant, is_unwanted: bool) -> bool {
        match &mut self.0 {
            // The subflow is used as requested.
            said if !is_unwanted => {
                if let Some(said) = said {
                    said.repeats = false;
                }
                false
            }
            Some(said) if said.next() <= now => {
                said.say(now);
                true
            }
            Some(_) | None => false,
        }
    }
}

impl Said {
    fn next(&self) -> Instant {
        let wait = INTERVAL * 2u32.pow(u32::from(self.times.clamp(1, 10) - 1));
        self.at + wait.min(MAX_INTERVAL)
    }

    fn say(&mut self, now: Instant) {
        self.at = now;
        self.times = self.times.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn it_is_repeated_three_times_and_then_whenever_data_shows_that_it_was_not_heard() {
        let mut priority = Priority::default();
        priority.on_said(at(0));
        let mut said = Vec::new();
        while let Some(due) = priority.deadline() {
            assert!(priority.repeat(due));
            said.push(due);
        }
        assert_eq!(said, [at(200), at(600), at(1400)]);
        assert!(!priority.on_data(at(2999), true), "it may be under way");
        assert!(priority.on_data(at(3000), true) && !priority.on_data(at(3001), true));
        assert!(priority.on_data(at(90_000), true));
    }

    #[test]
    fn data_where_data_is_wanted_shows_that_it_was_heard() {
        let mut priority = Priority::default();
        priority.on_said(at(0));
        assert!(!priority.on_data(at(100), false));
        assert_eq!(priority.deadline(), None);
    }
}
