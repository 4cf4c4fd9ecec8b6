//! Blocks that arrived corrupted.
//!
//! TCP acknowledges bytes before anybody has verified them; the Data-ACK covers them afterwards, and the same segment
//! carries both. So a block whose bytes TCP has seen acknowledged on every subflow that carried it, while a Data-ACK
//! still asks for it, did not get through intact: it goes out again, on another subflow if there is one.

use crate::log;
use plait_base::{Duration, Instant, SubflowId};

use crate::Connection;
use crate::send::blocks::Carrier;
use crate::subflows::flow::{Flow, Stage, UNKNOWN_RTT};

/// Blocks looked at: those behind the first are noted, so that they go out at once when their turn comes.
const LOOK_AHEAD: usize = 64;
/// How long the Data-ACK may lag behind TCP's: the segment with both may have been lost.
const MIN_GRACE: Duration = Duration::from_millis(2);
const MAX_GRACE: Duration = Duration::from_millis(100);

/// What it follows from which blocks TCP has delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Deliveries {
    /// Stream offsets acknowledged, of all subflows together.
    acked: u64,
    subflows: usize,
    /// Of those, subflows that are over and carry nothing any more.
    over: usize,
    newest: Option<SubflowId>,
    /// Data offset of the first block.
    first: Option<u64>,
}

impl Connection {
    /// Finds blocks that were corrupted and has them sent again.
    pub(super) fn repair(&mut self, now: Instant) {
        if !self.protection.is_sealed() {
            return;
        }
        self.note_arrivals(now);
        if self.repair_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let Some(first) = self.outgoing.first() else { return };
        let start = first.start;
        let is_other =
            |flow: &Flow| flow.is_good() && !flow.state.is_backup() && !first.is_carried_by(flow.state.id);
        let elsewhere = self.flows.iter().any(is_other);
        log::debug!(start, elsewhere, "block has arrived and was not verified: it is sent again");
        self.counters.blocks_repaired += 1;
        self.outgoing.on_block_corrupted(start, elsewhere);
    }

    /// Notes which of the first blocks TCP has delivered on every subflow that carries them, if anything has changed that
    /// this follows from.
    fn note_arrivals(&mut self, now: Instant) {
        let seen = Deliveries {
            acked: self.flows.iter().map(|flow| flow.tcp.acked_offset()).sum(),
            subflows: self.flows.len(),
            over: self.flows.iter().filter(|flow| flow.state.stage == Stage::Over).count(),
            newest: self.flows.iter().map(|flow| flow.state.id).max(),
            first: self.outgoing.first().map(|first| first.start),
        };
        let Some(established) = self.protection.established_mut() else { return };
        if established.deliveries.as_ref() == Some(&seen) {
            return;
        }
        established.deliveries = Some(seen);
        let flows = &self.flows;
        let has_arrived = |carrier: &Carrier| {
            let flow = flows.iter().find(|flow| flow.state.id == carrier.flow);
            flow.is_none_or(|flow| flow.tcp.acked_offset() >= carrier.end)
        };
        for block in self.outgoing.first_blocks().take(LOOK_AHEAD) {
            if block.arrived.is_none() && !block.carriers.is_empty() && block.carriers.iter().all(has_arrived)
            {
                block.arrived = Some(now);
            }
        }
    }

    /// When the first block counts as corrupted.
    pub(crate) fn repair_deadline(&self) -> Option<Instant> {
        if !self.protection.is_sealed() || self.closing.is_over() {
            return None;
        }
        let first = self.outgoing.first()?;
        let arrived = first.arrived.filter(|_| !self.outgoing.is_again(first.start))?;
        let round_trip = |flow: &Flow| flow.tcp.stats().srtt.unwrap_or(UNKNOWN_RTT);
        let slowest = self.flows.iter().filter(|flow| flow.is_open()).map(round_trip).max()?;
        Some(arrived + (slowest / 4).clamp(MIN_GRACE, MAX_GRACE))
    }
}
