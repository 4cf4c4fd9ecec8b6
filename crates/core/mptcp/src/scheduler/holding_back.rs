//! When a subflow with room gets no block: a slower path is used only if that helps.
//!
//! There are two reasons to wait for faster subflows. First, they may complete all remaining bytes before the slower one completes this
//! block (ECF, Lim et al. 2017). Second, they may fill the rest of the window, or of the send buffer, before that. They would then stand
//! still until the slow block has arrived (BLEST, Ferlin et al. 2016).

use core::cmp::Ordering;

use super::{Backlog, Candidate, Demand};

/// Round trips that differ by less than this factor count as equal: queues change faster.
const UNLIKE: f64 = 2.0;

/// Whether `slow` gets nothing for now, in favour of faster subflows that will have room again without further events.
pub(super) fn waits(slow: &Candidate, candidates: &[Candidate], demand: &Demand) -> bool {
    let is_faster = |other: &&Candidate| {
        other.srtt < slow.srtt
            && other.id != slow.id
            && (other.in_flight > 0 || other.room > 0 || other.paced > 0)
    };
    let Some(faster) = Faster::of(candidates.iter().filter(is_faster)) else { return false };
    is_sooner(&faster, slow, demand) || would_block(&faster, slow, demand)
}

/// The faster subflows, taken together.
struct Faster {
    /// Shortest round trip, in seconds.
    round_trip: f64,
    /// Rate in bytes per second.
    rate: f64,
    /// Sum of the windows, bytes.
    window: f64,
    /// Bytes that these can take before they are full. They only wait for their turn by pacing.
    paced: f64,
    /// Whether the fastest doubles its window in each round trip.
    is_slow_start: bool,
}

impl Faster {
    fn of<'a>(candidates: impl Iterator<Item = &'a Candidate> + Clone) -> Option<Self> {
        let by_round_trip =
            |a: &&Candidate, b: &&Candidate| -> Ordering { (a.srtt, a.id).cmp(&(b.srtt, b.id)) };
        let fastest = candidates.clone().min_by(by_round_trip)?;
        Some(Self {
            round_trip: fastest.srtt.as_secs_f64(),
            rate: candidates.clone().map(|candidate| candidate.rate).sum(),
            window: candidates.clone().map(|candidate| f64::from(candidate.window)).sum(),
            paced: candidates.map(|candidate| candidate.paced as f64).sum(),
            is_slow_start: fastest.is_slow_start,
        })
    }

    /// Returns the seconds until this many more bytes are acknowledged.
    fn completion(&self, bytes: f64) -> f64 {
        let at_this_rate = self.round_trip + bytes / self.rate.max(1.0);
        if !self.is_slow_start {
            return at_this_rate;
        }
        // The sum after n round trips is 2^n - 1 windows.
        let doubling = self.round_trip * (1.0 + (1.0 + bytes / self.window.max(1.0)).log2());
        at_this_rate.min(doubling)
    }
}

/// Whether the faster subflows would complete all waiting bytes before `slow` completes one block.
fn is_sooner(faster: &Faster, slow: &Candidate, demand: &Demand) -> bool {
    match demand.backlog {
        Backlog::Bytes(bytes) if bytes as f64 <= faster.paced => true,
        Backlog::Bytes(bytes) => faster.completion(bytes as f64 - faster.paced) < slow.srtt.as_secs_f64(),
        Backlog::Endless => false,
    }
}

/// Whether the faster subflows could use up the window while a block is in flight on `slow`.
fn would_block(faster: &Faster, slow: &Candidate, demand: &Demand) -> bool {
    let trip = slow.srtt.as_secs_f64();
    trip >= UNLIKE * faster.round_trip && faster.rate * trip > demand.window_left as f64 - faster.paced
}
