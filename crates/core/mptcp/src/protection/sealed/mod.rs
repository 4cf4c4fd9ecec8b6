//! MPTCPsec: sealed connections (Jadin et al., with the departures of plait's wire format).
//!
//! The SYNs agree on a handshake ([`negotiation`]); it runs over the unmapped bytes that open the first subflow
//! ([`handshaking`]); from then on every mapping is one block that was sealed once ([`sealing`]) and is verified
//! before anything in it counts ([`unsealing`], [`verifying`]). What regular Multipath TCP says in options of their own goes into
//! control records inside the stream ([`records`]); plain options have no effect.
//!
//! Nothing here knows the connection, its subflows as a whole, or its streams: [`Established`] is handed what it needs of them,
//! and answers with what a message, a block, an option or a record is worth. The connection acts on that.

mod ahead;
mod answered_joins;
mod claim;
mod datagrams;
mod deliveries;
mod established;
mod gone;
mod handshaking;
mod jobs;
mod join;
mod look;
mod mixing;
mod negotiation;
mod options;
mod path_numbers;
mod records;
mod sealing;
mod syn_data;
mod unsealing;
mod verifying;

pub(crate) use claim::{Claimed, Standing};
pub(crate) use datagrams::{MAX_STREAM_DATAGRAMS, NotTaken};
pub(crate) use deliveries::Deliveries;
pub(crate) use established::Established;
pub(crate) use handshaking::{Begun, INITIAL_WINDOW};
pub use jobs::{CryptoJob, CryptoResult};
pub(crate) use mixing::PathKey;
pub(super) use negotiation::Unsealed;
pub(crate) use records::ForConnection;
pub(crate) use sealing::Place;
pub(crate) use syn_data::{SynPayload, blocks_in};
pub(crate) use unsealing::{Examined, InOrder, Opening, Taken};
pub(crate) use verifying::{Reader, Said, Worth};

use plait_base::SubflowId;
use plait_protect::handshake::{Capability, Handshakes, Instance, Refusal, Tep, Transcript};
use plait_wire::OptionBytes;
use std::sync::Arc;

use super::Protection;
use super::session::Numbers;
use crate::role::Role;
use crate::status::{AttemptStage, SealedStatus};
use crate::{Ratchet, SealedSettings};
use handshaking::Handshaking;

/// A connection that is sealed or must be sealed. It never becomes plain.
pub(crate) struct Sealed {
    settings: SealedSettings,
    role: Role,
    /// Our MP_CAPABLE, kind and length included.
    capable: [u8; 4],
    stage: Stage,
    /// A non-SYN segment of the other side has come: it has our ENO options.
    is_heard: bool,
    /// The reason for which there is no sealed connection, for display.
    failure: Option<String>,
    /// The same, if the options of the SYN/ACK are the reason.
    refusal: Option<Refusal>,
    /// An alert of the peer has said that it does not take us, behind our end of the handshake.
    is_denied: bool,
    /// The peer takes no joins to the address of the first subflow (flag C).
    denies_initial: bool,
}

/// The stage of the connection.
enum Stage {
    /// We offer these options in the SYN.
    Offered { eno: OptionBytes },
    /// We have answered with this option, and wait for the third segment.
    Answered { agreed: Agreed, eno: OptionBytes },
    /// Both sides want it; the handshake is about to begin.
    Agreed(Agreed),
    /// The handshake runs.
    Handshaking(Box<Handshaking>),
    /// Both sides have the keys.
    Established(Box<Established>),
    /// It failed. What it was, if both sides had the keys before.
    Failed { was: Option<Box<SealedStatus>> },
}

/// What the SYNs have agreed on.
pub(super) struct Agreed {
    subflow: SubflowId,
    tep: Tep,
    transcript: Transcript,
    /// Flag C of the peer.
    denies_initial: bool,
}

impl Protection {
    /// The sealed connection in use, if it is one.
    pub(crate) fn established(&self) -> Option<&Established> {
        self.sealed()?.established()
    }

    pub(crate) fn established_mut(&mut self) -> Option<&mut Established> {
        self.sealed_mut()?.established_mut()
    }

    /// Data offset below which the peer of a sealed connection may send.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.established().map(|established| established.announced)
    }

    /// Whether all bytes of both sides have verifiably arrived, their ends included, so that no attacker on the
    /// path can have forged it, given the data offset that is acknowledged. Only where that can be verified.
    pub(crate) fn has_both_ends(&self, acked: u64) -> bool {
        self.established().is_some_and(|established| established.has_both_ends(acked))
    }

    /// Whether subflows are asked for signs of life that no attacker can give, and their end is told under the keys.
    pub(crate) fn verifies_life(&self) -> bool {
        self.established().is_some_and(|established| established.peer_can(Capability::Life))
    }

    /// Whether the peer's end is verified, and ours was sent: the peer may have all of ours, or not.
    pub(crate) fn may_have_both_ends(&self) -> bool {
        self.established().is_some_and(Established::may_have_both_ends)
    }

    /// Whether all of that but the acknowledgment of our end is known: the peer may have it, or not.
    pub(crate) fn lacks_last_ack(&self, acked: u64) -> bool {
        self.established().is_some_and(|established| established.lacks_last_ack(acked))
    }

    /// What was wrong with the options of the SYN/ACK, if that is why there is no sealed connection.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.sealed()?.refusal
    }

    /// Returns the instance of the server, if the peer is the server.
    pub(crate) fn instance(&self) -> Option<Instance> {
        self.established()?.instance()
    }

    /// Whether bytes of the application wait for paths.
    pub(crate) fn holds_data(&self) -> bool {
        self.established().is_some_and(Established::holds_data)
    }

    /// Whether the peer takes no joins to the address of the first subflow (flag C).
    pub(crate) fn denies_initial(&self) -> bool {
        let is_plain = self.session().is_some_and(|session| session.denies_initial_address);
        is_plain || self.sealed().is_some_and(|sealed| sealed.denies_initial)
    }

    /// Whether an alert of the peer has ended the handshake behind our end of it: the peer has delivered nothing.
    pub(crate) fn is_denied(&self) -> bool {
        self.sealed().is_some_and(|sealed| sealed.is_denied)
    }

    /// Notes such an alert.
    pub(crate) fn note_denial(&mut self) {
        if let Some(sealed) = self.sealed_mut() {
            sealed.is_denied = true;
        }
    }
}

impl Sealed {
    fn new(settings: SealedSettings, role: Role, capable: [u8; 4], stage: Stage) -> Self {
        Self {
            settings,
            role,
            capable,
            stage,
            is_heard: false,
            failure: None,
            refusal: None,
            is_denied: false,
            denies_initial: false,
        }
    }

    /// Returns the handshake settings of our side.
    fn ours(&self) -> Option<&dyn Handshakes> {
        match self.role {
            Role::Active => self.settings.opener.as_deref(),
            Role::Passive => self.settings.listener.as_deref(),
        }
    }

    /// The same as an owned value, while the rest of the connection is borrowed.
    pub(crate) fn maker(&self) -> Option<Arc<dyn Handshakes>> {
        match self.role {
            Role::Active => self.settings.opener.clone(),
            Role::Passive => self.settings.listener.clone(),
        }
    }

    /// The connection has failed, or will before it is used.
    pub(crate) fn note_failure(&mut self, why: Option<String>) {
        self.failure = why.or(self.failure.take());
        let was = self.is_or_was_established().then(|| Box::new(self.status()));
        self.stage = Stage::Failed { was };
    }

    /// Why this will come to nothing, which the peer was told and will see to.
    pub(crate) fn foretell_failure(&mut self, why: String) {
        self.failure = Some(why);
    }

    /// Whether that is known.
    pub(crate) fn is_foretold(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether both sides have the keys, or had them.
    pub(super) fn is_or_was_established(&self) -> bool {
        match &self.stage {
            Stage::Established(_) | Stage::Failed { was: Some(_) } => true,
            Stage::Offered { .. }
            | Stage::Answered { .. }
            | Stage::Agreed(_)
            | Stage::Handshaking(_)
            | Stage::Failed { was: None } => false,
        }
    }

    fn established(&self) -> Option<&Established> {
        match &self.stage {
            Stage::Established(established) => Some(established),
            Stage::Offered { .. }
            | Stage::Answered { .. }
            | Stage::Agreed(_)
            | Stage::Handshaking(_)
            | Stage::Failed { .. } => None,
        }
    }

    fn established_mut(&mut self) -> Option<&mut Established> {
        match &mut self.stage {
            Stage::Established(established) => Some(established),
            Stage::Offered { .. }
            | Stage::Answered { .. }
            | Stage::Agreed(_)
            | Stage::Handshaking(_)
            | Stage::Failed { .. } => None,
        }
    }

    /// Data sequence numbers, once they are derived.
    pub(super) fn numbers(&self) -> Option<&Numbers> {
        self.established().map(|established| &established.numbers)
    }

    pub(super) fn numbers_mut(&mut self) -> Option<&mut Numbers> {
        self.established_mut().map(|established| &mut established.numbers)
    }

    /// The token by which joins name this connection.
    pub(crate) fn token(&self) -> Option<u32> {
        self.established().map(Established::token)
    }

    /// How far the opening is, given whether the first subflow is open and has brought anything.
    pub(super) fn opening_stage(&self, is_open: bool, has_read: bool) -> AttemptStage {
        match &self.stage {
            Stage::Established(established) if established.claim.is_open() => AttemptStage::Authenticated,
            Stage::Established(_) => AttemptStage::Confirmed,
            // It may fail with the first bytes of the peer.
            Stage::Handshaking(_) | Stage::Failed { .. } if has_read => AttemptStage::Handshake,
            Stage::Handshaking(_) | Stage::Agreed(_) => AttemptStage::Established,
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Failed { .. } if is_open => {
                AttemptStage::Established
            }
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Failed { .. } => AttemptStage::SynSent,
        }
    }

    /// Returns the key that authenticates our MP_FASTCLOSE.
    pub(crate) fn fast_close(&self) -> Option<[u8; 8]> {
        self.established().map(Established::fast_close)
    }

    /// Whether the peer's MP_FASTCLOSE is genuine.
    pub(crate) fn is_fast_close(&self, key: &[u8; 8]) -> bool {
        self.established().is_some_and(|established| established.is_fast_close(key))
    }

    /// When paths in use are asked for another share of the keys.
    pub(crate) fn ratchet(&self) -> Ratchet {
        self.settings.ratchet
    }

    /// For people. A connection that failed after both sides had the keys still tells the peer and the suite that it had.
    pub(crate) fn status(&self) -> SealedStatus {
        let status = SealedStatus { failure: self.failure.clone(), ..SealedStatus::default() };
        match &self.stage {
            Stage::Failed { was: Some(was) } => {
                SealedStatus { failure: status.failure, ..SealedStatus::clone(was) }
            }
            Stage::Offered { .. } | Stage::Failed { was: None } => status,
            Stage::Answered { agreed, .. } | Stage::Agreed(agreed) => {
                SealedStatus { handshake: Some(agreed.tep.name()), ..status }
            }
            Stage::Handshaking(handshaking) => {
                SealedStatus { handshake: Some(handshaking.tep().name()), ..status }
            }
            Stage::Established(established) => established.status(status),
        }
    }
}
