//! Limit of answers to segments that prove nothing (RFC 5961, section 7).
//!
//! A challenge ACK tells an honest peer how to prove its segment. An attacker must not be able to cause any number of them, and two
//! confused hosts must not answer each other forever.

use plait_base::{Duration, Instant};

/// Answers per period, for one connection.
const ANSWERS: u8 = 10;
/// The period.
const PERIOD: Duration = Duration::from_secs(5);

/// The action on one such segment (RFC 5961, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Challenge {
    /// Answer it.
    Answer,
    /// Stay silent.
    Silent,
}

/// The budget of one connection: ten answers in five seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChallengeLimit {
    since: Instant,
    sent: u8,
}

impl ChallengeLimit {
    /// Takes one answer out of the budget of `now`, if there is one left.
    pub fn ask(&mut self, now: Instant) -> Challenge {
        if now.saturating_since(self.since) >= PERIOD {
            *self = Self { since: now, sent: 0 };
        }
        if self.sent == ANSWERS {
            return Challenge::Silent;
        }
        self.sent += 1;
        Challenge::Answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_answers_in_five_seconds_and_then_silence() {
        let mut limit = ChallengeLimit::default();
        let answered =
            (0..30).filter(|n| limit.ask(Instant::from_millis(n * 100)) == Challenge::Answer).count();
        assert_eq!(answered, 10);
        assert_eq!(limit.ask(Instant::from_millis(5_000)), Challenge::Answer, "a new period");
    }
}
