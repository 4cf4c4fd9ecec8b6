//! Selection of the subflow for each block of a sealed connection.

use plait_base::Instant;
use plait_protect::sealed::{BLOCK_OVERHEAD, BlockBuffer, Kind, MAX_PLAIN};

use crate::connection::sending::whole_segments;
use crate::protection::options::DATA_OPTIONS;
use crate::protection::sealed::{Established, Place};
use crate::scheduler::Candidate;
use crate::send::blocks::{Block, Body};
use crate::subflows::Subflow;
use crate::{Connection, ConnectionError};

/// A block is at most this part of the congestion window: the receiver waits for the whole of it.
const PARTS_OF_WINDOW: u32 = 4;

impl Connection {
    /// Sends a control block, if there is one to send and its turn has come.
    pub(crate) fn schedule_control(&mut self, now: Instant) -> bool {
        let has_something = self.has_control(now) || self.is_control_next() || self.has_flow_records();
        if !self.protection.sends_blocks() || !has_something {
            return false;
        }
        let candidates = self.candidates(now, |_| true);
        let Some(index) = self.control_subflow(&candidates) else { return false };
        if self.has_room_for_control() {
            self.pass_flow_records(now);
        }
        if self.has_control(now) && self.has_room_for_control() {
            self.seal_control(now);
        }
        let start = self.outgoing.next();
        let is_sent = self.is_control_next() && self.send_first(now, index);
        if is_sent {
            self.repeat_elsewhere(start, index);
        }
        is_sent
    }

    /// News of the window, and of subflows that are no more, go out on a second subflow as well: the path of the first may be dead or hold
    /// them back, and the peer could send nothing until that is noticed. A backup is none: it is not used before that.
    fn repeat_elsewhere(&mut self, start: u64, index: usize) {
        let id = self.subflows[index].state.id();
        let is_other = |subflow: &Subflow| subflow.state.id() != id && subflow.is_regular();
        if self.outgoing.block(start).is_some_and(Block::is_urgent) && self.subflows.iter().any(is_other) {
            self.outgoing.await_carrier(start);
        }
    }

    /// Our application has ended its stream, and all of it is in blocks.
    fn is_all_cut(&self) -> bool {
        self.outgoing.is_finished() && self.outgoing.uncut() == 0
    }

    pub(super) fn has_control(&self, now: Instant) -> bool {
        let all_cut = self.is_all_cut();
        !self.outgoing.is_fin_sent()
            && self.protection.established().is_some_and(|sealed| sealed.has_control(now, all_cut))
    }

    fn is_control_next(&self) -> bool {
        self.protection.established().is_some_and(Established::is_control_next)
    }

    pub(super) fn has_room_for_control(&self) -> bool {
        let edge = self.outgoing.edge().max(self.outgoing.acked());
        self.protection
            .established()
            .is_some_and(|sealed| sealed.has_room_for_control(self.most_ahead(), self.outgoing.next(), edge))
    }

    /// Blocks that may be cut before a subflow takes them. Without jobs each is cut when it can go out.
    fn most_ahead(&self) -> usize {
        usize::from(self.config.crypto_jobs).max(1)
    }

    /// The best subflow with room; without any, one that has nothing waiting.
    fn control_subflow(&self, candidates: &[Candidate]) -> Option<usize> {
        let best = |list: &mut dyn Iterator<Item = &Candidate>| {
            list.min_by_key(|candidate| (candidate.srtt, candidate.id)).map(|candidate| candidate.index)
        };
        best(&mut candidates.iter().filter(|candidate| candidate.room > 0)).or_else(|| {
            let is_idle = |candidate: &&Candidate| self.subflows[candidate.index].tcp.unsent() == 0;
            best(&mut candidates.iter().filter(is_idle))
        })
    }

    pub(super) fn seal_control(&mut self, now: Instant) {
        let all_cut = self.is_all_cut();
        let left = self.outgoing.window_left();
        let Some(established) = self.protection.established_mut() else { return };
        let room = left.saturating_sub(established.numbers_ahead());
        if established.seal_control(now, all_cut, room).is_err() {
            self.on_keys_used_up();
        }
    }

    /// Where sealing is a job for others: cuts blocks before there is a subflow for them, so that some are ready when
    /// there is. Which subflow takes the first one is for `candidates` with room for all of it. `false` while the first
    /// one is being sealed.
    pub(crate) fn seal_ahead(&mut self, candidates: &mut [Candidate]) -> bool {
        if self.config.crypto_jobs == 0 || !self.protection.sends_blocks() {
            return true;
        }
        let (turn, waits_for_room) = match self.config.scheduler.max_exposure() {
            // Room is the length of a turn then.
            Some(max_exposure) => (usize::from(max_exposure.get()), false),
            None => (usize::MAX, true),
        };
        if let Some(widest) = candidates.iter().max_by_key(|candidate| candidate.window) {
            let index = widest.index;
            while self.is_sealing_due() && self.cut_block(index, turn) {}
        }
        let established = self.protection.established();
        let Some(first) = established.and_then(Established::first_ahead) else { return true };
        for candidate in candidates {
            // A part of a block would be a super-segment of its own. A subflow with nothing in flight has no more room to
            // hope for.
            let is_short = (candidate.room as u64) < first.length;
            if is_short && waits_for_room && self.subflows[candidate.index].is_busy() {
                candidate.room = 0;
            }
        }
        first.is_sealed
    }

    fn is_sealing_due(&self) -> bool {
        let established = self.protection.established();
        self.outgoing.uncut() > 0 && established.is_some_and(|sealed| sealed.ahead() < self.most_ahead())
    }

    /// Sends the next block of data on the subflow that was chosen.
    pub(crate) fn send_sealed(&mut self, now: Instant, index: usize, room: usize) -> bool {
        let established = self.protection.established();
        if self.config.crypto_jobs == 0 && established.is_some_and(|sealed| sealed.ahead() == 0) {
            self.cut_block(index, room);
        }
        self.send_first(now, index)
    }

    /// Cuts a block of a length that suits the subflow and its room, and has it sealed. `false` if there is nothing to
    /// cut, or no window for it.
    fn cut_block(&mut self, index: usize, room: usize) -> bool {
        let length = self.block_length(index, room);
        if length <= BLOCK_OVERHEAD {
            return false;
        }
        let wanted = self.outgoing.uncut().min(length - BLOCK_OVERHEAD).min(MAX_PLAIN);
        let Some(established) = self.protection.established_mut() else { return false };
        if wanted == 0 || established.is_eof_sent() || established.holds_data() {
            return false;
        }
        let mut plain = BlockBuffer::with_capacity(0);
        self.outgoing.drain_queue(wanted, |piece| plain.append(piece));
        if established.cut(plain, wanted, self.config.is_job(wanted)).is_err() {
            self.on_keys_used_up();
            return false;
        }
        true
    }

    fn block_length(&self, index: usize, room: usize) -> usize {
        let subflow = &self.subflows[index];
        let segment = usize::from(subflow.tcp.segment_payload(DATA_OPTIONS));
        let part = subflow.tcp.stats().congestion_window / PARTS_OF_WINDOW;
        let grown = (part as usize / segment).max(1) * segment;
        // A rest of room that is smaller than a segment is not worth a block of its own.
        let longest = whole_segments(self.config.tcp.max_super_segment, segment as u16).min(grown);
        let length = (room - room % segment.max(1)).clamp(segment, longest.max(segment));
        let established = self.protection.established();
        let ahead = established.map_or(0, Established::numbers_ahead);
        let left = self.outgoing.window_left().saturating_sub(ahead);
        let whole_window = self.outgoing.window_left() + self.outgoing.in_doubt();
        let most = left.min((whole_window / 2).max(segment as u64));
        length.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Gives the first block to this subflow, if it is sealed.
    fn send_first(&mut self, now: Instant, index: usize) -> bool {
        let established = self.protection.established_mut();
        let Some(body) = established.and_then(Established::take_ahead) else { return false };
        if body.block.kind() == Kind::Data {
            self.outgoing.on_chosen(self.subflows[index].state.id());
        }
        let (dsn, ends_stream) = (body.block.dsn(), body.ends_stream());
        let start = self.outgoing.push_sealed(body);
        debug_assert!(
            self.protection.numbers().is_some_and(|n| n.outgoing.dsn(start) == dsn),
            "in their turn"
        );
        if ends_stream {
            self.outgoing.on_fin_sent();
        }
        self.transmit_block(now, index, start)
    }

    pub(super) fn on_keys_used_up(&mut self) {
        self.fail_sealing("the keys are used up".into(), ConnectionError::Protocol);
    }

    /// Sends a block on this subflow, for the first time or once more; the cipher text stays what it is.
    pub(crate) fn transmit_block(&mut self, now: Instant, index: usize, start: u64) -> bool {
        let acknowledged = self.acknowledged();
        let Some(established) = self.protection.established_mut() else { return false };
        let subflow = self.subflows.touch(index);
        let Some(tag) = subflow.state.sealed().tag() else { return false };
        let Some(block) = self.outgoing.block_mut(start) else { return false };
        let Body::Sealed(body) = &mut block.body else { return false };
        let to = Place { subflow: tag, offset: subflow.tcp.next_offset() };
        let Some((payload, options)) = established.transmit(body, to, acknowledged) else { return false };
        self.give(now, index, start, payload, options);
        true
    }
}
