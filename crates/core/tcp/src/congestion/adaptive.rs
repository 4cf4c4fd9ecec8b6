//! Choice between two controllers for each path: CUBIC if losses come with a queue, BBR if they come without one.
//!
//! CUBIC takes each loss for a full queue. If segments are lost by chance, it leaves most of the path unused. BBR does not. But together
//! with CUBIC it takes more than half of a path with a short queue and less than half of one with a long queue. A connection therefore
//! begins with CUBIC, and each loss is judged. The round trip of segments that left at the same time shows the length of the queue then. A
//! full queue drops while it is full. Yielding would not have avoided a loss without a queue.
//!
//! Verdicts are counted, at most one for each round trip. A loss without a queue counts [`CHANCE`] times as much as one with a queue. A
//! full queue does not drop while it is empty, but if the delay varies by itself, a chance loss may meet a long one. Losses without a queue
//! bring BBR. Many losses with a queue, or a time of [`CALM`] without the former, bring CUBIC back. A router that marks packets (RFC 3168)
//! reports congestion itself: then CUBIC stays.

use arrayvec::ArrayVec;
use plait_base::{Duration, Instant};

use super::bbr::PathAck;

/// Score of a loss without a queue; one with a queue subtracts one. A score of this value brings BBR, zero brings CUBIC back.
const CHANCE: u8 = 2;
/// Largest score: this many losses with a queue in a row bring CUBIC back.
const MOST: u8 = 10;
/// Time without a chance loss after which CUBIC comes back: CUBIC fills a path that loses so little.
const CALM: Duration = Duration::from_secs(20);
/// A delay up to this part of the shortest round trip, and up to [`MOST_RIPPLE`], does not count as a queue.
const RIPPLE_DIVISOR: u32 = 8;
const MOST_RIPPLE: Duration = Duration::from_millis(5);
/// Nor does a delay up to two thirds of the longest recent one, and up to half of the shortest round trip: if the delay varies by itself, a
/// full queue adds to it.
const VARIATION_THIRDS: u32 = 2;
const MOST_VARIATION_DIVISOR: u32 = 2;
/// The shortest round trip and the longest delay are those of the last one to two spans of this length.
const SPAN: Duration = Duration::from_secs(15);

/// Number of remembered round trips for comparison with losses, and their number per round trip.
const SAMPLES: usize = 16;
const SAMPLES_PER_ROUND: u32 = 8;

/// Segments that left within this part of a round trip of a loss are compared with it.
const BESIDE_DIVISOR: u32 = 4;

/// Several round trips: when the first of them began, and how long the longest took.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    left: Instant,
    took: Duration,
}

/// The controller that a path should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The present one.
    Stay,
    /// CUBIC.
    Cubic,
    /// BBR.
    Bbr,
}

/// Extremes of one span.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    shortest: Duration,
    longest: Duration,
}

/// The state of the choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    seed: u64,
    has_sack: bool,
    /// This span and the one before it.
    spans: [Option<Extremes>; 2],
    span_began: Instant,
    /// The last round trips, the newest last.
    samples: ArrayVec<RoundTrip, SAMPLES>,
    /// When the first segment lost since the last verdict had left.
    lost_left: Option<Instant>,
    /// The next verdict is about segments that leave after this many bytes are delivered.
    judged_beyond: u64,
    score: u8,
    /// When the last loss without a queue was seen.
    chance_at: Instant,
    is_bbr: bool,
    /// Whether the path marks packets.
    is_marked: bool,
}

impl Choice {
    pub(super) fn new() -> Self {
        Self {
            seed: 0,
            has_sack: true,
            spans: [None; 2],
            span_began: Instant::ZERO,
            samples: ArrayVec::new(),
            lost_left: None,
            judged_beyond: 0,
            score: 0,
            chance_at: Instant::ZERO,
            is_bbr: false,
            is_marked: false,
        }
    }

    pub(super) fn on_established(&mut self, seed: u64, has_sack: bool) {
        self.seed = seed;
        self.has_sack = has_sack;
    }

    /// Returns the additional input of BBR.
    pub(super) fn for_bbr(&self) -> (u64, bool) {
        (self.seed, self.has_sack)
    }

    /// Notes that the path marks packets where it would drop them.
    pub(super) fn on_mark(&mut self) -> Verdict {
        self.is_marked = true;
        self.score = 0;
        self.verdict(self.chance_at)
    }

    /// Notes the loss of a segment that had left at `left`.
    pub(super) fn on_lost(&mut self, left: Instant) {
        self.lost_left = Some(self.lost_left.map_or(left, |first| first.min(left)));
    }

    pub(super) fn on_ack(&mut self, ack: &PathAck) -> Verdict {
        self.take_round_trip(ack);
        if let Some(left) = self.lost_left.take()
            && ack.sample.total >= self.judged_beyond
        {
            self.judge(ack, left);
        }
        self.verdict(ack.now)
    }

    fn take_round_trip(&mut self, ack: &PathAck) {
        if ack.now.saturating_since(self.span_began) > SPAN {
            self.spans = [self.spans[1], None];
            self.span_began = ack.now;
        }
        let Some(round_trip) = ack.round_trip else { return };
        let left = ack.now - round_trip;
        let is_news = |last: &RoundTrip| left.saturating_since(last.left) > round_trip / SAMPLES_PER_ROUND;
        match self.samples.last_mut() {
            Some(last) if !is_news(last) => last.took = last.took.max(round_trip),
            Some(_) | None => {
                if self.samples.is_full() {
                    self.samples.remove(0);
                }
                self.samples.push(RoundTrip { left, took: round_trip });
            }
        }
        let Extremes { shortest, longest } =
            self.spans[1].unwrap_or(Extremes { shortest: round_trip, longest: round_trip });
        self.spans[1] =
            Some(Extremes { shortest: shortest.min(round_trip), longest: longest.max(round_trip) });
    }

    fn extremes(&self) -> Option<Extremes> {
        let [before, now] = self.spans;
        match (before, now) {
            (Some(a), Some(b)) => {
                Some(Extremes { shortest: a.shortest.min(b.shortest), longest: a.longest.max(b.longest) })
            }
            (one, other) => one.or(other),
        }
    }

    /// Returns the round trip of segments that left at about this time, if it is known. The longest counts: a short queue fills and drains
    /// within a burst.
    fn beside(&self, left: Instant) -> Option<Duration> {
        let apart =
            |sample: &RoundTrip| sample.left.saturating_since(left).max(left.saturating_since(sample.left));
        let nearest = self.samples.iter().min_by_key(|sample| apart(sample))?;
        if apart(nearest) > nearest.took / 2 {
            return None;
        }
        let is_beside =
            |sample: &&RoundTrip| apart(sample) <= apart(nearest).max(nearest.took / BESIDE_DIVISOR);
        self.samples.iter().filter(is_beside).map(|sample| sample.took).max()
    }

    /// Judges the loss of a segment that had left at `left`.
    fn judge(&mut self, ack: &PathAck, left: Instant) {
        let (Some(Extremes { shortest, longest }), Some(took)) = (self.extremes(), self.beside(left)) else {
            return;
        };
        // The next loss counts a round trip later.
        self.judged_beyond = ack.sample.total.saturating_add(ack.in_flight);
        let variation = longest.saturating_sub(shortest) / 3 * VARIATION_THIRDS;
        let variation = variation.min(shortest / MOST_VARIATION_DIVISOR);
        let ripple = (shortest / RIPPLE_DIVISOR).min(MOST_RIPPLE);
        if took.saturating_sub(shortest) <= variation.max(ripple) {
            self.score = (self.score + CHANCE).min(MOST);
            self.chance_at = ack.now;
        } else {
            self.score = self.score.saturating_sub(1);
        }
    }

    fn verdict(&mut self, now: Instant) -> Verdict {
        if self.is_bbr {
            let is_calm = now.saturating_since(self.chance_at) > CALM;
            if self.score == 0 || is_calm {
                self.is_bbr = false;
                self.score = 0;
                return Verdict::Cubic;
            }
        } else if self.score >= CHANCE && !self.is_marked {
            self.is_bbr = true;
            return Verdict::Bbr;
        }
        Verdict::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery_rate::{Departure, Sample};

    const SEGMENT: u64 = 1000;

    /// Acknowledgments each millisecond, of what left `delay` milliseconds before.
    struct Acks {
        choice: Choice,
        now: Instant,
        total: u64,
    }

    impl Acks {
        fn new() -> Self {
            Self { choice: Choice::new(), now: Instant::from_millis(1000), total: 0 }
        }

        /// What the last of them brings.
        fn after(&mut self, delays: impl IntoIterator<Item = u64>) -> Verdict {
            let mut last = Verdict::Stay;
            for delay in delays {
                self.now += Duration::from_millis(1);
                self.total += SEGMENT;
                let departure = Departure::default();
                let sample = Sample { rate: None, delivered: 0, prior: 0, total: self.total, departure };
                last = self.choice.on_ack(&PathAck {
                    now: self.now,
                    sample,
                    bytes: SEGMENT,
                    lost: 0,
                    in_flight: 20 * SEGMENT,
                    round_trip: Some(Duration::from_millis(delay)),
                    smoothed: None,
                    window_limited: true,
                });
            }
            last
        }

        /// Something is lost that left so many milliseconds ago; an acknowledgment of what left `delay` before tells of it.
        fn loss(&mut self, ago: u64, delay: u64) -> Verdict {
            self.choice.on_lost(self.now - Duration::from_millis(ago));
            self.after([delay])
        }
    }

    #[test]
    fn a_loss_at_the_height_of_a_queue_changes_nothing_and_one_without_a_queue_brings_bbr() {
        let mut acks = Acks::new();
        acks.after(20..40);
        assert_eq!(acks.loss(40, 40), Verdict::Stay);
        let mut acks = Acks::new();
        acks.after((20..40).chain((20..40).rev()).chain([20; 40]));
        assert_eq!(acks.loss(20, 20), Verdict::Bbr);
    }

    #[test]
    fn a_loss_with_nothing_beside_it_says_nothing() {
        let mut acks = Acks::new();
        acks.after([20; 40]);
        assert_eq!(acks.loss(500, 20), Verdict::Stay);
    }

    #[test]
    fn losses_in_a_full_queue_bring_cubic_back() {
        let mut acks = Acks::new();
        acks.after([20; 40]);
        assert_eq!(acks.loss(20, 20), Verdict::Bbr);
        let mut verdicts = Vec::new();
        for _ in 0..2 {
            acks.after([60; 80]);
            verdicts.push(acks.loss(60, 60));
        }
        assert_eq!(verdicts, [Verdict::Stay, Verdict::Cubic]);
    }

    #[test]
    fn one_round_trip_is_judged_once() {
        let mut acks = Acks::new();
        acks.after(20..60);
        acks.after([20; 40]);
        acks.loss(20, 20);
        let score = acks.choice.score;
        acks.loss(20, 20);
        assert_eq!(acks.choice.score, score);
    }

    #[test]
    fn a_calm_time_brings_cubic_back_and_a_path_that_marks_packets_keeps_it() {
        let mut acks = Acks::new();
        acks.after([20; 40]);
        assert_eq!(acks.loss(20, 20), Verdict::Bbr);
        acks.now += CALM;
        assert_eq!(acks.after([20]), Verdict::Cubic);
        assert_eq!(acks.choice.on_mark(), Verdict::Stay);
        acks.after([20; 40]);
        assert_eq!(acks.loss(20, 20), Verdict::Stay);
    }
}
