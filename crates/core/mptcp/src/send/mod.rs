//! The outgoing stream: bytes that wait for a number, and numbered blocks that wait for their Data-ACK.
//!
//! Bytes of the application wait without numbers. When a subflow can take bytes, a *block* is cut and gets its data sequence numbers. The
//! block stays here until the peer has acknowledged it at data level.

pub(crate) mod blocks;
mod data_timer;
mod exposure;
mod repetition;
pub(crate) mod sealed_body;

use bytes::{Bytes, BytesMut};
use plait_base::{Duration, Instant, SubflowId};
use std::collections::{BTreeSet, VecDeque};

use data_timer::DataTimer;
use exposure::ExposureTracker;

use crate::scheduler::Backlog;
use crate::subflows::SubflowState;
use blocks::{Block, Body, Carrier, Covered};
use sealed_body::SealedBody;

/// The effect of a Data-ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acked {
    /// It acknowledges this many bytes for the first time (a DATA_FIN counts).
    New(u64),
    /// Nothing new.
    Old,
    /// It acknowledges data that was never sent.
    Beyond,
}

/// The action on a data timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataTimeout {
    /// All subflows repeat the DATA_FIN.
    RepeatFin,
    /// The first and only subflow is probed. Its delivered data cannot be missing. If the peer has fallen back, a second copy would be new
    /// data to the peer. The Data-ACK can be missing: the Linux kernel acknowledges for TCP before it has moved the bytes up, and may send
    /// nothing when it has.
    Probe,
    /// This block is sent again.
    Resend {
        /// Its data offset.
        start: u64,
    },
}

/// The outgoing stream.
#[derive(Debug)]
pub(crate) struct SendStream {
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Bytes of the application that have left the queue for blocks not yet assigned to a subflow.
    ahead: usize,
    /// Offset of the next block to be cut.
    next: u64,
    /// First unacknowledged offset.
    acked: u64,
    /// Right edge of the peer's window.
    edge: u64,
    blocks: VecDeque<Block>,
    /// Starts of blocks that must be sent again on another subflow.
    again: BTreeSet<u64>,
    /// Sealed blocks acknowledged since the last [`SendStream::take_covered`].
    covered: Vec<Covered>,
    /// The application will write no more.
    finished: bool,
    /// The DATA_FIN went out at least once.
    fin_sent: bool,
    /// The DATA_FIN does not follow the last numbered byte at once, but waits for the connection.
    holds_fin: bool,
    /// Bytes of the application in blocks that were sealed and acknowledged.
    delivered: u64,
    timer: DataTimer,
    /// Data has only ever been sent on one subflow. The numbers of stream and subflow correspond, and a fallback is possible.
    is_contiguous: bool,
    /// The writer has more than there is room for.
    is_filled: bool,
    /// The subflow that got the last new block.
    last_chosen: Option<SubflowId>,
    /// The bytes that each untrusted path has carried in a row.
    exposure: ExposureTracker,
}

impl SendStream {
    /// Returns an empty stream with the first byte at offset 1.
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            ahead: 0,
            next: 1,
            acked: 1,
            edge: 1,
            blocks: VecDeque::new(),
            again: BTreeSet::new(),
            covered: Vec::new(),
            finished: false,
            fin_sent: false,
            holds_fin: false,
            delivered: 0,
            timer: DataTimer::default(),
            is_contiguous: true,
            is_filled: false,
            last_chosen: None,
            exposure: ExposureTracker::default(),
        }
    }

    /// Returns the number of bytes kept: waiting or not acknowledged.
    pub(crate) fn kept(&self) -> usize {
        self.queued() + self.blocks.front().map_or(0, |first| (self.next - first.start) as usize)
    }

    /// Returns the number of bytes that no subflow has yet.
    pub(crate) fn queued(&self) -> usize {
        self.queued + self.ahead
    }

    /// Returns the number of bytes that are in no block yet.
    pub(crate) fn uncut(&self) -> usize {
        self.queued
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns the right edge of the peer's window.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Returns the number of bytes that the peer's window allows beyond the numbered ones.
    pub(crate) fn window_left(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the offset of the DATA_FIN once everything before it is numbered.
    pub(crate) fn fin(&self) -> Option<u64> {
        let is_due = self.fin_sent || !self.holds_fin;
        (self.finished && self.queued() == 0 && is_due).then_some(self.next)
    }

    pub(crate) fn is_fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// Whether everything, DATA_FIN included, was acknowledged.
    pub(crate) fn is_complete(&self) -> bool {
        self.fin().is_some_and(|fin| self.acked > fin)
    }

    /// Whether sent data waits for its Data-ACK.
    pub(crate) fn awaits_ack(&self) -> bool {
        !self.blocks.is_empty() || (self.fin_sent && !self.is_complete())
    }

    pub(crate) fn write(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.queued += data.len();
            self.queue.push_back(data);
        }
    }

    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Notes whether the writer has more than there is room for.
    pub(crate) fn set_filled(&mut self, is_filled: bool) {
        self.is_filled = is_filled;
    }

    /// Returns the bytes that wait for a subflow, now and later.
    pub(crate) fn backlog(&self) -> Backlog {
        if self.is_filled && !self.finished { Backlog::Endless } else { Backlog::Bytes(self.queued() as u64) }
    }

    pub(crate) fn on_fin_sent(&mut self) {
        self.fin_sent = true;
    }

    /// Numbers the next bytes, at most `max` (not zero), and returns their start and payload. `change` transforms the bytes; it gets all
    /// bytes once and in order.
    pub(crate) fn cut(&mut self, max: usize, change: impl FnOnce(Bytes) -> Bytes) -> Option<(u64, Bytes)> {
        let (start, payload) = self.take(max)?;
        let payload = change(payload);
        self.add(start, Body::Clear(payload.clone()));
        Some((start, payload))
    }

    fn add(&mut self, start: u64, body: Body) {
        self.blocks.push_back(Block::new(start, body));
    }

    /// The same for plain TCP: only the subflow keeps the bytes.
    pub(crate) fn take(&mut self, max: usize) -> Option<(u64, Bytes)> {
        let length = max.min(self.queued);
        let first = self.queue.front_mut().filter(|_| length > 0)?;
        let payload = if first.len() > length {
            first.split_to(length)
        } else if first.len() == length {
            self.queue.pop_front()?
        } else {
            self.gather(length)
        };
        self.queued -= payload.len();
        let start = self.next;
        self.next += payload.len() as u64;
        Some((start, payload))
    }

    fn gather(&mut self, length: usize) -> Bytes {
        let mut payload = BytesMut::with_capacity(length);
        while payload.len() < length {
            let Some(first) = self.queue.front_mut() else { break };
            let piece = first.split_to(first.len().min(length - payload.len()));
            payload.extend_from_slice(&piece);
            if first.is_empty() {
                self.queue.pop_front();
            }
        }
        payload.freeze()
    }

    /// Starts, restarts or stops the data timer as the stream requires.
    pub(crate) fn follow_timer(&mut self, now: Instant) {
        let awaits_ack = self.awaits_ack();
        self.timer.follow(now, awaits_ack);
    }

    /// Stops the timer: nothing will be sent again.
    pub(crate) fn stop_timer(&mut self) {
        self.timer.stop();
    }

    /// This host did not run until now: the data timer begins anew.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.timer.resume(now);
    }

    /// Returns when the data timer expires, given the longest retransmission timeout of the subflows in use.
    pub(crate) fn timer_deadline(&self, slowest: Option<Duration>) -> Option<Instant> {
        self.timer.deadline(slowest)
    }

    /// Returns the action on the expiry of the data timer.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> DataTimeout {
        self.timer.on_timeout(now);
        match self.first() {
            None => DataTimeout::RepeatFin,
            Some(_) if self.is_contiguous => DataTimeout::Probe,
            Some(first) => DataTimeout::Resend { start: first.start },
        }
    }

    /// Returns the moment since which nothing was acknowledged, if an acknowledgment is due.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        self.timer.stuck_since()
    }

    /// Whether the numbers of the stream and of its only subflow still correspond.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Notes that another subflow may carry data.
    pub(crate) fn on_other_subflow(&mut self) {
        self.is_contiguous = false;
    }

    pub(crate) fn last_chosen(&self) -> Option<SubflowId> {
        self.last_chosen
    }

    /// Notes that a subflow gets a new block.
    pub(crate) fn on_chosen(&mut self, subflow: SubflowId) {
        self.last_chosen = Some(subflow);
    }

    /// Whether each eavesdropper on this subflow sees at most `limit` bytes in a row if it carries those from `start` to `end`.
    pub(crate) fn exposure_allows(&self, subflow: &SubflowState, start: u64, end: u64, limit: u64) -> bool {
        self.exposure.allows(subflow, start, end, limit)
    }

    /// Returns how many of the next bytes this subflow may carry; `None` for any number.
    pub(crate) fn exposure_allowance(&self, subflow: &SubflowState, limit: u64) -> Option<u64> {
        self.exposure.allowance(subflow, self.next, limit)
    }

    /// Notes that the subflow carries these bytes, if their number in a row matters.
    pub(crate) fn note_exposed(&mut self, subflow: &SubflowState, start: u64, end: u64) {
        let first = self.blocks.front().map_or(start, |block| block.start);
        self.exposure.forget_below(first);
        self.exposure.note(subflow, start, end);
    }

    /// Notes that a subflow got the block that starts at `start`.
    pub(crate) fn on_carried(&mut self, start: u64, carrier: Carrier) {
        self.again.remove(&start);
        if let Some(block) = self.block_mut(start) {
            block.arrival = None;
            block.carry(carrier);
        }
    }

    /// Handles a Data-ACK: the peer has everything below `ack` and offers `window` bytes from there.
    pub(crate) fn on_data_ack(&mut self, ack: u64, window: u32) -> Acked {
        let last = if self.fin_sent { self.next + 1 } else { self.next };
        if ack > last {
            return Acked::Beyond;
        }
        self.edge = self.edge.max(ack + u64::from(window));
        if ack <= self.acked {
            return Acked::Old;
        }
        let new = ack - self.acked;
        self.acked = ack;
        self.timer.on_progress();
        let mut was_first = true;
        while self.blocks.front().is_some_and(|block| block.end() <= ack) {
            let Some(block) = self.blocks.pop_front() else { break };
            if let Body::Sealed(sealed) = &block.body {
                self.delivered += sealed.application_bytes();
                let length = block.end() - block.start;
                let covered = block.only_carrier().map(|&carrier| Covered { carrier, length, was_first });
                self.covered.extend(covered);
            }
            was_first = false;
        }
        let first = self.blocks.front().map_or(self.next, |block| block.start);
        while self.again.first().is_some_and(|&start| start < first) {
            self.again.pop_first();
        }
        Acked::New(new)
    }

    /// Returns the number of the application's bytes that the peer has acknowledged.
    pub(crate) fn delivered(&self) -> u64 {
        if self.holds_fin { self.delivered } else { self.acked - 1 - u64::from(self.is_complete()) }
    }

    /// Returns the first unacknowledged block.
    pub(crate) fn first(&self) -> Option<&Block> {
        self.blocks.front()
    }

    /// Returns the first block at or after `offset`.
    pub(crate) fn block_from(&self, offset: u64) -> Option<&Block> {
        self.blocks.get(self.blocks.partition_point(|block| block.start < offset))
    }

    /// Prepares a sealed stream: the DATA_FIN waits until [`SendStream::on_fin_sent`], and windows arrive in records.
    pub(crate) fn hold_fin(&mut self, edge: u64) {
        self.holds_fin = true;
        self.edge = edge;
    }

    /// Raises the right edge of the peer's window to `edge`.
    pub(crate) fn raise_edge(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// Passes waiting bytes of the application, at most `max`, piece by piece to `take`, for a block that will be sealed.
    pub(crate) fn drain_queue(&mut self, max: usize, mut take: impl FnMut(Bytes)) {
        let mut left = max.min(self.queued);
        self.ahead += left;
        while left > 0 {
            let Some(first) = self.queue.front_mut() else { break };
            let piece = first.split_to(first.len().min(left));
            left -= piece.len();
            self.queued -= piece.len();
            take(piece);
            if first.is_empty() {
                self.queue.pop_front();
            }
        }
    }

    /// Adds a block that was sealed at the next number, for its first transmission.
    pub(crate) fn push_sealed(&mut self, sealed: SealedBody) -> u64 {
        let start = self.next;
        self.ahead = self.ahead.saturating_sub(sealed.application_bytes() as usize);
        self.next += sealed.len() as u64;
        self.add(start, Body::Sealed(sealed));
        start
    }

    /// Returns the number of numbered, unacknowledged bytes.
    pub(crate) fn in_doubt(&self) -> u64 {
        self.next.saturating_sub(self.acked)
    }

    /// Returns sealed blocks that only one subflow has carried and that were acknowledged since the last call.
    pub(crate) fn take_covered(&mut self) -> impl Iterator<Item = Covered> + '_ {
        self.covered.drain(..)
    }

    /// Returns the unacknowledged blocks, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    /// Returns the first unacknowledged blocks.
    pub(crate) fn first_blocks(&mut self) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut()
    }

    /// Changes to plain TCP: the subflow alone is responsible for its bytes.
    pub(crate) fn forget_blocks(&mut self) {
        self.blocks.clear();
        self.again.clear();
        self.timer.stop();
    }

    /// Plain TCP: handles the subflow's acknowledgment of everything below `offset`.
    pub(crate) fn on_plain_ack(&mut self, offset: u64) {
        self.acked = self.acked.max(offset.min(self.next));
    }

    fn index(&self, start: u64) -> Option<usize> {
        self.blocks.binary_search_by_key(&start, |block| block.start).ok()
    }

    pub(crate) fn block(&self, start: u64) -> Option<&Block> {
        self.blocks.get(self.index(start)?)
    }

    pub(crate) fn block_mut(&mut self, start: u64) -> Option<&mut Block> {
        let index = self.index(start)?;
        self.blocks.get_mut(index)
    }
}

#[cfg(test)]
mod tests;
