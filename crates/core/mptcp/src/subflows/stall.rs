//! Missing progress of a subflow, and the limit for one that has held up the whole stream.

use plait_base::{Duration, Instant};
use plait_tcp::Stats;

/// Assumed round-trip time of a subflow without a measurement.
pub(crate) const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// Round trips without progress after which others take over.
pub(crate) const STALL_ROUND_TRIPS: u32 = 3;
/// Least such time: delayed ACKs and schedulers need it.
const MIN_STALL: Duration = Duration::from_millis(150);

/// A subflow without progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) since: Instant,
    /// The offset that the peer had acknowledged.
    pub(crate) acked: u64,
    /// The end of the bytes that it had.
    pub(crate) until: u64,
}

/// Limit of bytes in flight for a subflow for which the whole stream has stood still: half of its window, doubled after each round trip
/// since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restraint {
    pub(crate) bytes: u32,
    pub(crate) since: Instant,
}

impl Restraint {
    /// Returns the largest number of bytes in flight.
    pub(super) fn limit(self, now: Instant, round_trip: Duration) -> u64 {
        let passed = now.saturating_since(self.since).as_micros();
        let round_trips = (passed / round_trip.as_micros().max(1)).min(32) as u32;
        u64::from(self.bytes) << round_trips
    }
}

/// Returns the longest normal transfer time of a block.
pub(super) fn longest_trip_of(round_trip: Duration, stats: &Stats) -> Duration {
    (STALL_ROUND_TRIPS * round_trip + 4 * stats.rttvar).max(MIN_STALL)
}
