//! A subflow with an address that the peer has withdrawn is asked whether it still works (RFC 8684, section 3.4.2). REMOVE_ADDR is an
//! option without authentication.

use plait_base::{Duration, Instant};

/// Questions before the withdrawal is believed.
const QUESTIONS: u8 = 3;

/// The doubt about a subflow with a withdrawn address. Until it is resolved the subflow gets nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    /// An earlier arrival was already in flight when the question was sent.
    answer_from: Instant,
    next: Instant,
    wait: Duration,
    asked: u8,
}

/// The action at a given moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Wait,
    /// It is asked again.
    Ask,
    /// It has not answered.
    Gone,
}

impl Doubt {
    /// Starts with the first question `now`. The answer takes at least `min_rtt` and at most `longest_trip`.
    pub(crate) fn new(now: Instant, min_rtt: Option<Duration>, longest_trip: Duration) -> Self {
        let answer_from = now + min_rtt.unwrap_or_default();
        Self { answer_from, next: now + longest_trip, wait: longest_trip, asked: 1 }
    }

    /// Whether a segment that arrives now is the answer.
    pub(crate) fn is_dispelled(&self, now: Instant) -> bool {
        now >= self.answer_from
    }

    /// Returns when the next action is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.next
    }

    /// Returns the action that is due now.
    pub(crate) fn resolve(&mut self, now: Instant) -> Verdict {
        if now < self.next {
            Verdict::Wait
        } else if self.asked < QUESTIONS {
            self.asked += 1;
            self.next = now + self.wait;
            Verdict::Ask
        } else {
            Verdict::Gone
        }
    }
}
