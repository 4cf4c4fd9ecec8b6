//! What the SYNs offer and answer (Jadin et al., section III-A): MP_CAPABLE of version 2 beside TCP-ENO.

use base::{Instant, SubflowId};
use handshake::{
    ACK_ENO, Policy, Refusal, Transcript, Verdict, answer_eno, judge_ack, judge_answer, judge_offer,
    offer_eno,
};
use wire::{CapableFlags, Eno, Flags, MpCapable, OptionBytes, Segment};

use super::{Agreed, Sealed, Stage};
use crate::config::Protect;
use crate::connection::Role;
use crate::receive::Arrived;
use crate::{Connection, ConnectionError};

/// Kind of MPTCP options, and of TCP-ENO.
const MPTCP: u8 = 30;
const ENO: u8 = 69;
/// The version that goes with sealing.
const VERSION: u8 = 2;

/// What came of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The connection will be sealed.
    Sealed,
    /// The policy forbids what is left; the connection has failed, or is to fail.
    Refused,
    /// Go on as without sealing.
    Unsealed,
}

impl Connection {
    /// The opener: what our SYN will offer, if anything.
    pub(crate) fn offer_sealed(&mut self) {
        let Protect::Sealed(settings) = &self.config.protect else { return };
        if settings.policy == Policy::Off || settings.teps.is_empty() || settings.opener.is_none() {
            return;
        }
        let checksum = if self.config.checksum { CapableFlags::CHECKSUM } else { 0 };
        let capable = [MPTCP, 4, VERSION, CapableFlags::HMAC_SHA256 | checksum];
        let stage = Stage::Offered { eno: offer_eno(&settings.teps) };
        self.sealed = Some(Box::new(Sealed::new(settings.clone(), Role::Active, capable, stage)));
    }

    /// Whether sealing is asked for in a way that cannot be.
    pub(crate) fn cannot_seal(&self) -> bool {
        self.requires_sealing() && self.sealed.is_none()
    }

    fn requires_sealing(&self) -> bool {
        match &self.config.protect {
            Protect::Plain | Protect::Scramble(_) => false,
            Protect::Sealed(settings) => settings.policy == Policy::Require,
        }
    }

    /// The listener: what to make of this SYN. The subflow for the answer is yet to be made.
    pub(crate) fn judge_sealed_syn(&mut self, syn: &Segment, capable: Option<&MpCapable>) -> Answer {
        let Protect::Sealed(settings) = &self.config.protect else { return Answer::Unsealed };
        let settings = settings.clone();
        let ours = if settings.listener.is_some() { &settings.teps[..] } else { &[] };
        let eno = raw_option(&syn.options, ENO);
        let verdict = judge_offer(settings.policy, ours, capable, contents(&eno));
        match verdict {
            Verdict::Sealed(tep) => {
                let answer = answer_eno(tep);
                let transcript = Transcript::new(
                    &raw_option(&syn.options, MPTCP).unwrap_or_default(),
                    &eno.unwrap_or_default(),
                    &ANSWER,
                    &answer,
                );
                let agreed = Agreed { flow: SubflowId(0), tep, transcript };
                let stage = Stage::Answered { agreed, eno: answer };
                self.sealed = Some(Box::new(Sealed::new(settings, Role::Passive, ANSWER, stage)));
                Answer::Sealed
            }
            Verdict::Multipath | Verdict::Plain => Answer::Unsealed,
            Verdict::Refuse(refusal) => {
                let mut sealed = Sealed::new(settings, Role::Passive, ANSWER, Stage::Failed);
                sealed.failure = Some(refusal.to_string());
                self.sealed = Some(Box::new(sealed));
                Answer::Refused
            }
        }
    }

    /// A reset in answer to our SYN may come from a host that requires what somebody took out of it: it looks like
    /// any other.
    pub(crate) fn explain_refusal(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            let why = "nobody listens there, or the offer to seal was stripped from our SYN and the peer requires it";
            sealed.failure = Some(why.to_owned());
        }
    }

    /// The opener: what to make of this SYN/ACK.
    pub(crate) fn judge_sealed_answer(&mut self, arrived: &Arrived<'_>) -> Answer {
        let Some(sealed) = &mut self.sealed else { return Answer::Unsealed };
        let Stage::Offered { eno } = &sealed.stage else { return Answer::Refused };
        let flow = &self.flows[arrived.index].state;
        let options = &arrived.segment.options;
        let answer = raw_option(options, ENO);
        let signal = arrived.signals.capable;
        let verdict =
            judge_answer(sealed.settings.policy, &sealed.settings.teps, signal.as_ref(), contents(&answer));
        match verdict {
            Verdict::Sealed(tep) => {
                let transcript = Transcript::new(
                    &sealed.capable,
                    eno,
                    &raw_option(options, MPTCP).unwrap_or_default(),
                    &answer.unwrap_or_default(),
                );
                sealed.stage = Stage::Agreed(Agreed { flow: flow.id, tep, transcript });
                // The key for a step down is not needed any more.
                self.session = None;
                Answer::Sealed
            }
            Verdict::Multipath | Verdict::Plain => {
                self.sealed = None;
                Answer::Unsealed
            }
            Verdict::Refuse(refusal) => {
                self.refuse_sealing(&refusal);
                Answer::Refused
            }
        }
    }

    /// The listener: the first segment behind the SYN.
    pub(crate) fn on_sealed_third_ack(&mut self, arrived: &Arrived<'_>) {
        let flags = arrived.segment.flags;
        if flags.contains(Flags::SYN) || !flags.contains(Flags::ACK) {
            return;
        }
        let eno = raw_option(&arrived.segment.options, ENO);
        if let Err(refusal) = judge_ack(arrived.signals.capable.as_ref(), contents(&eno)) {
            self.refuse_sealing(&refusal);
            return;
        }
        let Some(sealed) = &mut self.sealed else { return };
        match core::mem::replace(&mut sealed.stage, Stage::Failed) {
            Stage::Answered { mut agreed, eno: _ } => {
                let flow = &mut self.flows[arrived.index].state;
                agreed.flow = flow.id;
                flow.stage = crate::flow::Stage::Open;
                sealed.stage = Stage::Agreed(agreed);
            }
            other @ (Stage::Offered { .. }
            | Stage::Agreed(_)
            | Stage::Shaking(_)
            | Stage::Running(_)
            | Stage::Failed) => sealed.stage = other,
        }
    }

    /// Before falling back to plain TCP. `false` where sealing is required, or already agreed on: then the connection has
    /// failed, whatever made it fall back.
    pub(crate) fn give_up_sealing(&mut self) -> bool {
        let is_offer = |sealed: &Sealed| matches!(sealed.stage, Stage::Offered { .. });
        if self.requires_sealing() || !self.sealed.as_deref().is_none_or(is_offer) {
            self.refuse_sealing(&Refusal::PlainTcp);
            return false;
        }
        self.sealed = None;
        true
    }

    fn refuse_sealing(&mut self, refusal: &Refusal) {
        self.fail_sealing(refusal.to_string(), ConnectionError::NotSealed);
    }

    /// There will be no sealed connection, and no other.
    pub(super) fn fail_sealing(&mut self, why: String, error: ConnectionError) {
        self.note_failure(why);
        self.fail(error);
    }

    /// As [`Connection::fail_sealing`] for a handshake whose last bytes, an alert, tell the peer why: they are with TCP,
    /// and a reset would overtake them.
    pub(super) fn fail_behind_alert(&mut self, now: Instant, why: String, flow: SubflowId) {
        self.note_failure(why);
        self.fail_and(ConnectionError::HandshakeFailed, |each, parting| {
            if each.state.id == flow {
                each.leave();
                each.tcp.orphan(now);
            } else {
                each.reset(parting);
            }
        });
    }

    fn note_failure(&mut self, why: String) {
        if let Some(sealed) = &mut self.sealed {
            sealed.failure = Some(why);
            sealed.stage = Stage::Failed;
        }
    }
}

/// The MP_CAPABLE of a sealed SYN/ACK.
const ANSWER: [u8; 4] = [MPTCP, 4, VERSION, CapableFlags::HMAC_SHA256];

/// MP_CAPABLE and ENO of the opener's segments behind the SYN.
pub(super) fn third_segment(capable: [u8; 4]) -> OptionBytes {
    let mut options = OptionBytes::new();
    options.extend(capable);
    options.extend(ACK_ENO);
    wire::pad_options(&mut options);
    options
}

/// What stands behind kind and length.
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
