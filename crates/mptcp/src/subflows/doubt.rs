//! A subflow whose address the peer has withdrawn is asked whether it still works (RFC 8684, section 3.4.2): REMOVE_ADDR is
//! an option that nobody has to have signed.

use plait_base::{Duration, Instant};

/// Questions before it is believed.
const QUESTIONS: u8 = 3;

/// The address of the subflow was withdrawn. While nobody knows better it is given nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    /// What comes earlier was under way when it was asked.
    answer_from: Instant,
    next: Instant,
    wait: Duration,
    asked: u8,
}

/// What is to be done about it now.
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
    /// It is asked for the first time `now`. Its answer takes no less than `min_rtt`, and no longer than `longest_trip`.
    pub(crate) fn new(now: Instant, min_rtt: Option<Duration>, longest_trip: Duration) -> Self {
        let answer_from = now + min_rtt.unwrap_or_default();
        Self { answer_from, next: now + longest_trip, wait: longest_trip, asked: 1 }
    }

    /// Whether a segment that arrives now is the answer.
    pub(crate) fn is_dispelled(&self, now: Instant) -> bool {
        now >= self.answer_from
    }

    /// When there is something to do.
    pub(crate) fn deadline(&self) -> Instant {
        self.next
    }

    /// What is to be done now.
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
