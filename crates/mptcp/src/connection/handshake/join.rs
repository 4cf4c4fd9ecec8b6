//! MP_JOIN: further subflows (RFC 8684, section 3.2).
//!
//! The opener of the subflow sends its HMAC with the third ACK and repeats that until the peer shows that it
//! has it (the fourth ACK); before that no data may be sent.

use crate::log;
use plait_base::{Duration, Instant};
use plait_wire::{Flags, MpJoin, ResetReason, Segment};

use crate::connection::options_in::Signals;
use crate::connection::receiving::Arrived;
use crate::protection::Mode;
use crate::protection::Nonces;
use crate::subflows::flow::{Kind, ResetInfo, Stage};
use crate::{Connection, Host, PathClass, Refused};

/// First interval of repeating the third ACK; doubles.
const THIRD_ACK_INTERVAL: Duration = Duration::from_millis(250);
/// Then the subflow is given up.
const THIRD_ACK_TRIES: u8 = 6;

impl Connection {
    /// A SYN with MP_JOIN and our token.
    pub(crate) fn accept_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<plait_base::SubflowId, Refused> {
        let signals = Signals::read(syn);
        let Some(MpJoin::Syn { backup, reserved, address_id, token, nonce }) = signals.join else {
            return Err(Refused::Malformed);
        };
        if self.token() != Some(token) || signals.capable.is_some() {
            return Err(Refused::Malformed);
        }
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return Err(Refused::Prohibited);
        }
        let path = self.path_of(syn.destination.ip(), host);
        if path.class == PathClass::Never {
            return Err(Refused::Prohibited);
        }
        if self.flows.has_tuple(&plait_tcp::FourTuple { local: syn.destination, remote: syn.source }) {
            return Err(Refused::Malformed);
        }
        if self.flows.proved() >= usize::from(self.config.max_subflows) {
            return Err(Refused::TooMany);
        }
        self.flows.make_room_for_join();
        let kind = Kind::JoinPassive { nonce: host.random().next_u32(), peer_nonce: nonce };
        let index = self.accept_flow(now, &path, syn, (kind, Some(address_id)), host);
        let class_theirs = self.protection.class_of(reserved);
        let state = &mut self.flows[index].state;
        state.backup_theirs = backup;
        state.class_theirs = class_theirs;
        state.sealed.initiator_said(backup, reserved, address_id);
        Ok(state.id)
    }

    /// The answer to our join.
    pub(crate) fn on_join_syn_ack(&mut self, now: Instant, arrived: &Arrived<'_>) {
        let flow = &mut self.flows[arrived.index];
        let Kind::JoinActive { nonce: own, .. } = flow.state.kind else { return };
        let Some(MpJoin::SynAck { backup, reserved, address_id, hmac, nonce }) = arrived.signals.join else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.8
            //# missing MP_JOIN in SYN/ACK response): send RST
            log::debug!(subflow = flow.state.id.0, "join answered without MP_JOIN");
            self.counters.joins_unanswered += 1;
            flow.reset(ResetInfo::because(ResetReason::MiddleboxInterference));
            return;
        };
        flow.state.sealed.responder_said(backup, reserved, address_id);
        let nonces = Nonces { own, theirs: nonce };
        if !self.protection.is_join_answer(&mut flow.state, nonces, &hmac) {
            log::debug!(subflow = flow.state.id.0, "join dropped: the HMAC is wrong or missing");
            self.counters.bad_join_hmacs += 1;
            flow.reset(ResetInfo::because(ResetReason::Mptcp));
            return;
        }
        flow.state.kind = Kind::JoinActive { nonce: own, peer_nonce: Some(nonce) };
        flow.state.backup_theirs = backup;
        flow.state.class_theirs = self.protection.class_of(reserved);
        flow.state.remote_address = flow.state.remote_address.or(Some(address_id));
        flow.state.stage = Stage::Unconfirmed { again: now + THIRD_ACK_INTERVAL, tries: 0 };
        // The peer may send data here as soon as it has our third ACK.
        self.outgoing.on_other_subflow();
    }

    /// Something came back after the third ACK: the peer has it.
    pub(crate) fn on_join_confirmed(&mut self, index: usize) {
        log::debug!(subflow = self.flows[index].state.id.0, path = ?self.flows[index].state.path, "join is complete");
        self.flows[index].state.stage = Stage::Open;
        self.closing.on_subflow();
        self.paths.on_joined(self.flows[index].state.path, self.flows[index].state.tuple.remote);
    }

    /// An acceptable segment on a subflow whose third ACK we wait for.
    pub(crate) fn on_join_third_ack(&mut self, arrived: &Arrived<'_>) {
        if arrived.segment.flags.contains(Flags::SYN) {
            return;
        }
        let others = self.flows.proved();
        let flow = &mut self.flows[arrived.index];
        let Kind::JoinPassive { nonce, peer_nonce } = flow.state.kind else { return };
        let nonces = Nonces { own: nonce, theirs: peer_nonce };
        let is_right = match arrived.signals.join {
            Some(MpJoin::Ack { hmac }) => self.protection.is_join_ack(&mut flow.state, nonces, &hmac),
            Some(MpJoin::Syn { .. } | MpJoin::SynAck { .. }) | None => false,
        };
        if is_right && others < usize::from(self.config.max_subflows) {
            log::debug!(subflow = flow.state.id.0, path = ?flow.state.path, "join is complete");
            flow.state.stage = Stage::Open;
            flow.tcp.request_ack();
            self.closing.on_subflow();
            self.outgoing.on_other_subflow();
        } else if is_right {
            flow.reset(ResetInfo::for_now(ResetReason::LackOfResources));
        } else {
            log::debug!(subflow = flow.state.id.0, "join dropped: the HMAC is wrong or missing");
            self.counters.bad_join_hmacs += 1;
            flow.reset(ResetInfo::because(ResetReason::Mptcp));
        }
    }

    pub(crate) fn repeat_third_acks(&mut self, now: Instant) {
        for flow in &mut self.flows {
            let Stage::Unconfirmed { again, tries } = flow.state.stage else { continue };
            if again > now {
                continue;
            }
            if tries >= THIRD_ACK_TRIES {
                flow.reset(ResetInfo::because(ResetReason::MiddleboxInterference));
                continue;
            }
            let wait = THIRD_ACK_INTERVAL * 2u32.pow(u32::from(tries) + 1);
            flow.state.stage = Stage::Unconfirmed { again: now + wait, tries: tries + 1 };
            flow.tcp.request_ack();
        }
    }

    pub(crate) fn third_ack_deadline(&self) -> Option<Instant> {
        self.flows
            .iter()
            .filter_map(|flow| match flow.state.stage {
                Stage::Unconfirmed { again, tries: _ } => Some(again),
                Stage::Opening | Stage::Open | Stage::Leaving | Stage::Over => None,
            })
            .min()
    }
}
