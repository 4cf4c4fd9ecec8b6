//! The handshake over unmapped bytes, and how its outcome becomes a connection (Jadin et al., section III-B).

use bytes::Bytes;
use plait_base::{Instant, SubflowId};
use plait_protect::handshake::{Complete, Failed, Handshake, Tep};
use plait_protect::sealed::{ConnectionSecrets, Role as End};
use plait_tcp::Record as TcpRecord;
use plait_wire::OptionBytes;

use super::established::Established;
use super::negotiation::third_segment;
use super::{Agreed, Stage};
use crate::role::Role;
use crate::{Connection, ConnectionError, Host};

/// Bytes beyond the initial data sequence number that may be sent before the first MAX_DATA has come.
pub(super) const INITIAL_WINDOW: u64 = 64 << 10;

/// A handshake that runs.
pub(super) struct Handshaking {
    handshake: Box<dyn Handshake>,
    flow: SubflowId,
    tep: Tep,
    began: Instant,
    /// What it has to say, for TCP.
    outbox: Vec<Bytes>,
    /// How it ended: told once its last bytes are handed to TCP. The bytes behind it are not its own.
    outcome: Option<Result<Complete, Failed>>,
}

impl Handshaking {
    pub(super) fn tep(&self) -> Tep {
        self.tep
    }

    /// Notes what it has to say, and whether it has ended.
    fn pump(&mut self) {
        self.outbox.extend(core::iter::from_fn(|| self.handshake.poll_transmit()));
        if self.outcome.is_none() {
            self.outcome = self.handshake.poll_complete().map(Ok);
        }
    }
}

pub(super) fn end(role: Role) -> End {
    match role {
        Role::Active => End::A,
        Role::Passive => End::B,
    }
}

impl Connection {
    /// Does what can be done: begins the handshake, carries it on, ends it; then what the sealed connection
    /// has to do.
    pub(crate) fn progress_sealing(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.protection.must_be_sealed() || self.closing.is_over() {
            return;
        }
        self.begin_handshake(now, host);
        self.pump_handshake(now, host);
        self.act_on_records(now, host);
        self.repair(now);
    }

    fn begin_handshake(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let Stage::Agreed(Agreed { flow, tep, transcript }) = &sealed.stage else { return };
        let (flow, tep) = (*flow, *tep);
        let unix_time = host.unix_time(now);
        let begun = match sealed.ours() {
            Some(ours) => ours.begin(tep, transcript, host.secrets(), unix_time),
            None => {
                Err(Failed { why: "there are no settings for this direction".to_owned(), by_peer: false })
            }
        };
        match begun {
            Ok(handshake) => {
                let mut handshaking =
                    Handshaking { handshake, flow, tep, began: now, outbox: Vec::new(), outcome: None };
                handshaking.pump();
                sealed.stage = Stage::Handshaking(Box::new(handshaking));
                if let Some(index) = self.flows.index_of(flow) {
                    self.read_handshake(index);
                }
            }
            Err(error) => self.fail_sealing(error.why, ConnectionError::HandshakeFailed),
        }
    }

    /// Gives the handshake the bytes that are its own; what lies behind them stays in the inbox.
    pub(super) fn read_handshake(&mut self, index: usize) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let Stage::Handshaking(handshaking) = &mut sealed.stage else { return };
        let state = &mut self.flows[index].state;
        if state.id != handshaking.flow {
            return;
        }
        let inbox = &mut state.sealed.inbox;
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

    fn pump_handshake(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        let Stage::Handshaking(handshaking) = &mut sealed.stage else { return };
        let Some(index) = self.flows.iter().position(|flow| flow.state.id == handshaking.flow) else {
            return;
        };
        let options = match (sealed.role, sealed.is_heard) {
            (Role::Active, false) => third_segment(sealed.capable),
            (Role::Active, true) | (Role::Passive, _) => OptionBytes::new(),
        };
        let (flow, speaks) = (handshaking.flow, !handshaking.outbox.is_empty());
        for payload in handshaking.outbox.drain(..) {
            self.flows[index].tcp.send(TcpRecord { payload, options: options.clone(), push: true });
        }
        match handshaking.outcome.take() {
            Some(Ok(complete)) => self.start_sealed(now, index, complete, host),
            Some(Err(error)) if speaks => self.fail_behind_alert(now, error.why, flow),
            Some(Err(error)) => self.fail_sealing(error.why, ConnectionError::HandshakeFailed),
            None => {}
        }
    }

    fn start_sealed(&mut self, now: Instant, index: usize, complete: Complete, host: &mut dyn Host) {
        let Some(sealed) = self.protection.sealed_mut() else { return };
        // Whatever the handshake has let through: from here on data may flow.
        if !sealed.ours().is_some_and(|ours| ours.admits(&complete.peer)) {
            let why = "the handshake has not proved the identity that is required of the peer";
            self.fail_sealing(why.to_owned(), ConnectionError::HandshakeFailed);
            return;
        }
        let Stage::Handshaking(handshaking) =
            core::mem::replace(&mut sealed.stage, Stage::Failed { was_established: false })
        else {
            return;
        };
        let Complete { master, tep, suite, key_exchange, peer, sent, received } = complete;
        let role = end(sealed.role);
        let secrets = ConnectionSecrets::derive(master, tep.byte());
        let derived = secrets.identity().token(role);
        let mut token = derived;
        while !host.claim_token(token) {
            token = host.secrets().next_u32();
        }
        let (identity, sealer, opener) = secrets.start(role, suite, suite.limits(), now);
        let about = super::established::About { tep, suite, key_exchange, peer, sent, received };
        let mut established = Established::new(
            role,
            about,
            (identity, sealer, opener),
            (handshaking.began, handshaking.handshake),
        );
        if token != derived {
            established.rename(token);
        }
        sealed.stage = Stage::Established(Box::new(established));
        let opens = sealed.role == Role::Active;
        self.outgoing.hold_fin(1 + INITIAL_WINDOW);
        let state = &mut self.flows[index].state;
        state.sealed.tag = Some(plait_protect::sealed::SubflowTag::FIRST);
        if opens {
            state.remote_address = Some(0);
        }
        if opens {
            // A listener's application is told when OPENING has come.
            self.notices.connected();
        }
        self.open_blocks(now, index);
    }

    /// A handshake that takes too long, or a peer that never finishes one, ends here.
    pub(crate) fn give_up_handshake(&mut self) {
        if self.protection.is_sealed() {
            return self.give_up_claim();
        }
        self.fail_sealing(
            "the peer did not finish the handshake in time".into(),
            ConnectionError::HandshakeFailed,
        );
    }

    /// When that is.
    pub(crate) fn handshake_deadline(&self) -> Option<Instant> {
        let sealed = self.protection.sealed().filter(|_| !self.closing.is_over())?;
        match &sealed.stage {
            Stage::Handshaking(handshaking) => Some(handshaking.began + sealed.settings.handshake_timeout),
            Stage::Established(established) => {
                self.claim_deadline(established, sealed.settings.handshake_timeout)
            }
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Agreed(_) | Stage::Failed { .. } => None,
        }
    }
}
