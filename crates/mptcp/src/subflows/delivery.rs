//! What one subflow of a sealed connection has delivered, by authenticated Data-ACKs: nobody else on its path can say it.
//!
//! TCP's own acknowledgments are whatever somebody on the path wants them to be. They move TCP; what a subflow is worth
//! follows from here.

use plait_base::{Duration, Instant};

/// Blocks that TCP has acknowledged and the peer has not after which a subflow is left, if there is another.
const MAX_DENIALS: u32 = 8;
/// A subflow over a path that was left for this begins with so many.
const DENIALS_OF_SUSPECT: u32 = 4;
/// Of so many it is no longer believed that they were an accident.
const MANY_DENIALS: u32 = 2;
/// One is forgotten for each so many blocks that were delivered.
const BLOCKS_PER_DENIAL: u32 = 128;
/// A regular subflow whose flight takes longer, and twice the shortest of its round trips, keeps no backup from being used.
const LONGEST_FLIGHT: Duration = Duration::from_millis(500);
/// Weight of the newest sample of the round trip is one in so many.
const SMOOTHING: u32 = 8;

/// What became of the blocks that one subflow was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    round_trip: Option<Duration>,
    denials: u32,
    /// Blocks delivered since a denial was forgotten last.
    delivered: u32,
    /// What TCP had been given at some moment, and has not seen acknowledged.
    flight: Option<(u64, Instant)>,
    /// How long that may take before backups are used too.
    longest_flight: Duration,
    /// The flight before it took longer.
    was_slow: bool,
}

impl Delivery {
    /// The peer has acknowledged a block that went over this subflow alone and was given to it at `since`. `was_first` if it
    /// was the first without an acknowledgment.
    pub(crate) fn on_covered(&mut self, now: Instant, since: Instant, was_first: bool) {
        self.delivered += 1;
        if self.delivered >= BLOCKS_PER_DENIAL {
            self.delivered = 0;
            self.denials = self.denials.saturating_sub(1);
        }
        // One behind the first may have waited for those before it, which others carried.
        if was_first {
            let sample = now.saturating_since(since);
            let smoothed = self.round_trip.map_or(sample, |old| (old * (SMOOTHING - 1) + sample) / SMOOTHING);
            self.round_trip = Some(smoothed);
        }
    }

    /// TCP has been given all below `given` and seen all below `acked` acknowledged.
    pub(crate) fn on_flight(&mut self, now: Instant, given: u64, acked: u64, min_rtt: Duration) {
        self.longest_flight = LONGEST_FLIGHT.max(2 * min_rtt);
        let is_through = self.flight.is_some_and(|(end, _)| end <= acked);
        if is_through {
            self.was_slow = self.is_flight_long(now);
        }
        if is_through || self.flight.is_none() {
            self.flight = (acked < given).then_some((given, now));
        }
    }

    fn is_flight_long(&self, now: Instant) -> bool {
        self.flight.is_some_and(|(_, since)| now.saturating_since(since) > self.longest_flight)
    }

    /// Whether TCP has waited for what it had in flight for so long that the subflow is not enough, whether the data is
    /// there or not.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        self.was_slow || self.is_flight_long(now)
    }

    /// TCP says that a block was delivered, and the peer asks for it.
    pub(crate) fn on_denied(&mut self) {
        self.deny(1);
    }

    /// It stands still, and its TCP has not noticed. That is reason enough to use a backup beside it, and counts as one.
    pub(crate) fn on_late(&mut self) {
        self.deny(1);
        self.denials = self.denials.max(MANY_DENIALS);
    }

    /// An earlier subflow over the same path was left for what became of its blocks.
    pub(crate) fn suspect(&mut self) {
        self.denials = self.denials.max(DENIALS_OF_SUSPECT);
    }

    fn deny(&mut self, denials: u32) {
        self.denials += denials;
        self.delivered = 0;
    }

    /// Whether what TCP says of this subflow is not believed any more.
    pub(crate) fn is_suspect(&self) -> bool {
        self.denials >= MANY_DENIALS
    }

    /// Whether it is to be left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.denials >= MAX_DENIALS
    }

    /// The round trip to count with: it is at least what blocks have taken that were acknowledged. TCP's is for what waits
    /// in queues.
    pub(crate) fn round_trip(&self, of_tcp: Duration) -> Duration {
        self.round_trip.map_or(of_tcp, |proved| proved.max(of_tcp))
    }
}
