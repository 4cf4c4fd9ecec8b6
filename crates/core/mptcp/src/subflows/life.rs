//! Verification that the peer still has a subflow.
//!
//! TCP's state proves nothing here. An attacker on the path can speak TCP to both ends, and can keep a subflow alive at one end that the
//! other end has lost. Two things verify a subflow of a sealed connection. One is the answer to a question of ours
//! ([`Check`](plait_protect::sealed::Check)). The other is the tag of a block at a subflow offset above all that were verified before. A
//! repeated Data-ACK verifies nothing, because its tag does not cover an offset.

use plait_base::{Duration, Instant};

/// Largest number of unanswered questions in a row.
const MAX_UNANSWERED: u8 = 3;
/// Least wait for the first answer, whatever the retransmission timeout is.
const MIN_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between two questions on a subflow that does not answer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Wait between two questions while no subflow can be used: a path that works again is used within two seconds.
const WAIT_IN_NEED: Duration = Duration::from_millis(1500);
/// Time without verification after which a subflow is given up, as by the probes of TCP.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The verification state of one subflow. Without sealing it stays [`Standing::Unasked`].
#[derive(Debug, Default)]
pub(crate) struct Life {
    standing: Standing,
    /// When its handshake was complete, or this host went on after an absence.
    begun: Instant,
    /// When it was last verified.
    verified: Option<Instant>,
    /// Offset of the last block that verified it; the first byte of a subflow has the offset 1.
    highest: u64,
    /// The value of the last question, until it is answered.
    outstanding: Option<u64>,
    unanswered: u8,
    /// When the last question was sent.
    asked: Option<Instant>,
    /// When the next question is due.
    next: Option<Instant>,
    /// A question that waits for a segment.
    question: Option<u64>,
    /// An answer that waits for a segment.
    answer: Option<u64>,
}

/// Whether a subflow counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Standing {
    /// It need not be verified.
    #[default]
    Unasked,
    /// It has not been verified yet, and the time for that is not over.
    Fresh,
    /// It was verified.
    Verified,
    /// Three questions in a row went unanswered: it does not count.
    Unverified,
}

/// The timing of the questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// How long a verified subflow may be silent before a question; `None` if the application wants silence.
    pub(crate) idle: Option<Duration>,
    /// Retransmission timeout of the subflow.
    pub(crate) rto: Duration,
    /// Whether no subflow can be used.
    pub(crate) is_in_need: bool,
}

/// The action at a given moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// Send a question.
    Ask,
    /// It does not count from now on. A question is sent all the same.
    Doubt,
    /// It must be reset.
    GiveUp,
}

impl Life {
    /// Starts the verification of a complete subflow with a question at once.
    pub(crate) fn begin(&mut self, now: Instant) {
        let highest = self.highest;
        *self = Self { standing: Standing::Fresh, begun: now, next: Some(now), highest, ..Self::default() };
    }

    /// Starts with a subflow on which the handshake has authenticated both ends.
    pub(crate) fn begin_verified(&mut self, now: Instant, pace: Pace, jitter: u32) {
        self.begin(now);
        self.verify(now, pace, jitter);
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether it does not count.
    pub(crate) fn is_unverified(&self) -> bool {
        self.standing == Standing::Unverified
    }

    /// Returns when it was last verified, if ever.
    pub(crate) fn verified_at(&self) -> Option<Instant> {
        self.verified
    }

    /// Handles a verified block with a mapping at this offset of the subflow. Returns whether the offset is new.
    pub(crate) fn is_new_block(&mut self, offset: u64) -> bool {
        let is_new = offset > self.highest && self.standing != Standing::Unasked;
        self.highest = self.highest.max(offset);
        is_new
    }

    /// Whether this is the value of the outstanding question, whose answer counts once.
    pub(crate) fn is_answer(&mut self, value: u64) -> bool {
        let is_right = self.outstanding == Some(value);
        if is_right {
            self.outstanding = None;
        }
        is_right
    }

    /// Notes that it was verified.
    pub(crate) fn verify(&mut self, now: Instant, pace: Pace, jitter: u32) {
        self.standing = Standing::Verified;
        (self.verified, self.unanswered, self.outstanding) = (Some(now), 0, None);
        self.next = pace.idle.map(|idle| now + shortened(idle, jitter));
    }

    /// Handles a question of the peer. The answer goes with the next segment without payload.
    pub(crate) fn on_question(&mut self, value: u64) {
        self.answer = Some(value);
    }

    /// Returns its next deadline.
    pub(crate) fn deadline(&self, pace: Pace) -> Option<Instant> {
        match self.standing {
            Standing::Unasked => None,
            Standing::Fresh => self.next,
            Standing::Verified | Standing::Unverified => {
                let last = self.asked.max(self.verified).unwrap_or(self.begun);
                let in_need = pace.is_in_need.then(|| last + WAIT_IN_NEED);
                [self.next, in_need].into_iter().flatten().min()
            }
        }
    }

    /// Returns the action that is due. `value` is random, for a question.
    pub(crate) fn on_time(&mut self, now: Instant, pace: Pace, value: impl FnOnce() -> u64) -> Step {
        if self.deadline(pace).is_none_or(|deadline| deadline > now) {
            return Step::Wait;
        }
        if self.standing != Standing::Verified
            && self.verified.max(Some(self.begun)).unwrap_or_default() + GIVEN_UP <= now
        {
            return Step::GiveUp;
        }
        let is_over = self.unanswered >= MAX_UNANSWERED;
        self.ask(now, pace, value());
        if is_over && !self.is_unverified() {
            self.standing = Standing::Unverified;
            return Step::Doubt;
        }
        Step::Ask
    }

    /// Sends a question now, whatever is due.
    pub(crate) fn ask(&mut self, now: Instant, pace: Pace, value: u64) {
        if self.standing == Standing::Unasked {
            return;
        }
        (self.question, self.outstanding, self.asked) = (Some(value), Some(value), Some(now));
        let wait = (pace.rto.max(MIN_WAIT) * 2u32.pow(u32::from(self.unanswered.min(6)))).min(MAX_WAIT);
        self.unanswered = self.unanswered.saturating_add(1);
        self.next = Some(now + wait);
    }

    /// This host did not run until now: the peer is asked at once, and its silence counts from here.
    pub(crate) fn resume(&mut self, now: Instant) {
        (self.begun, self.unanswered) = (now, 0);
        self.hurry();
    }

    /// Makes a question due at once.
    pub(crate) fn hurry(&mut self) {
        if self.standing != Standing::Unasked {
            self.next = Some(Instant::ZERO);
        }
    }

    /// Returns the check for a segment without payload. An answer goes first, because the peer waits for it.
    pub(crate) fn next_check(&self) -> Option<plait_protect::sealed::Check> {
        use plait_protect::sealed::Check;
        self.answer.map(Check::Answer).or(self.question.map(Check::Question))
    }

    /// Notes that the check was sent.
    pub(crate) fn on_said(&mut self) {
        if self.answer.take().is_none() {
            self.question = None;
        }
    }
}

/// Returns a time between three quarters of `idle` and `idle`, so that subflows of many connections that began together do not ask
/// together.
fn shortened(idle: Duration, jitter: u32) -> Duration {
    idle - idle / 4 / 256 * (jitter % 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace =
        Pace { idle: Some(Duration::from_secs(30)), rto: Duration::from_millis(300), is_in_need: false };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Runs all actions until `end` and returns them with their times in milliseconds.
    fn steps(life: &mut Life, pace: Pace, end: u64) -> Vec<(Step, u64)> {
        let mut steps = Vec::new();
        while let Some(due) = life.deadline(pace).filter(|due| *due <= at(end)) {
            let value = steps.len() as u64;
            steps.push((life.on_time(due, pace, || value), due.saturating_since(at(0)).as_millis() as u64));
            if steps.last().is_some_and(|(step, _)| *step == Step::GiveUp) {
                break;
            }
        }
        steps
    }

    #[test]
    fn a_subflow_that_never_answers_is_doubted_after_three_questions_and_given_up_after_a_minute() {
        let mut life = Life::default();
        life.begin(at(1000));
        let steps = steps(&mut life, PACE, 100_000);
        let first: Vec<_> = steps.iter().take(4).copied().collect();
        let expected = [(Step::Ask, 1000), (Step::Ask, 1300), (Step::Ask, 1900), (Step::Doubt, 3100)];
        assert_eq!(first, expected);
        let (last, when) = *steps.last().expect("there are steps");
        assert_eq!(last, Step::GiveUp);
        assert!((61_000..72_000).contains(&when), "{when}");
        assert_eq!(life.verified_at(), None);
    }

    #[test]
    fn an_answer_counts_once_and_only_for_the_last_question() {
        let mut life = Life::default();
        life.begin(at(1));
        assert_eq!(life.on_time(at(1), PACE, || 7), Step::Ask);
        assert_eq!(life.on_time(at(301), PACE, || 8), Step::Ask);
        assert!(!life.is_answer(7), "of a question that was asked again");
        assert!(life.is_answer(8));
        assert!(!life.is_answer(8), "repeated");
    }

    #[test]
    fn a_block_counts_above_everything_that_was_verified_before() {
        let mut life = Life::default();
        assert!(!life.is_new_block(5), "nothing is asked of it");
        life.begin(at(1));
        assert!(
            !life.is_new_block(5) && life.is_new_block(6) && !life.is_new_block(6) && !life.is_new_block(1)
        );
        assert!(!life.is_new_block(0), "what comes with a SYN");
    }

    #[test]
    fn a_verified_subflow_is_asked_after_some_silence_and_in_need_every_two_seconds() {
        for jitter in [0, 255] {
            let mut life = Life::default();
            life.begin_verified(at(0), PACE, jitter);
            let due = life.deadline(PACE).expect("it is asked");
            assert!(at(22_000) <= due && due <= at(30_000), "{due:?}");
            let silent = Pace { idle: None, ..PACE };
            life.verify(at(0), silent, jitter);
            assert_eq!(life.deadline(silent), None, "the application wants silence");
            let in_need = Pace { is_in_need: true, ..PACE };
            let asked = steps(&mut life, in_need, 20_000);
            let gaps = asked.windows(2).map(|two| two[1].1 - two[0].1);
            assert!(gaps.max().is_some_and(|longest| longest <= 2000), "{asked:?}");
        }
    }

    #[test]
    fn an_absence_of_this_host_is_no_silence_of_the_peer() {
        let mut life = Life::default();
        life.begin(at(1000));
        steps(&mut life, PACE, 5000);
        assert!(life.is_unverified());
        let resumed = at(300_000);
        life.resume(resumed);
        assert_eq!(life.on_time(resumed, PACE, || 7), Step::Ask, "it is not given up");
        let (last, when) = *steps(&mut life, PACE, 400_000).last().expect("there are steps");
        assert_eq!(last, Step::GiveUp);
        assert!((360_000..371_000).contains(&when), "{when}");
    }

    #[test]
    fn what_is_verified_again_counts_again() {
        let mut life = Life::default();
        life.begin(at(1000));
        steps(&mut life, PACE, 5000);
        assert!(life.is_unverified());
        life.verify(at(6000), PACE, 0);
        assert_eq!((life.standing(), life.verified_at()), (Standing::Verified, Some(at(6000))));
    }
}
