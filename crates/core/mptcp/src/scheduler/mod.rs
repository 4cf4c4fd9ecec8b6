//! Selection of the subflow for the next block.
//!
//! A scheduler gets numbers, not subflows, and returns a verdict. The caller cuts and sends.

#[cfg(test)]
mod example;
mod holding_back;
mod kind;
mod lowest_rtt;
mod round_robin;

use arrayvec::ArrayVec;
use plait_base::{Duration, SubflowId};

pub use self::kind::Scheduler;
use self::lowest_rtt::LowestRtt;
use self::round_robin::{AnyRoom, RoundRobin};

/// The rule of a scheduler.
pub(crate) trait Schedule {
    /// Returns the [`Candidate::index`] of the subflow for the next block; `None` to wait until a subflow has room. Called for each block,
    /// with at least one candidate.
    fn choose(&self, candidates: &[Candidate], demand: &Demand) -> Option<usize>;
}

/// A subflow that may get new data, with or without room at the moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) id: SubflowId,
    /// Smoothed round-trip time, queues included.
    pub(crate) srtt: Duration,
    /// Bytes that can leave now.
    pub(crate) room: usize,
    /// Bytes that its window allows and that wait for their turn by pacing.
    pub(crate) paced: usize,
    /// Congestion window, bytes.
    pub(crate) window: u32,
    /// Bytes in flight.
    pub(crate) in_flight: u32,
    /// Its delivery rate in bytes per second, as far as the estimate is reliable.
    pub(crate) rate: f64,
    /// Whether its window doubles in each round trip.
    pub(crate) is_slow_start: bool,
}

/// Largest number of subflows compared for one block. Beyond it, the subflows opened last wait until one of the others is gone.
pub(crate) const MAX_CANDIDATES: usize = 32;

/// The compared subflows, without an allocation per block.
pub(crate) type Candidates = ArrayVec<Candidate, MAX_CANDIDATES>;

/// Bytes that wait for a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backlog {
    /// This many bytes, as far as is known.
    Bytes(u64),
    /// The writer fills all available room.
    Endless,
}

/// The state of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Demand {
    /// Bytes that wait for a subflow.
    pub(crate) backlog: Backlog,
    /// Bytes that the peer's window and the send buffer allow beyond the numbered ones.
    pub(crate) window_left: u64,
    /// The subflow selected before.
    pub(crate) last: Option<SubflowId>,
}

/// Returns the subflow for the next block, as an index into the connection's; `None` to wait.
pub(crate) fn choose(scheduler: Scheduler, candidates: &[Candidate], demand: &Demand) -> Option<usize> {
    match scheduler {
        Scheduler::LowestRtt => LowestRtt.choose(candidates, demand),
        Scheduler::RoundRobin => RoundRobin.choose(candidates, demand),
        // Redundant: any subflow may cut a new block, because all of them will send it. Dispersed: the room of each subflow is limited
        // before, so no subflow could take all that waits.
        Scheduler::Redundant | Scheduler::Dispersed { .. } => AnyRoom.choose(candidates, demand),
    }
}
