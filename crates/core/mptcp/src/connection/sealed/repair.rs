//! Repair of blocks that TCP has delivered and that the peer cannot verify.
//!
//! TCP acknowledges bytes before they are verified; the Data-ACK covers them afterwards, and the same segment
//! carries both. Where that segment is part of a block, TCP's counts at once, and the Data-ACK when the block has come whole
//! and is genuine. So a block whose bytes TCP has seen acknowledged on every subflow that carried it, while a Data-ACK
//! still asks for it, did not get through intact: it goes out again, on another subflow if there is one, a backup or not. It is
//! held against those that carried it. One may be an accident; after the second all that such a subflow claims to have delivered
//! goes out again, and after the eighth it is left.

use crate::log;
use plait_base::{Duration, Instant, SubflowId};
use plait_wire::ResetReason;

use crate::Connection;
use crate::protection::sealed::Deliveries;
use crate::send::blocks::{Arrival, Block, BlockToCome, Carrier};
use crate::subflows::{ResetInfo, Stage, Subflow, UNKNOWN_RTT};

/// Blocks looked at: those behind the first are noted, so that they go out at once when their turn comes.
const LOOK_AHEAD: usize = 64;
/// How long the Data-ACK may lag behind TCP's: the segment with both may have been lost.
const MIN_GRACE: Duration = Duration::from_millis(2);
const MAX_GRACE: Duration = Duration::from_millis(100);
/// How long a block of the peer that has begun is waited for at most, where half a round trip is not shorter.
const MAX_AWAITED: Duration = Duration::from_millis(250);

impl Connection {
    /// Finds blocks that were corrupted or swallowed, has them sent again, and leaves subflows on which that goes on.
    pub(super) fn repair(&mut self, now: Instant) {
        if !self.protection.authenticates_data_acks() {
            return;
        }
        self.credit_deliveries(now);
        self.note_arrivals(now);
        self.note_block_to_come(now);
        if self.repair_deadline().is_some_and(|deadline| deadline <= now) {
            self.repair_first();
        }
        self.leave_used_up(now);
    }

    /// Has the first block sent again.
    fn repair_first(&mut self) {
        let Some(first) = self.outgoing.first() else { return };
        let (start, elsewhere) = (first.start, self.has_other_way(first));
        log::debug!(start, elsewhere, "block has arrived and was not verified: it is sent again");
        self.counters.blocks_repaired += 1;
        self.deny_carriers(start);
        self.outgoing.on_block_corrupted(start, elsewhere);
    }

    /// Whether a subflow that works could take a block that it has not carried.
    fn has_other_way(&self, block: &Block) -> bool {
        self.subflows.iter().any(|subflow| subflow.is_good() && !block.is_carried_by(subflow.state.id()))
    }

    /// Credits the subflows that have delivered the blocks acknowledged by the peer.
    fn credit_deliveries(&mut self, now: Instant) {
        for index in 0..self.subflows.len() {
            self.subflows.note_flight(now, index);
        }
        for covered in self.outgoing.take_covered() {
            if let Some(index) = self.subflows.index_of(covered.carrier.subflow) {
                let since = covered.carrier.since;
                let delivery = self.subflows.touch(index).state.sealed_mut().delivery_mut();
                delivery.on_covered(now, since, covered.was_first);
                delivery.measure(now, covered.length);
            }
        }
    }

    /// Counts the block at `start` as a denial of its carriers.
    fn deny_carriers(&mut self, start: u64) {
        let Some(block) = self.outgoing.block_mut(start) else { return };
        let mut disbelieved = arrayvec::ArrayVec::<(SubflowId, u64), MAX_DENIED>::new();
        for carrier in block.carriers.iter_mut().filter(|carrier| !carrier.is_denied) {
            let Some(index) = self.subflows.index_of(carrier.subflow) else { continue };
            carrier.is_denied = true;
            let subflow = self.subflows.touch(index);
            subflow.state.sealed_mut().delivery_mut().on_denied();
            if subflow.state.sealed().delivery().is_suspect() {
                let _ = disbelieved.try_push((carrier.subflow, subflow.tcp.acked_offset()));
            }
        }
        for (subflow, acked) in disbelieved {
            if self.subflows.has_other_good(subflow) {
                self.outgoing.on_disbelieved(subflow, acked);
            }
        }
    }

    /// Leaves subflows with too many denials, unless there is no other.
    fn leave_used_up(&mut self, now: Instant) {
        let is_used_up =
            |subflow: &Subflow| subflow.is_open() && subflow.state.sealed().delivery().is_used_up();
        while let Some(index) = self.subflows.iter().position(is_used_up)
            && self.subflows.has_other_good(self.subflows[index].state.id())
        {
            let state = &self.subflows[index].state;
            log::debug!(subflow = state.id().0, path = ?state.path(), "subflow does not deliver what its TCP says: it is left");
            let (path, remote, way) = (state.path(), state.tuple().remote, state.way());
            if let Some(established) = self.protection.established_mut() {
                established.suspect(way);
            }
            self.counters.attacked_closed += 1;
            self.subflows.touch(index).reset(ResetInfo::for_now(ResetReason::MiddleboxInterference));
            // What it carried goes out elsewhere now.
            self.drain_subflows(now);
            self.paths.on_interference(path, remote);
        }
    }

    /// Whether `subflow` is not to be given anything new: TCP says that it has delivered the first block, and the peer has not
    /// said so.
    pub(crate) fn is_disputed(&self, subflow: &Subflow) -> bool {
        let is_awaiting = |first: &Block| first.arrival.is_some_and(|arrival| arrival.awaits.is_some());
        self.protection.authenticates_data_acks()
            && self.outgoing.first().filter(|first| !is_awaiting(first)).is_some_and(|first| {
                let is_claimed = |carrier: &Carrier| {
                    carrier.subflow == subflow.state.id() && carrier.end <= subflow.tcp.acked_offset()
                };
                first.carriers.iter().any(is_claimed)
            })
    }

    /// Notes which of the first blocks TCP has delivered on every subflow that carries them, if anything has changed that
    /// this follows from.
    fn note_arrivals(&mut self, now: Instant) {
        let seen = Deliveries {
            acked: self.subflows.iter().map(|subflow| subflow.figures().acked).sum(),
            subflows: self.subflows.len(),
            over: self.subflows.iter().filter(|subflow| subflow.state.stage() == Stage::Over).count(),
            newest: self.subflows.iter().map(|subflow| subflow.state.id()).max(),
            first: self.outgoing.first().map(|first| first.start),
        };
        if !self.protection.established_mut().is_some_and(|established| established.is_news(seen)) {
            return;
        }
        let subflows = &self.subflows;
        let has_arrived = |carrier: &Carrier| {
            let subflow = subflows.with_id(carrier.subflow);
            subflow.is_none_or(|subflow| subflow.tcp.acked_offset() >= carrier.end)
        };
        for block in self.outgoing.first_blocks().take(LOOK_AHEAD) {
            if block.arrival.is_none() && !block.carriers.is_empty() && block.carriers.iter().all(has_arrived)
            {
                let carriers = block.carriers.iter();
                let mut subflows = carriers.filter_map(|carrier| subflows.with_id(carrier.subflow));
                let amid = subflows.find(|subflow| subflow.state.sealed().inbox().is_amid());
                let awaits = amid.map(|Subflow { state, .. }| BlockToCome {
                    subflow: state.id(),
                    blocks: state.sealed().blocks_whole() + 1,
                });
                block.arrival = Some(Arrival { at: now, awaits });
            }
        }
    }

    /// Notes that the block has come whole amid which TCP acknowledged the first one of ours.
    fn note_block_to_come(&mut self, now: Instant) {
        let Some(Arrival { awaits: Some(to_come), .. }) =
            self.outgoing.first().and_then(|first| first.arrival)
        else {
            return;
        };
        let subflow = self.subflows.with_id(to_come.subflow);
        let is_over = subflow.is_none_or(|subflow| subflow.state.stage() == Stage::Over);
        if (is_over || subflow.is_some_and(|subflow| subflow.state.sealed().blocks_whole() >= to_come.blocks))
            && let Some(first) = self.outgoing.first_blocks().next()
        {
            first.arrival = Some(Arrival { at: now, awaits: None });
        }
    }

    /// When the first block counts as corrupted.
    pub(crate) fn repair_deadline(&self) -> Option<Instant> {
        if !self.protection.authenticates_data_acks() || self.closing.is_over() {
            return None;
        }
        let first = self.outgoing.first()?;
        let arrival = first.arrival?;
        // It is to go out on another subflow already. Where there is none, the one that it was changed on has to repeat it, also
        // if that has stood still since: nothing else would.
        if self.outgoing.is_again(first.start) && self.has_other_way(first) {
            return None;
        }
        let round_trip = |subflow: &Subflow| subflow.tcp.stats().srtt.unwrap_or(UNKNOWN_RTT);
        let slowest = self.subflows.iter().filter(|subflow| subflow.is_open()).map(round_trip).max()?;
        let grace = (slowest / 4).clamp(MIN_GRACE, MAX_GRACE);
        // A block takes a quarter of a round trip. An attacker that begins or forges one, and stops, gains no more than this.
        let awaited = (slowest / 2).clamp(MAX_GRACE, MAX_AWAITED);
        Some(arrival.at + if arrival.awaits.is_some() { awaited } else { grace })
    }
}

/// Carriers of one block that lose their credit at a time.
const MAX_DENIED: usize = 8;
