//! Negotiation of sealing if the policy also allows less.
//!
//! The answer to our SYN turns it into one of two other values. Neither can become the other, or this one again.

use plait_wire::OptionBytes;

use super::plain::Plain;
use super::sealed::{Sealed, Unsealed};
use super::session::Session;
use super::{Opened, Protection, SynAck};
use crate::ConnectionError;
use crate::status::SealedStatus;
use crate::subflows::SubflowState;

/// SYNs that carry an offer before it is left out, because the path may drop SYNs with it (Linux uses the same number).
pub(super) const OFFERING_SYNS: u8 = 3;

/// The offer, and its replacement.
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
        subflow.on_syn(attempt >= OFFERING_SYNS);
        if !subflow.has_plain_syn() {
            self.sealed.write_offer(out);
        }
    }

    /// Handles the SYN/ACK.
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

    /// Records why the first SYN was answered by a reset, as far as that can be known.
    pub(super) fn explain_refusal(&mut self) {
        self.sealed.explain_refusal();
    }

    /// Returns the status for display.
    pub(super) fn status(&self) -> SealedStatus {
        self.sealed.status()
    }
}
