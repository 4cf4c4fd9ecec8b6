//! Which subflow the next block goes to.
//!
//! A scheduler sees figures, not subflows, and gives a verdict; cutting and sending is done elsewhere.

mod holding_back;
mod lowest_rtt;
mod round_robin;

use arrayvec::ArrayVec;
use plait_base::{Duration, SubflowId};

use crate::Scheduler;
use crate::send::Backlog;

/// A subflow that may be given new data, with or without room at the moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) id: SubflowId,
    /// Smoothed round-trip time, queues included.
    pub(crate) srtt: Duration,
    /// Bytes that can leave now.
    pub(crate) room: usize,
    /// Bytes that its window takes, and that wait for their turn by pacing.
    pub(crate) paced: usize,
    /// Congestion window, bytes.
    pub(crate) window: u32,
    /// Bytes in flight.
    pub(crate) in_flight: u32,
    /// What it delivers, in bytes per second: as far as that can be believed.
    pub(crate) rate: f64,
    /// Its window doubles in each round trip.
    pub(crate) is_slow_start: bool,
}

/// Subflows that are weighed for one block. Of more than these the last to be opened wait until one of the others is gone.
pub(crate) const MAX_CANDIDATES: usize = 32;

/// The subflows that are weighed, without an allocation per block.
pub(crate) type Candidates = ArrayVec<Candidate, MAX_CANDIDATES>;

/// What the stream looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Demand {
    /// What waits for a subflow.
    pub(crate) backlog: Backlog,
    /// Bytes beyond those that are numbered which the peer's window and the send buffer take.
    pub(crate) window_left: u64,
    /// The subflow chosen before.
    pub(crate) last: Option<SubflowId>,
}

/// The subflow for the next block, as an index into the connection's; `None` to wait.
pub(crate) fn choose(scheduler: Scheduler, candidates: &[Candidate], demand: &Demand) -> Option<usize> {
    match scheduler {
        Scheduler::LowestRtt => lowest_rtt::choose(candidates, demand),
        Scheduler::RoundRobin => {
            let helps = |candidate: &&Candidate| !holding_back::waits(candidate, candidates, demand);
            let those: Candidates = candidates.iter().filter(helps).copied().collect();
            round_robin::choose(&those, demand)
        }
        // Redundant: who cuts a new block does not matter, all of them will send it.
        // Dispersed: what each has room for is limited before, and nobody could take all that waits.
        Scheduler::Redundant | Scheduler::Dispersed { .. } => round_robin::choose(candidates, demand),
    }
}
