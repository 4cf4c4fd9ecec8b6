//! The handshake over unmapped bytes, and the derivation of the connection's keys from its result (Jadin et al., section III-B).

use bytes::Bytes;
use plait_base::{Instant, SubflowId};
use plait_protect::handshake::{Capability, Complete, Failed, Handshake, Introduction, Tep};
use plait_protect::sealed::{ConnectionSecrets, Role as End};
use plait_wire::OptionBytes;

use super::established::{About, Established, Left};
use super::mixing::Mixing;
use super::negotiation::third_segment;
use super::{Agreed, Sealed, Stage};
use crate::Host;
use crate::paths::Way;
use crate::role::Role;
use crate::subflows::inbox::Inbox;

/// Bytes after the initial data sequence number that may be sent before the first MAX_DATA arrives.
pub(crate) const INITIAL_WINDOW: u64 = 64 << 10;

/// A running handshake.
pub(super) struct Handshaking {
    handshake: Box<dyn Handshake>,
    subflow: SubflowId,
    tep: Tep,
    began: Instant,
    /// Its output, for TCP.
    outbox: Vec<Bytes>,
    /// Its result, returned once its last bytes are given to TCP. Later bytes do not belong to it.
    outcome: Option<Result<Complete, Failed>>,
}

/// The result of starting a handshake.
pub(crate) enum Begun {
    /// It is not due, or is over.
    NotDue,
    /// It runs on this subflow.
    On(SubflowId),
    /// It cannot start, for this reason.
    Failed(String),
}

/// The output of a handshake, and its result.
pub(crate) struct Step {
    /// Messages for the subflow of the handshake.
    pub(crate) messages: Vec<Bytes>,
    /// Options for each message.
    pub(crate) options: OptionBytes,
    pub(crate) outcome: Option<Result<Complete, Failed>>,
}

impl Handshaking {
    pub(super) fn tep(&self) -> Tep {
        self.tep
    }

    /// Collects its output and its result.
    fn pump(&mut self) {
        self.outbox.extend(core::iter::from_fn(|| self.handshake.poll_transmit()));
        if self.outcome.is_none() {
            self.outcome = self.handshake.poll_complete().map(Ok);
        }
    }
}

fn end(role: Role) -> End {
    match role {
        Role::Active => End::A,
        Role::Passive => End::B,
    }
}

impl Sealed {
    /// Returns the introduction for the peer: the capabilities that the settings list.
    fn introduction(&self, host: &dyn Host) -> Introduction {
        let all = host.introduction();
        Introduction { capabilities: all.capabilities.and(self.settings.capabilities), ..all }
    }

    /// Starts the negotiated handshake, if there is one that does not run yet.
    pub(crate) fn begin_handshake(&mut self, now: Instant, host: &mut dyn Host) -> Begun {
        let Stage::Agreed(Agreed { subflow, tep, transcript, denies_initial }) = &self.stage else {
            return Begun::NotDue;
        };
        let (subflow, tep, denies_initial) = (*subflow, *tep, *denies_initial);
        let unix_time = host.unix_time(now);
        let Some(ours) = self.ours() else {
            return Begun::Failed("there are no settings for this direction".to_owned());
        };
        let introduction = self.introduction(host);
        match ours.begin(tep, transcript, &introduction, host.secrets(), unix_time) {
            Ok(handshake) => {
                let mut handshaking =
                    Handshaking { handshake, subflow, tep, began: now, outbox: Vec::new(), outcome: None };
                handshaking.pump();
                self.denies_initial = denies_initial;
                self.stage = Stage::Handshaking(Box::new(handshaking));
                Begun::On(subflow)
            }
            Err(Failed { why, by_peer: _, is_altered: _ }) => Begun::Failed(why),
        }
    }

    /// The subflow on which a handshake runs.
    pub(crate) fn handshake_subflow(&self) -> Option<SubflowId> {
        match &self.stage {
            Stage::Handshaking(handshaking) => Some(handshaking.subflow),
            Stage::Offered { .. }
            | Stage::Answered { .. }
            | Stage::Agreed(_)
            | Stage::Established(_)
            | Stage::Failed { .. } => None,
        }
    }

    /// Gives the handshake its bytes. Later bytes stay in the inbox of the subflow.
    pub(crate) fn read_handshake(&mut self, inbox: &mut Inbox) {
        let Stage::Handshaking(handshaking) = &mut self.stage else { return };
        while handshaking.outcome.is_none()
            && let Some(bytes) = inbox.take(usize::MAX)
        {
            match handshaking.handshake.handle_bytes(&bytes) {
                Ok(taken) => inbox.give_back(bytes.slice(taken..)),
                Err(error) => handshaking.outcome = Some(Err(error)),
            }
            handshaking.pump();
        }
    }

    /// Returns the output of the handshake and its result; `None` if none runs.
    pub(crate) fn poll_handshake(&mut self) -> Option<Step> {
        let options = match (self.role, self.is_heard) {
            (Role::Active, false) => third_segment(self.capable),
            (Role::Active, true) | (Role::Passive, _) => OptionBytes::new(),
        };
        let Stage::Handshaking(handshaking) = &mut self.stage else { return None };
        let messages = core::mem::take(&mut handshaking.outbox);
        Some(Step { messages, options, outcome: handshaking.outcome.take() })
    }

    /// Establishes the connection from a complete handshake on a subflow that goes this way. Both sides have the keys.
    ///
    /// # Errors
    /// The reason for which it is not established.
    pub(crate) fn establish(
        &mut self,
        now: Instant,
        complete: Complete,
        way: Way,
        host: &mut dyn Host,
    ) -> Result<(), &'static str> {
        // A check in addition to that of the handshake: data may flow from here on.
        if !self.ours().is_some_and(|ours| ours.admits(&complete.peer)) {
            return Err("the handshake has not proved the identity that is required of the peer");
        }
        let failed = Stage::Failed { was: None };
        let Stage::Handshaking(handshaking) = core::mem::replace(&mut self.stage, failed) else {
            return Err("no handshake runs");
        };
        let Complete {
            master,
            tep,
            suite,
            key_exchange,
            peer,
            capabilities,
            instance,
            is_resumed,
            ticket,
            sent,
            received,
        } = complete;
        // A capability that either end does not list is not used in either direction.
        let capabilities = capabilities.and(self.introduction(host).capabilities);
        let role = end(self.role);
        let secrets = ConnectionSecrets::derive(master, tep.byte());
        let derived = secrets.identity().token(role);
        let mut token = derived;
        while !host.claim_token(token) {
            token = host.secrets().next_u32();
        }
        let started = secrets.start(role, suite, suite.limits(), now);
        let mixing = Mixing::new(self.settings.require_paths, way);
        let about =
            About { tep, suite, key_exchange, peer, capabilities, instance, is_resumed, sent, received };
        let ticket = ticket.filter(|_| capabilities.has(Capability::Ticket));
        let Handshaking { handshake, began, .. } = *handshaking;
        let left = Left { began, handshake, ticket };
        let mut established = Established::new(role, about, started, left, mixing);
        if token != derived {
            established.rename(token);
        }
        self.stage = Stage::Established(Box::new(established));
        Ok(())
    }

    /// Returns when the handshake, or an unclaimed attempt, is given up. The connection has been without any subflow since
    /// `no_subflow_since`.
    pub(crate) fn handshake_deadline(&self, no_subflow_since: Option<Instant>) -> Option<Instant> {
        let timeout = self.settings.handshake_timeout;
        match &self.stage {
            Stage::Handshaking(handshaking) => Some(handshaking.began + timeout),
            Stage::Established(established) => {
                let claim = established.claim_deadline(no_subflow_since, timeout);
                claim.into_iter().chain(established.mixing_deadline(timeout)).min()
            }
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Agreed(_) | Stage::Failed { .. } => None,
        }
    }
}
