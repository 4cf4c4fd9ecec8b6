//! Sealing what goes out: one block per mapping, encrypted once, tagged for each transmission.

use plait_base::Instant;
use plait_protect::sealed::{
    BLOCK_OVERHEAD, BlockBuffer, KeyUsedUp, Kind, MAX_PLAIN, OptionContext, ProtectedOptions, Record,
};
use plait_wire::{DataAck, DataSequence, Dss, Mapping, MptcpOption, OptionBytes};

use super::established::Established;
use crate::connection::sending::whole_segments;
use crate::protection::options::{DATA_OPTIONS, put};
use crate::scheduler::Candidate;
use crate::send::blocks::Body;
use crate::{Connection, ConnectionError, Scheduler};

/// Control blocks may go so far beyond the window of the data, lest two ends that both wait for room wait for
/// ever. The receiver takes twice as much.
pub(super) const CONTROL_SLACK: u64 = 8 << 10;
/// A block is at most this part of the congestion window: the receiver waits for the whole of it.
const PARTS_OF_WINDOW: u32 = 4;

impl Connection {
    /// Sends a control block, if there is one to send and its turn has come.
    pub(crate) fn schedule_control(&mut self, now: Instant) -> bool {
        if !self.protection.is_sealed() || !(self.has_control(now) || self.is_control_next()) {
            return false;
        }
        let candidates = self.candidates(now, |_| true);
        let Some(index) = self.control_flow(&candidates) else { return false };
        if self.has_control(now) && self.has_room_for_control() {
            self.seal_control(now);
        }
        self.is_control_next() && self.send_first(now, index)
    }

    fn has_control(&self, now: Instant) -> bool {
        let Some(established) = self.protection.established() else { return false };
        if self.outgoing.is_fin_sent() || established.ahead.ends_stream() {
            return false;
        }
        let all_cut = self.outgoing.is_finished() && self.outgoing.uncut() == 0;
        !established.pending.is_empty()
            || established.sealer.is_update_due(now)
            || (all_cut && (!established.is_eof_sent() || established.eof_received))
    }

    fn is_control_next(&self) -> bool {
        let established = self.protection.established();
        established
            .and_then(|established| established.ahead.first())
            .is_some_and(|first| first.kind == Kind::Control)
    }

    fn has_room_for_control(&self) -> bool {
        let Some(established) = self.protection.established() else { return false };
        let end = self.outgoing.next() + established.ahead.numbers() + MAX_CONTROL as u64;
        established.ahead.len() < self.most_ahead()
            && end <= self.outgoing.edge().max(self.outgoing.acked()) + CONTROL_SLACK
    }

    /// Blocks that may be cut before a subflow takes them. Without jobs each is cut when it can go out.
    fn most_ahead(&self) -> usize {
        usize::from(self.config.crypto_jobs).max(1)
    }

    /// The best subflow with room; without any, one that has nothing waiting.
    fn control_flow(&self, candidates: &[Candidate]) -> Option<usize> {
        let best = |list: &mut dyn Iterator<Item = &Candidate>| {
            list.min_by_key(|candidate| (candidate.srtt, candidate.id)).map(|candidate| candidate.index)
        };
        best(&mut candidates.iter().filter(|candidate| candidate.room > 0)).or_else(|| {
            let is_idle = |candidate: &&Candidate| self.flows[candidate.index].tcp.unsent() == 0;
            best(&mut candidates.iter().filter(is_idle))
        })
    }

    /// Control blocks are short: they are sealed here and now.
    fn seal_control(&mut self, now: Instant) {
        let all_cut = self.outgoing.is_finished() && self.outgoing.uncut() == 0;
        let Some(established) = self.protection.established_mut() else { return };
        if established.sealer.is_update_due(now)
            && let Ok(block) = established.sealer.update_keys(now)
        {
            established.sealed_blocks += 1;
            established.ahead.push(block, false);
            return;
        }
        let mut plain = BlockBuffer::with_capacity(MAX_CONTROL - BLOCK_OVERHEAD);
        let mut ends_stream = false;
        if !established.pending.is_empty() {
            while plain.len() + LONGEST_RECORD <= MAX_CONTROL - BLOCK_OVERHEAD
                && let Some(record) = established.pending.pop_front()
            {
                plain.put(&record.to_bytes());
            }
        } else if all_cut && !established.is_eof_sent() {
            plain.put(&Record::Eof.to_bytes());
            established.eof_at = Some(established.sealer.next_dsn());
        } else if all_cut && established.eof_received {
            plain.put(&[Record::PADDING]);
            ends_stream = true;
        } else {
            return;
        }
        match established.sealer.seal(Kind::Control, plain) {
            Ok(block) => {
                established.sealed_blocks += 1;
                established.ahead.push(block, ends_stream);
            }
            Err(KeyUsedUp) => self.on_keys_used_up(),
        }
    }

    /// Where sealing is a job for others: cuts blocks before there is a subflow for them, so that some are ready when
    /// there is. Which subflow takes the first one is for `candidates` with room for all of it. `false` while the first
    /// one is being sealed.
    pub(crate) fn seal_ahead(&mut self, candidates: &mut [Candidate]) -> bool {
        if self.config.crypto_jobs == 0 || !self.protection.is_sealed() {
            return true;
        }
        let (turn, waits_for_room) = match self.config.scheduler {
            // Room is the length of a turn then.
            Scheduler::Dispersed { max_exposure } => (usize::from(max_exposure.get()), false),
            Scheduler::LowestRtt | Scheduler::RoundRobin | Scheduler::Redundant => (usize::MAX, true),
        };
        if let Some(widest) = candidates.iter().max_by_key(|candidate| candidate.window) {
            let index = widest.index;
            while self.is_sealing_due() && self.cut_block(index, turn) {}
        }
        let established = self.protection.established();
        let Some(first) = established.and_then(|established| established.ahead.first()) else { return true };
        for candidate in candidates {
            // A part of a block would be a super-segment of its own. Who has nothing in flight has no more room to
            // hope for.
            let is_short = (candidate.room as u64) < first.length;
            if is_short && waits_for_room && self.flows[candidate.index].is_busy() {
                candidate.room = 0;
            }
        }
        first.is_sealed
    }

    fn is_sealing_due(&self) -> bool {
        let established = self.protection.established();
        self.outgoing.uncut() > 0
            && established.is_some_and(|established| established.ahead.len() < self.most_ahead())
    }

    /// Sends the next block of data on the subflow that was chosen.
    pub(crate) fn send_sealed(&mut self, now: Instant, index: usize, room: usize) -> bool {
        let established = self.protection.established();
        if self.config.crypto_jobs == 0 && established.is_some_and(|established| established.ahead.is_empty())
        {
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
        if wanted == 0 || established.is_eof_sent() {
            return false;
        }
        let mut plain = BlockBuffer::with_capacity(0);
        self.outgoing.drain_queue(wanted, |piece| plain.append(piece));
        let dsn = established.sealer.next_dsn();
        let Ok(job) = established.sealer.begin(Kind::Data, plain) else {
            self.on_keys_used_up();
            return false;
        };
        established.sealed_blocks += 1;
        established.ahead.expect(dsn, (wanted + BLOCK_OVERHEAD) as u64, wanted);
        if self.config.is_job(wanted) {
            established.jobs.seal(job);
        } else {
            established.ahead.fill(job.run());
        }
        true
    }

    fn block_length(&self, index: usize, room: usize) -> usize {
        let flow = &self.flows[index];
        let segment = usize::from(flow.tcp.segment_payload(DATA_OPTIONS));
        let part = flow.tcp.stats().congestion_window / PARTS_OF_WINDOW;
        let grown = (part as usize / segment).max(1) * segment;
        // A rest of room that is smaller than a segment is not worth a block of its own.
        let longest = whole_segments(self.config.tcp.max_super_segment, segment as u16).min(grown);
        let length = (room - room % segment.max(1)).clamp(segment, longest.max(segment));
        let established = self.protection.established();
        let ahead = established.map_or(0, |established| established.ahead.numbers());
        let left = self.outgoing.window_left().saturating_sub(ahead);
        let whole_window = self.outgoing.window_left() + self.outgoing.in_doubt();
        let most = left.min((whole_window / 2).max(segment as u64));
        length.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Gives the first block to this subflow, if it is sealed.
    fn send_first(&mut self, now: Instant, index: usize) -> bool {
        let established = self.protection.established_mut();
        let Some(body) = established.and_then(|established| established.ahead.pop()) else { return false };
        if body.block.kind() == Kind::Data {
            self.outgoing.on_chosen(self.flows[index].state.id);
        }
        let (dsn, ends_stream) = (body.block.dsn(), body.ends_stream);
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

    fn on_keys_used_up(&mut self) {
        self.fail_sealing("the keys are used up".into(), ConnectionError::Protocol);
    }

    /// Sends a block on this subflow, for the first time or once more; the cipher text stays what it is.
    pub(crate) fn transmit_block(&mut self, now: Instant, index: usize, start: u64) -> bool {
        let acknowledged = self.acknowledged();
        let Some(established) = self.protection.established_mut() else { return false };
        let flow = &mut self.flows[index];
        let Some(subflow) = flow.state.sealed.tag else { return false };
        let Some(block) = self.outgoing.block_mut(start) else { return false };
        let Body::Sealed(body) = &mut block.body else { return false };
        let data_ack = established.numbers.incoming.dsn(acknowledged);
        let offset = flow.tcp.next_offset();
        let context = OptionContext {
            subflow,
            offset,
            data_ack: Some(data_ack),
            data_fin: body.ends_stream,
            options: ProtectedOptions::NONE,
        };
        let Some(payload) = established.sealer.transmit(&mut body.block, &context) else { return false };
        let length = payload.bytes.len() as u16 + u16::from(body.ends_stream);
        let dss = Dss {
            data_ack: Some(DataAck::Long(data_ack.bits())),
            mapping: Some(Mapping {
                dsn: DataSequence::Long(body.block.dsn().bits()),
                ssn: offset as u32,
                length,
                checksum: None,
            }),
            data_fin: body.ends_stream,
        };
        let mut options = OptionBytes::new();
        put(&MptcpOption::Dss(dss), usize::MAX, &mut options);
        self.give(now, (index, start), payload.bytes, options);
        true
    }
}

impl Established {
    /// Sealing has nothing to say any more.
    pub(super) fn is_silent(&self) -> bool {
        self.eof_received
    }
}

/// The longest control block that we send.
const MAX_CONTROL: usize = 256;
/// ADD_ADDR with an IPv6 address.
const LONGEST_RECORD: usize = 21;
