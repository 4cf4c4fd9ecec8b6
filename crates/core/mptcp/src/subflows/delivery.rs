//! Deliveries of one subflow of a sealed connection, measured by authenticated Data-ACKs, which an attacker on the path cannot forge.
//!
//! An attacker on the path can forge TCP's own acknowledgments. They drive TCP; the assessment of a subflow uses the values here.

use plait_base::{Duration, Instant};

/// Denials after which a subflow is left, if there is another. A denial is a block that TCP has acknowledged and the peer has not.
const MAX_DENIALS: u32 = 8;
/// Denials with which a subflow begins after an earlier one over the same path was left for them.
const DENIALS_OF_SUSPECT: u32 = 4;
/// Denials from which on the subflow is suspect.
const MANY_DENIALS: u32 = 2;
/// Delivered blocks for which one denial is dropped.
const BLOCKS_PER_DENIAL: u32 = 128;
/// Limit for a flight. A regular subflow with a longer flight (that also exceeds twice its shortest round trip) does not prevent the use of
/// a backup.
const LONGEST_FLIGHT: Duration = Duration::from_millis(500);
/// Least duration of a rate measurement. The usual duration is two round trips.
const SHORTEST_MEASURE: Duration = Duration::from_millis(100);
/// After this many measurement times without a block, the subflow was idle.
const IDLE: u32 = 10;
/// A subflow that delivers less than this part (one in 8) of its best rate does not prevent the use of a backup.
const STARVED: f64 = 8.0;
/// A slow subflow stays slow until it delivers more than this part (one in 4) of its best rate.
const WEAK: f64 = 4.0;
/// The part of the best rate that remains after each measurement: half of it in ten seconds or more.
const FADING: f64 = 63.0 / 64.0;
/// The largest credible ratio of a claimed rate to the measured one: a subflow in slow start doubles in each round trip.
const MOST_CREDIT: f64 = 4.0;
/// A subflow that loses more than one segment in this many for a while does not prevent the use of a backup. Congestion control achieves
/// hardly anything on such a path, and no queue drops that many for long.
const SEGMENTS_PER_LOSS: f64 = 25.0;
/// The number of excess losses that makes it a while. It also limits the losses counted in one round trip, because a queue that overflows
/// drops many segments at once.
const MANY_LOSSES: f64 = 7.0;
const LOSSES_PER_ROUND: u64 = 3;
/// The weight of the newest round-trip sample is one in this many.
const SMOOTHING: u32 = 8;

/// Results of the blocks that one subflow was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    round_trip: Option<Duration>,
    denials: u32,
    /// Blocks delivered since the last denial was dropped.
    delivered: u32,
    /// The end of TCP's bytes at some moment, not acknowledged yet, and that moment.
    flight: Option<(u64, Instant)>,
    /// How long that may take before backups are used as well.
    longest_flight: Duration,
    /// Whether the previous flight took longer.
    was_slow: bool,
    /// Start of the rate measurement, and the bytes delivered since.
    measure: Option<(Instant, u64)>,
    /// The last measured rate, in bytes per second.
    rate: Option<f64>,
    /// The best measured rate, which fades.
    best_rate: f64,
    losses: Losses,
}

/// Losses beyond the usual rate, by their cumulative sum (Page 1954).
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// Segments sent and lost so far.
    seen: [u64; 2],
    /// Start of the current round trip, and its losses.
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
    /// Handles a block that the peer has acknowledged and that only this subflow has carried, since `since`. `was_first` if it was the
    /// first unacknowledged block.
    pub(crate) fn on_covered(&mut self, now: Instant, since: Instant, was_first: bool) {
        self.delivered += 1;
        if self.delivered >= BLOCKS_PER_DENIAL {
            self.delivered = 0;
            self.denials = self.denials.saturating_sub(1);
        }
        // A later block may have waited for earlier ones on other subflows.
        if was_first {
            let sample = now.saturating_since(since);
            let smoothed = self.round_trip.map_or(sample, |old| (old * (SMOOTHING - 1) + sample) / SMOOTHING);
            self.round_trip = Some(smoothed);
        }
    }

    /// Notes that a block of this many bytes was delivered.
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

    /// Returns the bytes that it delivers in this time at the last measured rate.
    pub(crate) fn bytes_in(&self, time: Duration) -> Option<f64> {
        self.rate.map(|rate| rate * time.as_secs_f64())
    }

    fn shortest_measure(&self) -> Duration {
        (2 * self.round_trip.unwrap_or_default()).max(SHORTEST_MEASURE)
    }

    /// Returns the rate of a measurement that should be complete and is not, although the subflow got enough: no acknowledgment comes.
    fn unfinished(&self, now: Instant) -> Option<f64> {
        let shortest = self.shortest_measure();
        let (since, bytes) = self.measure?;
        let passed = now.saturating_since(since);
        let is_busy = self.flight.is_some_and(|(_, since)| now.saturating_since(since) >= shortest);
        let is_due = (2 * shortest..IDLE * shortest).contains(&passed);
        (is_busy && is_due).then(|| bytes as f64 / passed.as_secs_f64())
    }

    /// Whether its rate has been far below its best. A slow subflow has to show that it is not slow any more.
    fn is_weak(&self) -> bool {
        self.rate.is_some_and(|rate| rate < self.best_rate / WEAK)
    }

    /// Whether it delivers only a small part of its best rate.
    fn is_starved(&self, now: Instant) -> bool {
        self.unfinished(now).is_some_and(|rate| rate < self.best_rate / STARVED)
    }

    /// Returns its delivery rate in bytes per second, given the rate `claimed` by window and round trip. An attacker that forges
    /// acknowledgments can widen the window at will. Other subflows must not wait for bytes that this one cannot carry.
    pub(crate) fn believed(&self, now: Instant, claimed: f64) -> f64 {
        let rate = self.unfinished(now).or(self.rate);
        rate.map_or(claimed, |rate| claimed.min(MOST_CREDIT * rate))
    }

    /// Notes that TCP has all bytes below `given` and has all below `acked` acknowledged.
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

    /// Notes the number of data segments that TCP has sent so far, and the number of these that were lost or arrived twice.
    pub(crate) fn on_harm(&mut self, now: Instant, sent: u64, harmed: u64, min_rtt: Duration) {
        self.losses.on_sent(now, sent, harmed, min_rtt);
    }

    fn is_flight_long(&self, now: Instant) -> bool {
        self.flight.is_some_and(|(_, since)| now.saturating_since(since) > self.longest_flight)
    }

    /// Whether TCP has waited so long for its bytes in flight that the subflow alone is not enough, whether the bytes have arrived or not.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        self.was_slow || self.losses.is_lossy || self.is_flight_long(now) || self.is_starved(now)
    }

    /// Notes a denial: TCP reports that a block was delivered, and the peer asks for it.
    pub(crate) fn on_denied(&mut self) {
        self.deny(1);
    }

    /// Notes that it stands still without its TCP noticing. That justifies a backup, and counts as one slow flight.
    pub(crate) fn on_late(&mut self) {
        self.deny(1);
        self.denials = self.denials.max(MANY_DENIALS);
    }

    /// Makes it suspect, because an earlier subflow over the same path was left for denials.
    pub(crate) fn suspect(&mut self) {
        self.denials = self.denials.max(DENIALS_OF_SUSPECT);
    }

    fn deny(&mut self, denials: u32) {
        self.denials += denials;
        self.delivered = 0;
    }

    /// Whether TCP's reports about this subflow are no longer credible.
    pub(crate) fn is_suspect(&self) -> bool {
        self.denials >= MANY_DENIALS
    }

    /// Whether it must be left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.denials >= MAX_DENIALS
    }

    /// Returns the effective round trip: at least the time that acknowledged blocks have taken. TCP's own is for bytes in queues.
    pub(crate) fn round_trip(&self, of_tcp: Duration) -> Duration {
        self.round_trip.map_or(of_tcp, |proved| proved.max(of_tcp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(20);

    /// Runs rounds of `segments` each; `lost` returns the number of losses in a round.
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
