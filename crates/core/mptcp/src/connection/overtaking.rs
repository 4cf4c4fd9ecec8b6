//! Opportunistic retransmission and penalisation (Raiciu et al. 2012). A faster subflow without new data sends blocks that are late on
//! slower subflows. If the whole stream stands still because of slower subflows, their windows are reduced.
//!
//! There is no new data if the writer has written all, or if the window or the send buffer is used up. The first copy to arrive counts. A
//! transfer therefore ends no later than on the better path alone, except for the time that the copies take there.

use arrayvec::ArrayVec;
use plait_base::{Duration, Instant, SubflowId};

use crate::Connection;
use crate::scheduler::{Backlog, Candidate, MAX_CANDIDATES};
use crate::send::blocks::{Block, Carrier};
use crate::subflows::Subflow;

/// Blocks checked, from the first one that is not acknowledged. Bounds the work per segment.
const LOOK_AHEAD: usize = 512;
/// Upper limit of an estimate.
const LONGEST_TRANSMISSION: Duration = Duration::from_secs(60);

/// Estimates of the time that a subflow needs.
struct Pace {
    id: SubflowId,
    /// Stream offset below which TCP has seen everything acknowledged.
    acked: u64,
    round_trip: Duration,
    /// Age after which a block is late.
    late: Duration,
    /// Its delivery rate in bytes per second. The rate is at most what its window allows. If the subflow had enough to send for a
    /// measurement, the rate is also at most that of its acknowledgments.
    rate: f64,
}

impl Pace {
    fn of(subflow: &Subflow) -> Self {
        let stats = subflow.tcp.stats();
        let round_trip = subflow.round_trip(&stats);
        let late = round_trip + stats.rttvar.max(round_trip / 8);
        let claimed = f64::from(stats.congestion_window) / round_trip.as_secs_f64().max(1e-6);
        let measured = stats.delivery_rate.filter(|_| !stats.delivery_rate_app_limited);
        let rate = measured.map_or(claimed, |measured| claimed.min(measured as f64));
        Self { id: subflow.state.id(), acked: subflow.tcp.acked_offset(), round_trip, late, rate }
    }

    /// Returns how long the acknowledgment of a block may still take: the rest of a round trip, or, for a late block, as long as its age.
    /// The result is at least the time for everything up to its end at the rate of the subflow. The smoothed round trip lags behind a
    /// growing queue and does not include bytes that are not sent yet.
    fn remaining(&self, now: Instant, carrier: &Carrier) -> Duration {
        let Some(ahead) = carrier.end.checked_sub(self.acked).filter(|&ahead| ahead > 0) else {
            return Duration::ZERO;
        };
        let waited = now.saturating_since(carrier.since);
        let by_time = if waited > self.late { waited } else { self.round_trip.saturating_sub(waited) };
        by_time.max(transmission(ahead, self.rate))
    }
}

/// Returns the time for this many bytes at this rate, in bytes per second.
fn transmission(bytes: u64, rate: f64) -> Duration {
    Duration::from_secs_f64((bytes as f64 / rate.max(1.0)).min(LONGEST_TRANSMISSION.as_secs_f64()))
}

impl Connection {
    /// Sends a block of another subflow on a subflow that would deliver it sooner.
    pub(super) fn schedule_overtaking(&mut self, now: Instant) -> bool {
        if self.subflows.len() < 2 || self.outgoing.first().is_none() {
            return false;
        }
        let mut ready = self.candidates(now, |_| true);
        ready.retain(|candidate| candidate.room > 0);
        if ready.is_empty() {
            return false;
        }
        ready.sort_by_key(|candidate| (candidate.srtt, candidate.id));
        let paces: ArrayVec<Pace, MAX_CANDIDATES> = self
            .subflows
            .iter()
            .filter(|subflow| subflow.is_open())
            .take(MAX_CANDIDATES)
            .map(Pace::of)
            .collect();
        for candidate in ready {
            let Some(start) = self.overtaken(now, &candidate, &paces) else { continue };
            if self.outgoing.window_left() == 0 || self.outgoing.backlog() == Backlog::Endless {
                self.restrain_carriers(now, start);
            }
            return self.resend(now, candidate.index, start);
        }
        false
    }

    /// Returns the first block that `by` would deliver sooner than the subflows that carry it.
    fn overtaken(&self, now: Instant, by: &Candidate, paces: &[Pace]) -> Option<u64> {
        // The last byte of a copy arrives this much later than its first byte: a block may have been cut for a larger window. A copy with a
        // small gain is not worth its room.
        let is_late = |block: &Block, carrier: &Carrier| {
            let trip = by.srtt + transmission(block.end() - block.start, by.rate);
            let pace = paces.iter().find(|pace| pace.id == carrier.subflow);
            pace.is_some_and(|pace| pace.remaining(now, carrier) > trip + trip / 4)
        };
        let is_overtaken = |block: &&Block| {
            !block.carriers.is_empty()
                && block.carriers.iter().all(|carrier| is_late(block, carrier))
                && self.may_carry(&self.subflows[by.index], block.start, block.end())
        };
        // A block of the subflow itself is not late by its own measure, so it is never copied to it again.
        let is_elsewhere = |block: &&Block| !block.is_carried_by(by.id);
        let blocks = self.outgoing.blocks().take(LOOK_AHEAD);
        blocks.filter(is_elsewhere).find(is_overtaken).map(|block| block.start)
    }

    /// Reduces the windows of the subflows that carry the block at `start`, because the stream stands still for it.
    fn restrain_carriers(&mut self, now: Instant, start: u64) {
        let Some(block) = self.outgoing.block(start) else { return };
        for carrier in &block.carriers {
            if let Some(index) = self.subflows.index_of(carrier.subflow) {
                self.subflows.touch(index).restrain(now);
            }
        }
    }
}
