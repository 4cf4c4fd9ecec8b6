//! The trial of a subflow after its join.

use plait_base::{Duration, Instant};

/// Age at which an arrival shows that a subflow lasts. The connection asks for an answer then, because the peer may have nothing to send.
const LASTING: Duration = Duration::from_secs(1);
/// How long the answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// Whether a subflow has shown that it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    /// Its join is not complete.
    Pending,
    /// Nothing has arrived after its first moment.
    Since {
        joined: Instant,
        /// Whether it was asked for an answer.
        is_probed: bool,
    },
    /// It has lasted.
    Over,
}

impl Trial {
    /// Begins with a complete join, which is the only proof needed if it `is_proof`.
    pub(crate) fn begin(&mut self, now: Instant, is_proof: bool) {
        *self = if is_proof { Self::Over } else { Self::Since { joined: now, is_probed: false } };
    }

    /// Handles a verified arrival. Returns whether it shows that the subflow lasts.
    pub(crate) fn on_arrival(&mut self, now: Instant) -> bool {
        let has_lasted = matches!(self, Self::Since { joined, .. } if *joined + LASTING <= now);
        if has_lasted {
            *self = Self::Over;
        }
        has_lasted
    }

    /// Returns whether the subflow must be asked for an answer now, once.
    pub(crate) fn on_time(&mut self, now: Instant) -> bool {
        let is_due = self.probe_at().is_some_and(|at| at <= now);
        if let Self::Since { is_probed, .. } = self {
            *is_probed |= is_due;
        }
        is_due
    }

    /// This host did not run until now: a trial begins anew.
    pub(crate) fn resume(&mut self, now: Instant) {
        if let Self::Since { joined, is_probed } = self {
            (*joined, *is_probed) = (now, false);
        }
    }

    /// Returns when the subflow must be asked for an answer.
    pub(crate) fn probe_at(self) -> Option<Instant> {
        match self {
            Self::Since { joined, is_probed: false } => Some(joined + LASTING),
            Self::Since { joined: _, is_probed: true } | Self::Pending | Self::Over => None,
        }
    }

    /// Returns when the join of a subflow on trial was complete.
    pub(crate) fn joined(self) -> Option<Instant> {
        match self {
            Self::Since { joined, is_probed: _ } => Some(joined),
            Self::Pending | Self::Over => None,
        }
    }

    /// Returns when the trial of a subflow that has `joined` then has failed.
    pub(crate) fn end(joined: Instant) -> Instant {
        joined + LASTING + ANSWER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOINED: Instant = Instant::from_millis(70);

    #[test]
    fn a_subflow_that_answers_a_second_after_its_join_has_lasted() {
        let mut trial = Trial::Pending;
        assert!(!trial.on_arrival(JOINED + LASTING), "its join is not complete");
        trial.begin(JOINED, false);
        assert!(!trial.on_arrival(JOINED + LASTING / 2), "an attacker may have let it pass");
        assert_eq!(trial.joined(), Some(JOINED));
        assert!(trial.on_arrival(JOINED + LASTING));
        assert_eq!(trial, Trial::Over);
        assert!(!trial.on_arrival(JOINED + 2 * LASTING), "that is no news");
    }

    #[test]
    fn a_subflow_on_trial_is_asked_once() {
        let mut trial = Trial::Pending;
        trial.begin(JOINED, false);
        assert!(!trial.on_time(JOINED));
        assert!(trial.on_time(trial.probe_at().expect("it has to answer")));
        assert!(!trial.on_time(JOINED + 2 * LASTING));
        assert_eq!(trial.probe_at(), None);
    }

    #[test]
    fn a_join_that_is_proof_needs_no_trial() {
        let mut trial = Trial::Pending;
        trial.begin(JOINED, true);
        assert_eq!((trial, trial.probe_at()), (Trial::Over, None));
    }
}
