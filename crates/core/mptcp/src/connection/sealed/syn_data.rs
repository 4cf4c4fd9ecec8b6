//! Data in the SYN of a join, where no subflow works any more: its first byte is there half a round trip after the decision to
//! join, and what the peer has to say a whole one after it, not two.
//!
//! What goes along is a copy. Blocks stay what they are to the send buffer, so that nothing depends on whether the copy got through:
//! when the join is complete the Data-ACK tells what is left to be sent.

use bytes::Bytes;
use plait_base::{Instant, SubflowId};
use plait_protect::sealed::{BLOCK_OVERHEAD, BlockBuffer, OpenError, SubflowTag};
use plait_wire::{DataAck, DataSequence, Flags, Segment};

use crate::protection::sealed::{Examined, SynPayload, blocks_in};
use crate::send::blocks::Body;
use crate::subflows::inbox::Declared;
use crate::subflows::sealed::SynData;
use crate::subflows::{Kind, Nonces};
use crate::{Connection, Host};

/// A SYN with data is not longer, IP header included: each path of IPv6 carries that (RFC 8200, section 5), and a SYN that is too
/// long for its path would be lost without a word where ICMP is.
const MAX_PACKET: usize = 1280;

impl Connection {
    /// Whether SYNs and SYN/ACKs of ours may bring blocks.
    fn may_bring_data(&self) -> bool {
        // Dispersed bytes have a limit for each path, and unacknowledged bytes do not count towards it.
        let is_dispersed = self.config.scheduler.max_exposure().is_some();
        self.config.join_data && !is_dispersed && self.protection.sends_blocks()
    }

    /// What is to go along with the SYN of a join: something where no subflow works, unless the way drops it.
    pub(crate) fn data_of_syn(&self, is_in_need: bool, drops: bool) -> SynData {
        if is_in_need && !drops && self.may_bring_data() { SynData::Due } else { SynData::None }
    }

    /// What is to go along with the answer to the SYN of a join with this `nonce`, which has brought blocks of the peer: something, but for a
    /// SYN that was answered with data before. It may be played again by an attacker that has seen none of these blocks.
    pub(crate) fn data_of_answer(&mut self, nonce: u32, syn: &Segment) -> SynData {
        let length = syn.header_len() + syn.payload.len();
        let may_answer = self.may_bring_data()
            && self.protection.established_mut().is_some_and(|established| established.admits_answer(nonce));
        if may_answer { SynData::Answerable { length } } else { SynData::None }
    }

    /// Puts blocks into a SYN, or a SYN/ACK, that is about to leave.
    pub(crate) fn fill_syn(&mut self, now: Instant, index: usize, segment: &mut Segment) {
        let state = &mut self.subflows.touch(index).state;
        let Some(established) = self.protection.established() else { return };
        let header = segment.header_len();
        let is_ours = !segment.flags.contains(Flags::ACK);
        let (room, name) = match (state.sealed_mut().take_syn_data(), state.kind()) {
            (SynData::Due, Kind::JoinActive { nonce, .. }) if is_ours => {
                state.sealed_mut().set_syn_data(SynData::Sent);
                (MAX_PACKET.saturating_sub(header), state.sealed().syn_name(nonce))
            }
            (SynData::Answerable { length }, Kind::JoinPassive { nonce, peer_nonce }) if !is_ours => {
                let nonces = Nonces { own: nonce, theirs: peer_nonce };
                let Some(hmacs) = established.join_by_peer(state.sealed(), nonces) else {
                    return;
                };
                (length.saturating_sub(header), hmacs.subflow())
            }
            (other, _) => return state.sealed_mut().set_syn_data(other),
        };
        let room = room.min(segment.segment_size.into());
        let acknowledged = self.protection.numbers().map(|numbers| numbers.incoming.dsn(self.acknowledged()));
        let Some(mut payload) = acknowledged.and_then(|ack| SynPayload::new(room, ack)) else { return };
        self.put_first_blocks(now, name, &mut payload);
        if is_ours && payload.is_empty() {
            // The answer carries blocks only where the question has proved itself.
            self.say_anything(now, name, &mut payload);
        }
        if !payload.is_empty() {
            segment.payload = if is_ours { payload.finish_padded() } else { payload.finish() };
        }
    }

    /// Puts the blocks that the peer waits for first, then bytes in no block yet if no subflow could take them. An attacker that replays SYNs
    /// must not cause our stream to be cut into small pieces.
    fn put_first_blocks(&mut self, now: Instant, name: SubflowTag, payload: &mut SynPayload) {
        let in_flight = self.outgoing.next();
        let is_in_need = !self.subflows.has_good();
        let is_idle = self.protection.established().is_some_and(|established| established.ahead() == 0);
        if is_in_need && is_idle && self.protection.may_speak()[0] {
            // Which subflows are no more: the peer makes room for this one.
            self.put_control(now, name, payload);
        }
        let mut next = self.outgoing.first().map(|first| first.start);
        while let Some(block) = next.and_then(|start| self.outgoing.block_from(start)) {
            let (start, end) = (block.start, block.end());
            if block.ends_stream() || !self.put_block(start, name, payload) {
                return;
            }
            next = Some(end).filter(|&end| end < in_flight);
        }
        if self.subflows.has_good() {
            return;
        }
        let [may_control, may_carry] = self.protection.may_speak();
        if may_control {
            self.put_control(now, name, payload);
        }
        if may_carry {
            self.cut_for_syn(payload.room());
            self.put_ahead(name, payload);
        }
    }

    fn say_anything(&mut self, now: Instant, name: SubflowTag, payload: &mut SynPayload) {
        let [may_control, _] = self.protection.may_speak();
        if let Some(established) = self.protection.established_mut()
            && may_control
            && established.ahead() == 0
        {
            established.say_window();
            self.put_control(now, name, payload);
        }
    }

    fn put_control(&mut self, now: Instant, name: SubflowTag, payload: &mut SynPayload) {
        if self.has_control(now) && self.has_room_for_control() {
            self.seal_control(now);
        }
        self.put_ahead(name, payload);
    }

    /// Cuts a block of a length that fits.
    fn cut_for_syn(&mut self, room: usize) {
        let window = usize::try_from(self.outgoing.window_left()).unwrap_or(usize::MAX);
        let wanted = self.outgoing.uncut().min(room.min(window).saturating_sub(BLOCK_OVERHEAD));
        let Some(established) = self.protection.established_mut() else { return };
        let is_next = established.ahead() == 0 && !established.is_eof_sent() && !established.holds_data();
        if wanted == 0 || !is_next {
            return;
        }
        let mut plain = BlockBuffer::with_capacity(0);
        self.outgoing.drain_queue(wanted, |piece| plain.append(piece));
        if established.cut(plain, wanted, false).is_err() {
            self.on_keys_used_up();
        }
    }

    /// Blocks that no subflow was given yet.
    fn put_ahead(&mut self, name: SubflowTag, payload: &mut SynPayload) {
        while let Some(established) = self.protection.established_mut()
            && established
                .first_ahead()
                .is_some_and(|first| first.is_sealed && first.length <= payload.room() as u64)
            && let Some(body) = established.take_ahead()
        {
            let ends_stream = body.ends_stream();
            let start = self.outgoing.push_sealed(body);
            self.outgoing.await_carrier(start);
            if ends_stream {
                return self.outgoing.on_fin_sent();
            }
            if !self.put_block(start, name, payload) {
                return;
            }
        }
    }

    /// `false` if it does not fit.
    fn put_block(&mut self, start: u64, name: SubflowTag, payload: &mut SynPayload) -> bool {
        let acknowledged = self.acknowledged();
        let Some(established) = self.protection.established() else { return false };
        let Some(Body::Sealed(body)) = self.outgoing.block_mut(start).map(|block| &mut block.body) else {
            return false;
        };
        body.len() <= payload.room() && established.put_in_syn(body, name, acknowledged, payload)
    }

    /// Takes the blocks of a SYN of this `name`, or of a SYN/ACK on the subflow of that name. Whether the peer has sealed any.
    pub(crate) fn take_syn_data(&mut self, id: SubflowId, name: SubflowTag, payload: &Bytes) -> bool {
        if payload.is_empty() || payload.len() > MAX_PACKET {
            return false;
        }
        let Some((data_ack, blocks)) = blocks_in(payload.clone()) else { return false };
        let mut is_genuine = false;
        for (dsn, block) in blocks {
            let declared = Declared {
                offset: 0,
                dsn: DataSequence::Long(dsn.bits()),
                length: block.len() as u16,
                data_fin: false,
                data_ack: Some(DataAck::Long(data_ack.bits())),
            };
            if self.closing.is_over() || !self.take_syn_block(id, name, declared, block) {
                break;
            }
            is_genuine = true;
        }
        self.tell_reader();
        is_genuine
    }

    fn take_syn_block(&mut self, id: SubflowId, name: SubflowTag, declared: Declared, block: Bytes) -> bool {
        let offsets = self.offsets();
        let Some(established) = self.protection.established_mut() else { return false };
        match established.examine(id, name, declared, block, offsets) {
            Ok(Examined::Open(opening, job)) => {
                let result = job.run();
                let is_genuine = result.is_ok();
                self.take_opened(&opening, result);
                is_genuine
            }
            // A replayed SYN is a duplicate: it is harmless, and causes no other answer than the first.
            Ok(Examined::Duplicate { length, acked }) => {
                self.on_duplicate(length, acked);
                true
            }
            Ok(Examined::Outside { length }) => {
                self.counters.bytes_outside += length;
                true
            }
            Err(OpenError::Generation(_)) => false,
            Err(_) => {
                self.on_failed(self.subflows.index_of(id));
                false
            }
        }
    }

    /// Our join was answered: whether it takes a SYN without data to get through there is remembered.
    pub(crate) fn note_syn_data(&self, now: Instant, index: usize, host: &mut dyn Host) {
        let subflow = &self.subflows[index];
        if subflow.state.sealed().syn_data() == SynData::Sent && subflow.tcp.has_lost_syn() {
            host.note_syn_data_dropped(now, subflow.state.path(), subflow.state.tuple().remote.ip());
        }
    }
}
