//! Slow start with HyStart++ (RFC 9406). It ends when the delay grows, before the queue overflows, or when the acknowledgments of a round
//! leave no pause.
//!
//! The second condition is the train of acknowledgments of the first HyStart (Ha and Rhee, "Taming the elephants: new TCP slow start",
//! 2011). RFC 9406 omits it because offloads and aggregated acknowledgments break it. Here segments leave at twice the rate of the window.
//! A path with room to spare therefore answers each round in half a round trip and is then silent. A broken train ends nothing.
//!
//! Rounds are counted in acknowledged bytes: a round is over when as much was acknowledged as was in flight
//! at its start.

use plait_base::{Duration, Instant};

use super::Ack;

/// Delay growth that counts as a queue is an eighth of the round trip, within these bounds (section 4.3).
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
const RTT_DIVISOR: u32 = 8;
/// Samples of a round before its minimum counts.
const SAMPLES: u32 = 8;
/// Conservative slow start grows by a quarter, and lasts five rounds.
const CONSERVATIVE_DIVISOR: u32 = 4;
const CONSERVATIVE_ROUNDS: u8 = 5;
/// Largest growth per ACK, in segments. It keeps bursts of one ACK small without pacing. One ACK acknowledges a super-segment, so the bound
/// is its 46 segments and not the eight of a stack that sends them singly.
const LIMIT_SEGMENTS: u32 = 46;
/// A pause between acknowledgments that ends a train, and what a train may lack of a round trip, in parts of the minimum RTT.
const TRAIN_DIVISOR: u32 = 4;
/// Below this a pause is shorter than what timers and offloads bunch.
const TRAIN_MIN_RTT: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    phase: Phase,
    round: Round,
    last_round_min: Option<Duration>,
    /// Least that was in flight in the round before.
    last_round_flight: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    bytes_left: u32,
    min_rtt: Option<Duration>,
    samples: u32,
    /// Least that was in flight, in bytes.
    flight: u32,
    /// The first and the last acknowledgment, as long as none came late after another.
    train: Option<[Instant; 2]>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
enum Phase {
    #[default]
    Exponential,
    Conservative {
        baseline: Duration,
        /// Bytes that were in flight where it began.
        flight: u32,
        rounds: u8,
    },
    Over,
}

/// Bytes that an acknowledgment adds to a window that doubles.
pub(super) fn most_growth(ack: &Ack, mss: u32) -> u32 {
    ack.bytes.min(LIMIT_SEGMENTS.saturating_mul(mss))
}

impl SlowStart {
    /// Slow start after a loss: the threshold is known, delay need not be watched.
    pub(super) fn finished() -> Self {
        Self { phase: Phase::Over, ..Self::default() }
    }

    /// Idle time has passed: delays from before say nothing about those to come.
    pub(super) fn restart(&mut self) {
        if self.phase != Phase::Over {
            *self = Self::default();
        }
    }

    /// Whether delay has ended it.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.last_round_min.is_some()
    }

    /// Bytes to add to the window.
    pub(super) fn on_ack(&mut self, ack: &Ack, mss: u32) -> u32 {
        let growth = most_growth(ack, mss);
        if self.phase == Phase::Over {
            return growth;
        }
        if self.round.bytes_left == 0 {
            self.next_round(ack);
        }
        self.round.bytes_left = self.round.bytes_left.saturating_sub(ack.bytes);
        self.round.flight = self.round.flight.min(ack.in_flight);
        if let Some(rtt) = ack.latest_rtt {
            // One acknowledgment of a train stands for those that a receiver without offload would have sent.
            self.round.samples += (ack.bytes / (2 * mss.max(1))).max(1);
            self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
        self.watch_train(ack);
        self.watch_delay(ack.in_flight);
        match self.phase {
            Phase::Exponential | Phase::Over => growth,
            Phase::Conservative { .. } => growth / CONSERVATIVE_DIVISOR,
        }
    }

    fn next_round(&mut self, ack: &Ack) {
        if let Phase::Conservative { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds >= CONSERVATIVE_ROUNDS {
                self.phase = Phase::Over;
            }
        }
        self.last_round_min = self.round.min_rtt.or(self.last_round_min);
        self.last_round_flight = self.round.flight;
        let (bytes_left, train) = (ack.in_flight, Some([ack.now; 2]));
        self.round = Round { bytes_left, flight: ack.in_flight, train, ..Round::default() };
    }

    /// Detects a full path by acknowledgments that fill the round trip, before any delay shows it.
    fn watch_train(&mut self, ack: &Ack) {
        let (Some([first, last]), Some(min_rtt)) = (self.round.train, ack.min_rtt) else { return };
        let pause = min_rtt / TRAIN_DIVISOR;
        if ack.now.saturating_since(last) > pause {
            self.round.train = None;
            return;
        }
        self.round.train = Some([first, ack.now]);
        let is_full = min_rtt >= TRAIN_MIN_RTT && ack.now.saturating_since(first) >= min_rtt - pause;
        if is_full && self.phase == Phase::Exponential {
            let baseline = self.round.min_rtt.unwrap_or(min_rtt);
            self.phase = Phase::Conservative { baseline, flight: ack.in_flight, rounds: 0 };
        }
    }

    fn watch_delay(&mut self, in_flight: u32) {
        let (Some(now), Some(before)) = (self.round.min_rtt, self.last_round_min) else { return };
        if self.round.samples < SAMPLES {
            return;
        }
        match self.phase {
            Phase::Exponential => {
                let threshold = (before / RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD);
                if now >= before + threshold {
                    self.phase = Phase::Conservative { baseline: now, flight: in_flight, rounds: 0 };
                }
            }
            // The delay fell again, and not because less was in flight: it was not caused by our queue.
            Phase::Conservative { baseline, flight, .. }
                if now < baseline && flight <= self.round.flight.min(self.last_round_flight) =>
            {
                self.phase = Phase::Exponential;
            }
            Phase::Conservative { .. } | Phase::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Controller};
    use super::*;

    const MSS: u16 = 1000;

    /// An acknowledgment of `bytes` at `now`, after `rtt`, on a path that has never been faster.
    fn ack(now: Instant, rtt: Duration, bytes: u32, in_flight: u32) -> Ack {
        let rtt = Some(rtt);
        Ack { now, bytes, in_flight, srtt: rtt, min_rtt: rtt, latest_rtt: rtt, window_limited: true }
    }

    fn round(controller: &mut Controller, rtt_ms: u64) {
        let window = controller.window();
        for _ in 0..window / u32::from(MSS) {
            let rtt = Duration::from_millis(rtt_ms);
            controller.on_ack(&ack(Instant::ZERO, rtt, u32::from(MSS), window));
        }
    }

    #[test]
    fn growing_delay_ends_slow_start_without_a_loss() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for rtt in [40, 40, 40, 50, 60, 70, 80, 90, 100, 110] {
            round(&mut controller, rtt);
        }
        assert!(!controller.is_slow_start());
        assert!(controller.window() < 320_000, "{}", controller.window());
    }

    #[test]
    fn growing_delay_is_seen_where_one_acknowledgment_answers_a_whole_train() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for rtt_ms in [40, 40, 40, 50, 60, 70, 80, 90, 100, 110] {
            let window = controller.window();
            let trains = (window / (46 * u32::from(MSS))).max(1);
            for _ in 0..trains {
                let rtt = Duration::from_millis(rtt_ms);
                controller.on_ack(&ack(Instant::ZERO, rtt, window / trains, window));
            }
        }
        assert!(!controller.is_slow_start());
        assert!(controller.window() < 320_000, "{}", controller.window());
    }

    #[test]
    fn steady_delay_does_not() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for _ in 0..9 {
            round(&mut controller, 40);
        }
        assert!(controller.is_slow_start());
        assert_eq!(controller.window(), 5_120_000);
    }

    #[test]
    fn a_delay_that_passes_is_forgiven() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for rtt in [40, 40, 60, 40, 40, 40, 40, 40, 40] {
            round(&mut controller, rtt);
        }
        assert!(controller.is_slow_start());
    }

    #[test]
    fn after_idle_time_the_window_doubles_up_to_where_delay_has_ended_slow_start() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for rtt in [40, 40, 40, 50, 60, 70, 80, 90, 100, 110] {
            round(&mut controller, rtt);
        }
        assert!(!controller.is_slow_start());
        let threshold = controller.window();
        controller.on_idle(Instant::ZERO);
        assert_eq!(controller.window(), 10_000);
        for _ in 0..6 {
            round(&mut controller, 60);
        }
        assert!(controller.window() >= threshold / 4 * 3, "{} of {threshold}", controller.window());
    }

    #[test]
    fn a_window_that_idle_time_took_comes_back_by_doubling_though_the_delay_is_another() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for _ in 0..6 {
            round(&mut controller, 40);
        }
        assert_eq!(controller.window(), 640_000);
        controller.on_idle(Instant::ZERO);
        assert_eq!(controller.window(), 10_000);
        // Acknowledgments wait in a queue of others on their way back.
        for rtt in [60, 80, 100, 120, 140, 160] {
            round(&mut controller, rtt);
        }
        assert!(controller.window() >= 480_000, "{}", controller.window());
        // Beyond what the path has carried the delay counts again.
        for rtt in [160, 200, 240, 280, 320, 360, 400] {
            round(&mut controller, rtt);
        }
        assert!(!controller.is_slow_start());
        assert!(controller.window() < 8 * 640_000, "{}", controller.window());
    }

    /// The same with `in_flight` bytes in place of a full window.
    fn round_of(controller: &mut Controller, rtt_ms: u64, in_flight: u32) {
        let rtt = Duration::from_millis(rtt_ms);
        for _ in 0..in_flight / u32::from(MSS) {
            controller.on_ack(&ack(Instant::ZERO, rtt, u32::from(MSS), in_flight));
        }
    }

    #[test]
    fn a_delay_that_falls_because_less_was_in_flight_was_a_queue_of_ours() {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 10_000);
        for rtt in [40, 40, 40, 60] {
            round(&mut controller, rtt);
        }
        // Its owner has little to send for a while, again and again.
        for _ in 0..4 {
            round_of(&mut controller, 40, 20_000);
            let window = controller.window();
            round_of(&mut controller, 40, window);
            let window = controller.window();
            round_of(&mut controller, 60, window);
        }
        assert!(!controller.is_slow_start());
    }

    /// Six rounds of 40 ms whose acknowledgments come over `spread_ms` of it.
    fn six_rounds_spread_over(spread_ms: u64) -> u32 {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, 20_000);
        let mut begin = Instant::ZERO;
        for _ in 0..6 {
            let window = controller.window();
            let acks = window / u32::from(MSS);
            let rtt = Duration::from_millis(40);
            for number in 0..acks {
                controller.on_ack(&ack(
                    begin + Duration::from_micros(spread_ms * 1000 * u64::from(number) / u64::from(acks)),
                    rtt,
                    u32::from(MSS),
                    window,
                ));
            }
            begin += Duration::from_millis(40);
        }
        controller.window()
    }

    #[test]
    fn acknowledgments_without_a_pause_end_doubling_before_any_delay_does() {
        assert_eq!(six_rounds_spread_over(20), 64 * 20_000);
        assert_eq!(six_rounds_spread_over(28), 64 * 20_000);
        assert!(six_rounds_spread_over(39) < 24 * 20_000, "{}", six_rounds_spread_over(39));
    }
}
