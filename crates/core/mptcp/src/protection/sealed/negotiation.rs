//! Offers and answers of the SYNs (Jadin et al., section III-A): MP_CAPABLE of version 2 together with TCP-ENO.

use plait_base::SubflowId;
use plait_protect::handshake::{
    ACK_ENO, Policy, Refusal, Tep, Transcript, Verdict, answer_eno, judge_ack, judge_answer, judge_offer,
    offer_eno,
};
use plait_wire::{CapableFlags, Eno, MpCapable, OptionBytes, Segment};

use super::{Agreed, Sealed, Stage};
use crate::protection::{Opened, SynAck};
use crate::role::Role;
use crate::{ConnectionError, SealedSettings};

/// Kind of MPTCP options, and of TCP-ENO.
const MPTCP: u8 = 30;
const ENO: u8 = 69;
/// The protocol version for sealing.
const VERSION: u8 = 2;

/// The reason for which the SYNs have not negotiated sealing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::protection) enum Unsealed {
    /// The policy allows the remaining protocol. Only the negotiation of a connection that is not sealed yet can act on this.
    StepDown,
    /// The policy does not allow it, for this reason.
    Refused(Refusal),
}

impl Sealed {
    /// Returns the offer of our SYN, if there is anything to offer.
    pub(in crate::protection) fn offer(settings: &SealedSettings, checksum: bool) -> Option<Self> {
        let teps = settings.teps_to_open();
        if settings.policy == Policy::Off || teps.is_empty() {
            return None;
        }
        let checksum = if checksum { CapableFlags::CHECKSUM } else { 0 };
        let capable = [MPTCP, 4, VERSION, CapableFlags::HMAC_SHA256 | checksum];
        let stage = Stage::Offered { eno: offer_eno(&teps) };
        Some(Self::new(settings.clone(), Role::Active, capable, stage))
    }

    /// Returns the listener's answer to this SYN. The subflow for the answer does not exist yet.
    pub(in crate::protection) fn answer(
        settings: &SealedSettings,
        syn: &Segment,
        capable: Option<&MpCapable>,
    ) -> Result<Self, Unsealed> {
        let ours = settings.teps_to_accept();
        let eno = raw_option(&syn.options, ENO);
        let tep = read(judge_offer(settings.policy, &ours, capable, contents(&eno)))?;
        let answer = answer_eno(tep);
        let own_capable = answer_of(settings);
        let transcript = Transcript::new(
            &raw_option(&syn.options, MPTCP).unwrap_or_default(),
            &eno.unwrap_or_default(),
            &own_capable,
            &answer,
        );
        let denies_initial = has_flag_c(capable);
        let agreed = Agreed { subflow: SubflowId(0), tep, transcript, denies_initial };
        let stage = Stage::Answered { agreed, eno: answer };
        Ok(Self::new(settings.clone(), Role::Passive, own_capable, stage))
    }

    /// Returns a connection that fails before its SYN was examined.
    pub(in crate::protection) fn unanswered(settings: &SealedSettings) -> Self {
        let stage = Stage::Failed { was: None };
        Self::new(settings.clone(), Role::Passive, answer_of(settings), stage)
    }

    /// Returns a connection that is refused for this reason.
    pub(in crate::protection) fn refused(settings: &SealedSettings, why: String) -> Self {
        Self { failure: Some(why), ..Self::unanswered(settings) }
    }

    /// Returns the same offer in the negotiated state.
    pub(in crate::protection) fn agreed(&self, agreed: Agreed) -> Self {
        Self::new(self.settings.clone(), self.role, self.capable, Stage::Agreed(agreed))
    }

    /// Returns the same offer in the failed state, with this reason.
    pub(in crate::protection) fn failed(&self, why: String) -> Self {
        let stage = Stage::Failed { was: None };
        Self { failure: Some(why), ..Self::new(self.settings.clone(), self.role, self.capable, stage) }
    }

    /// Records the reason of a reset in answer to our SYN. It may come from a host that requires the offer which was stripped from the SYN:
    /// it looks like any other reset.
    pub(in crate::protection) fn explain_refusal(&mut self) {
        let why = "no server listens there, or the offer to seal was stripped from our SYN and the peer requires it";
        self.failure = Some(why.to_owned());
    }

    /// Returns the opener's judgment of this SYN/ACK.
    pub(in crate::protection) fn judge_answer(&self, answer: &SynAck<'_>) -> Result<Agreed, Unsealed> {
        let Stage::Offered { eno: offered } = &self.stage else {
            return Err(Unsealed::Refused(Refusal::NotOffered));
        };
        let eno = raw_option(answer.options, ENO);
        let tep = read(judge_answer(
            self.settings.policy,
            &self.settings.teps_to_open(),
            answer.capable,
            contents(&eno),
        ))?;
        let transcript = Transcript::new(
            &self.capable,
            offered,
            &raw_option(answer.options, MPTCP).unwrap_or_default(),
            &eno.unwrap_or_default(),
        );
        Ok(Agreed { subflow: answer.subflow, tep, transcript, denies_initial: has_flag_c(answer.capable) })
    }

    /// Handles the SYN/ACK at the opener of a connection that must be sealed.
    pub(in crate::protection) fn take_answer(&mut self, answer: &SynAck<'_>) -> Opened {
        match self.judge_answer(answer) {
            Ok(agreed) => {
                self.stage = Stage::Agreed(agreed);
                Opened::Sealing
            }
            Err(Unsealed::Refused(refusal)) => self.refuse(refusal),
            // The policy may have changed in the meantime. This connection was created to be sealed.
            Err(Unsealed::StepDown) => self.refuse(Refusal::PlainTcp),
        }
    }

    /// Handles the first segment after the SYN at the listener.
    pub(in crate::protection) fn take_third_ack(
        &mut self,
        subflow: SubflowId,
        options: &[u8],
        capable: Option<&MpCapable>,
    ) -> Opened {
        let eno = raw_option(options, ENO);
        if let Err(refusal) = judge_ack(capable, contents(&eno)) {
            return self.refuse(refusal);
        }
        match core::mem::replace(&mut self.stage, Stage::Failed { was: None }) {
            Stage::Answered { agreed, eno: _ } => {
                self.stage = Stage::Agreed(Agreed { subflow, ..agreed });
                Opened::Sealing
            }
            other @ (Stage::Offered { .. }
            | Stage::Agreed(_)
            | Stage::Handshaking(_)
            | Stage::Established(_)
            | Stage::Failed { .. }) => {
                self.stage = other;
                Opened::NotYet
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Opened {
        self.note_failure(Some(refusal.to_string()));
        self.refusal = Some(refusal);
        Opened::Fail(ConnectionError::NotSealed)
    }
}

/// Returns the verdict, with all unsealed alternatives as one.
fn read(verdict: Verdict) -> Result<Tep, Unsealed> {
    match verdict {
        Verdict::Sealed(tep) => Ok(tep),
        Verdict::Multipath | Verdict::Plain => Err(Unsealed::StepDown),
        Verdict::Refuse(refusal) => Err(Unsealed::Refused(refusal)),
    }
}

/// Returns the MP_CAPABLE of a sealed SYN/ACK.
fn answer_of(settings: &SealedSettings) -> [u8; 4] {
    let denies_initial = if settings.denies_initial { CapableFlags::DENY_JOIN_ID0 } else { 0 };
    [MPTCP, 4, VERSION, CapableFlags::HMAC_SHA256 | denies_initial]
}

/// Whether the sender accepts no joins to the address of the first subflow.
fn has_flag_c(capable: Option<&MpCapable>) -> bool {
    capable.is_some_and(|capable| capable.flags.contains(CapableFlags::DENY_JOIN_ID0))
}

/// Returns MP_CAPABLE and ENO for the opener's segments after the SYN.
pub(super) fn third_segment(capable: [u8; 4]) -> OptionBytes {
    let mut options = OptionBytes::new();
    options.extend(capable);
    options.extend(ACK_ENO);
    plait_wire::pad_options(&mut options);
    options
}

/// Returns the content after kind and length.
fn contents(option: &Option<OptionBytes>) -> Option<Eno<'_>> {
    option.as_ref().map(|option| Eno { contents: &option[2..] })
}

/// The first option of this kind, kind and length included, as it is on the wire.
fn raw_option(options: &[u8], wanted: u8) -> Option<OptionBytes> {
    let mut rest = options;
    loop {
        match *rest {
            [] | [0, ..] => return None,
            [1, ..] => rest = &rest[1..],
            [_] => return None,
            [kind, length, ..] => {
                let option = rest.get(..usize::from(length)).filter(|option| option.len() >= 2)?;
                if kind == wanted {
                    return option.try_into().ok();
                }
                rest = &rest[option.len()..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_as_they_are_on_the_wire() {
        let options = [2, 4, 5, 0xb4, 1, 30, 4, 2, 1, 69, 3, 0x23, 1, 1, 1, 1];
        assert_eq!(raw_option(&options, 30).as_deref(), Some(&[30, 4, 2, 1][..]));
        assert_eq!(raw_option(&options, 69).as_deref(), Some(&[69, 3, 0x23][..]));
        assert_eq!(raw_option(&options, 8), None);
        for end in 0..options.len() {
            let _ = raw_option(&options[..end], 69);
        }
        assert_eq!(raw_option(&[69, 1, 69, 2], 69), None, "an impossible length ends the walk");
    }
}
