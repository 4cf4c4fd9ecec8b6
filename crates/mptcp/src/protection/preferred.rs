//! Sealing is offered, and the policy leaves a step down open: the negotiation as a value of its own.
//!
//! The answer to our SYN turns it into one of two others, neither of which can become the other, or this one again.

use plait_wire::OptionBytes;

use super::plain::Plain;
use super::sealed::{Sealed, Unsealed};
use super::session::Session;
use super::{Opened, Protection, SynAck};
use crate::ConnectionError;
use crate::status::SealedStatus;
use crate::subflows::subflow::SubflowState;

/// SYNs that carry an offer before it is left out, because something on the way may drop them for it (the number is
/// the one of Linux).
pub(super) const OFFERING_SYNS: u8 = 3;

/// What is offered, and what there is in its place.
pub(crate) struct Preferred {
    sealed: Sealed,
    plain: Plain,
}

impl Preferred {
    pub(super) fn new(sealed: Sealed, session: Option<Session>) -> Self {
        Self { sealed, plain: Plain::opening(session) }
    }

    /// Writes the options of the SYN.
    pub(super) fn write_syn(&mut self, attempt: u8, subflow: &mut SubflowState, out: &mut OptionBytes) {
        subflow.plain_syn = attempt >= OFFERING_SYNS;
        if !subflow.plain_syn {
            self.sealed.write_offer(out);
        }
    }

    /// What the SYN/ACK makes of it.
    pub(super) fn take_answer(&mut self, answer: &SynAck<'_>) -> (Protection, Opened) {
        match self.sealed.judge_answer(answer) {
            Ok(agreed) => (Protection::Sealed(Box::new(self.sealed.agreed(agreed))), Opened::Sealing),
            Err(Unsealed::Refused(refusal)) => {
                let failed = self.sealed.failed(refusal.to_string());
                (Protection::Sealed(Box::new(failed)), Opened::Fail(ConnectionError::NotSealed))
            }
            Err(Unsealed::StepDown) => {
                let mut plain = core::mem::take(&mut self.plain);
                let opened = plain.take_answer(answer.capable, answer.was_plain);
                (Protection::Plain(plain), opened)
            }
        }
    }

    /// Why the first SYN was answered by a reset, as far as that can be known.
    pub(super) fn explain_refusal(&mut self) {
        self.sealed.explain_refusal();
    }

    /// For people.
    pub(super) fn status(&self) -> SealedStatus {
        self.sealed.status()
    }
}
