//! Sealing what goes out: one block per mapping, encrypted once, tagged for each transmission.

use base::Instant;
use protect::sealed::{
    BLOCK_OVERHEAD, BlockBuffer, Kind, MAX_PLAIN, OptionContext, ProtectedOptions, Record,
};
use wire::{DataAck, DataSequence, Dss, Mapping, MptcpOption, OptionBytes};

use super::body::SealedBody;
use super::running::Running;
use super::{Sealed, Stage};
use crate::blocks::Body;
use crate::connection::Mode;
use crate::options_out::{DATA_OPTIONS, put};
use crate::scheduler::Candidate;
use crate::send::whole_segments;
use crate::{Connection, ConnectionError};

/// Control blocks may go so far beyond the window of the data, lest two ends that both wait for room wait for
/// ever. The receiver takes twice as much.
pub(super) const CONTROL_SLACK: u64 = 8 << 10;
/// A block is at most this part of the congestion window: the receiver waits for the whole of it.
const PARTS_OF_WINDOW: u32 = 4;

impl Connection {
    /// Whether blocks are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.sealed.as_deref(), Some(Sealed { stage: Stage::Running(_), .. }))
    }

    /// Sends a control block, if there is one to send.
    pub(crate) fn schedule_control(&mut self, now: Instant) -> bool {
        if self.mode != Mode::Multipath || !self.has_control(now) {
            return false;
        }
        let limit = self.outgoing.next() + MAX_CONTROL as u64;
        if limit > self.outgoing.edge().max(self.outgoing.acked()) + CONTROL_SLACK {
            return false;
        }
        let candidates = self.candidates(now, |_| true);
        let Some(index) = self.control_flow(&candidates) else { return false };
        let Some(body) = self.seal_control(now) else { return false };
        let ends_stream = body.ends_stream;
        let start = self.outgoing.push_sealed(body);
        if ends_stream {
            self.outgoing.on_fin_sent();
        }
        self.transmit_block(index, start)
    }

    fn has_control(&self, now: Instant) -> bool {
        let Some(running) = self.sealed.as_deref().and_then(Sealed::running) else { return false };
        if self.outgoing.is_fin_sent() {
            return false;
        }
        let all_cut = self.outgoing.is_finished() && self.outgoing.queued() == 0;
        !running.pending.is_empty()
            || running.sealer.is_update_due(now)
            || (all_cut && (!running.eof_sent || running.eof_received))
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

    fn seal_control(&mut self, now: Instant) -> Option<SealedBody> {
        let all_cut = self.outgoing.is_finished() && self.outgoing.queued() == 0;
        let running = self.sealed.as_deref_mut().and_then(Sealed::running_mut)?;
        if running.sealer.is_update_due(now)
            && let Ok(block) = running.sealer.update_keys(now)
        {
            running.sealed_blocks += 1;
            return Some(SealedBody { block, application: 0, ends_stream: false });
        }
        let mut plain = BlockBuffer::with_capacity(MAX_CONTROL - BLOCK_OVERHEAD);
        let mut ends_stream = false;
        if !running.pending.is_empty() {
            while plain.len() + LONGEST_RECORD <= MAX_CONTROL - BLOCK_OVERHEAD
                && let Some(record) = running.pending.pop_front()
            {
                plain.put(&record.to_bytes());
            }
        } else if all_cut && !running.eof_sent {
            plain.put(&Record::Eof.to_bytes());
            running.eof_sent = true;
        } else if all_cut && running.eof_received {
            plain.put(&[Record::PADDING]);
            ends_stream = true;
        } else {
            return None;
        }
        let sealed = running.sealer.seal(Kind::Control, plain);
        let Ok(block) = sealed else {
            self.fail_sealing("the keys are used up".into(), ConnectionError::Protocol);
            return None;
        };
        running.sealed_blocks += 1;
        Some(SealedBody { block, application: 0, ends_stream })
    }

    /// Cuts a block for the subflow that was chosen, and seals it.
    pub(crate) fn send_sealed(&mut self, index: usize, room: usize) -> bool {
        let flow = &self.flows[index];
        let segment = usize::from(flow.tcp.segment_payload(DATA_OPTIONS));
        let part = flow.tcp.stats().congestion_window / PARTS_OF_WINDOW;
        let grown = (part as usize / segment).max(1) * segment;
        // A rest of room that is smaller than a segment is not worth a block of its own.
        let longest = whole_segments(self.config.tcp.max_super_segment, segment as u16).min(grown);
        let length = (room - room % segment.max(1)).clamp(segment, longest.max(segment));
        let left = usize::try_from(self.outgoing.window_left()).unwrap_or(usize::MAX);
        let whole_window = usize::try_from(self.outgoing.window_left() + self.outgoing.in_doubt());
        let half = whole_window.unwrap_or(usize::MAX) / 2;
        let length = length.min(left).min(half.max(segment));
        if length <= BLOCK_OVERHEAD {
            return false;
        }
        let wanted = self.outgoing.queued().min(length - BLOCK_OVERHEAD).min(MAX_PLAIN);
        let Some(running) = self.sealed.as_deref_mut().and_then(Sealed::running_mut) else { return false };
        if wanted == 0 || running.eof_sent {
            return false;
        }
        let mut plain = BlockBuffer::with_capacity(wanted);
        self.outgoing.drain_queue(wanted, |piece| {
            plain.put(piece);
        });
        let Ok(block) = running.sealer.seal(Kind::Data, plain) else {
            self.fail_sealing("the keys are used up".into(), ConnectionError::Protocol);
            return false;
        };
        running.sealed_blocks += 1;
        let body = SealedBody { block, application: wanted, ends_stream: false };
        let start = self.outgoing.push_sealed(body);
        self.last_chosen = Some(self.flows[index].state.id);
        self.transmit_block(index, start)
    }

    /// Sends a block on this subflow, for the first time or once more; the cipher text stays what it is.
    pub(crate) fn transmit_block(&mut self, index: usize, start: u64) -> bool {
        let (Some(sealed), Some(session)) = (&mut self.sealed, &self.session) else { return false };
        let Stage::Running(running) = &mut sealed.stage else { return false };
        let flow = &mut self.flows[index];
        let Some(subflow) = flow.state.sealed.tag else { return false };
        let Some(block) = self.outgoing.block_mut(start) else { return false };
        let Body::Sealed(body) = &mut block.body else { return false };
        let data_ack = session.incoming.dsn(self.incoming.next());
        let ssn = flow.tcp.next_offset() as u32;
        let context = OptionContext {
            subflow,
            ssn,
            data_ack: Some(data_ack),
            data_fin: body.ends_stream,
            options: ProtectedOptions::NONE,
        };
        let Some(payload) = running.sealer.transmit(&mut body.block, &context) else { return false };
        let length = payload.bytes.len() as u16 + u16::from(body.ends_stream);
        let dss = Dss {
            data_ack: Some(DataAck::Long(data_ack.bits())),
            mapping: Some(Mapping {
                dsn: DataSequence::Long(body.block.dsn().bits()),
                ssn,
                length,
                checksum: None,
            }),
            data_fin: body.ends_stream,
        };
        let mut options = OptionBytes::new();
        put(&MptcpOption::Dss(dss), usize::MAX, &mut options);
        self.give(index, start, payload.bytes, options);
        true
    }
}

impl Running {
    /// Sealing has nothing to say any more.
    pub(super) fn is_silent(&self) -> bool {
        self.eof_received
    }
}

/// The longest control block that we send.
const MAX_CONTROL: usize = 256;
/// ADD_ADDR with an IPv6 address.
const LONGEST_RECORD: usize = 21;
