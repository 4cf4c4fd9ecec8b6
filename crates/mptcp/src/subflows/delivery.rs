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
/// A rate is measured over two round trips, and never over less than this.
const SHORTEST_MEASURE: Duration = Duration::from_millis(100);
/// After so many of these times without a block nothing had been asked for.
const IDLE: u32 = 10;
/// A subflow that delivers less than one in so many parts of the most that it has delivered keeps no backup from being used.
const STARVED: f64 = 8.0;
/// One that was slow stays slow until it delivers more than one in so many parts of it.
const WEAK: f64 = 4.0;
/// What is left of the most that was delivered, after each measure: half in ten seconds or more.
const FADING: f64 = 63.0 / 64.0;
/// So much faster than it has been a subflow may say that it is: one in slow start doubles in each round trip.
const MOST_CREDIT: f64 = 4.0;
/// A subflow that loses more than one segment in so many for a while keeps no backup from being used: congestion control makes hardly
/// anything of such a path, and no queue drops as much for long.
const SEGMENTS_PER_LOSS: f64 = 25.0;
/// So many losses more than that are a while; and what counts of them in one round trip, as a queue that overflows drops many at once.
const MANY_LOSSES: f64 = 7.0;
const LOSSES_PER_ROUND: u64 = 3;
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
    /// Since when a rate is measured, and the bytes delivered since.
    measure: Option<(Instant, u64)>,
    /// What was measured last, in bytes per second.
    rate: Option<f64>,
    /// Most that was measured; it fades.
    best_rate: f64,
    losses: Losses,
}

/// The losses beyond those that are usual, by their cumulative sum (Page 1954).
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// Segments sent and lost until now.
    seen: [u64; 2],
    /// Since when a round trip is counted, and its losses.
    round: (Instant, u64),
    excess: f64,
    is_lossy: bool,
}

impl Losses {
    fn on_sent(&mut self, now: Instant, sent: u64, lost: u64, round_trip: Duration) {
        let [sent_before, lost_before] = core::mem::replace(&mut self.seen, [sent, lost]);
        let (since, in_round) = self.round;
        let (since, in_round) =
            if now.saturating_since(since) < round_trip { (since, in_round) } else { (now, 0) };
        let counted = (lost - lost_before).min(LOSSES_PER_ROUND - in_round);
        self.round = (since, in_round + counted);
        let excess = self.excess + counted as f64 - (sent - sent_before) as f64 / SEGMENTS_PER_LOSS;
        self.excess = excess.clamp(0.0, 2.0 * MANY_LOSSES);
        self.is_lossy = self.excess >= MANY_LOSSES || (self.is_lossy && self.excess > 0.0);
    }
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

    /// A block of so many bytes was delivered.
    pub(crate) fn measure(&mut self, now: Instant, bytes: u64) {
        let shortest = self.shortest_measure();
        let Some((since, before)) = self.measure else {
            self.measure = Some((now, 0));
            return;
        };
        let passed = now.saturating_since(since);
        if passed < shortest {
            self.measure = Some((since, before + bytes));
            return;
        }
        if passed < IDLE * shortest {
            let rate = (before + bytes) as f64 / passed.as_secs_f64();
            self.best_rate = rate.max(self.best_rate * FADING);
            self.rate = Some(rate);
        }
        self.measure = Some((now, 0));
    }

    /// What it delivers in so long at the rate that was measured last, in bytes.
    pub(crate) fn bytes_in(&self, time: Duration) -> Option<f64> {
        self.rate.map(|rate| rate * time.as_secs_f64())
    }

    fn shortest_measure(&self) -> Duration {
        (2 * self.round_trip.unwrap_or_default()).max(SHORTEST_MEASURE)
    }

    /// The rate of a measure that should be over and is not, although the subflow has been given enough: nothing comes.
    fn unfinished(&self, now: Instant) -> Option<f64> {
        let shortest = self.shortest_measure();
        let (since, bytes) = self.measure?;
        let passed = now.saturating_since(since);
        let is_busy = self.flight.is_some_and(|(_, since)| now.saturating_since(since) >= shortest);
        let is_due = (2 * shortest..IDLE * shortest).contains(&passed);
        (is_busy && is_due).then(|| bytes as f64 / passed.as_secs_f64())
    }

    /// Whether it has been far from what it can do. One that was slow has to prove that it is not any more.
    fn is_weak(&self) -> bool {
        self.rate.is_some_and(|rate| rate < self.best_rate / WEAK)
    }

    /// Whether it delivers hardly anything of what it once did.
    fn is_starved(&self, now: Instant) -> bool {
        self.unfinished(now).is_some_and(|rate| rate < self.best_rate / STARVED)
    }

    /// What it delivers, in bytes per second, if window and round trip say `claimed`. Who makes up acknowledgments makes the window as
    /// wide as he likes, and others must not wait for what he cannot carry.
    pub(crate) fn believed(&self, now: Instant, claimed: f64) -> f64 {
        let rate = self.unfinished(now).or(self.rate);
        rate.map_or(claimed, |rate| claimed.min(MOST_CREDIT * rate))
    }

    /// TCP has been given all below `given` and seen all below `acked` acknowledged.
    pub(crate) fn on_flight(&mut self, now: Instant, given: u64, acked: u64, min_rtt: Duration) {
        self.longest_flight = LONGEST_FLIGHT.max(2 * min_rtt);
        let is_through = self.flight.is_some_and(|(end, _)| end <= acked);
        if is_through {
            self.was_slow = self.is_flight_long(now) || (self.was_slow && self.is_weak());
        }
        if is_through || self.flight.is_none() {
            self.flight = (acked < given).then_some((given, now));
        }
    }

    /// TCP has sent so many segments with data by now, and of so many it has seen that they were lost, or arrived twice.
    pub(crate) fn on_harm(&mut self, now: Instant, sent: u64, harmed: u64, min_rtt: Duration) {
        self.losses.on_sent(now, sent, harmed, min_rtt);
    }

    fn is_flight_long(&self, now: Instant) -> bool {
        self.flight.is_some_and(|(_, since)| now.saturating_since(since) > self.longest_flight)
    }

    /// Whether TCP has waited for what it had in flight for so long that the subflow is not enough, whether the data is
    /// there or not.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        self.was_slow || self.losses.is_lossy || self.is_flight_long(now) || self.is_starved(now)
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

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(20);

    /// Rounds of so many segments each, of which `lost` says how many are lost.
    fn after_rounds(rounds: u64, segments: u64, lost: impl Fn(u64) -> u64) -> Losses {
        let (mut losses, mut total) = (Losses::default(), 0);
        for round in 1..=rounds {
            total += lost(round);
            losses.on_sent(Instant::from_millis(20 * round), segments * round, total, TRIP);
        }
        losses
    }

    #[test]
    fn a_path_that_loses_a_tenth_is_lossy_soon_and_one_that_loses_a_hundredth_never() {
        assert!(after_rounds(40, 5, |round| round % 2).is_lossy, "200 segments");
        assert!(!after_rounds(5000, 20, |round| u64::from(round % 5 == 0)).is_lossy);
    }

    #[test]
    fn a_queue_that_overflows_at_the_end_of_slow_start_is_no_lossy_path() {
        let burst = |round| if (10..12).contains(&round) { 200 } else { 0 };
        for rounds in 9..40 {
            assert!(!after_rounds(rounds, 100, burst).is_lossy, "after {rounds} round trips");
        }
    }

    #[test]
    fn a_path_is_lossy_until_it_has_made_up_for_all_that_was_too_much() {
        let loses_at_first = |round| if round <= 100 { round % 2 } else { 0 };
        assert!(after_rounds(110, 5, loses_at_first).is_lossy);
        assert!(!after_rounds(200, 5, loses_at_first).is_lossy);
    }
}
