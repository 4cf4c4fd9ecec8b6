//! Rate and window, derived from the model (section 5.6).

use plait_base::Duration;

use super::probe_bw::Phase;
use super::{Bbr, MIN_PIPE_SEGMENTS, PathAck, State, UNBOUNDED, percent};
use crate::pace::NANOS_PER_SECOND;

/// Gains of the rate, in percent: 4 ln 2 is the least at which the rate doubles in each round trip.
const STARTUP_GAIN: u64 = 277;
const DRAIN_GAIN: u64 = 50;
const DOWN_GAIN: u64 = 90;
const UP_GAIN: u64 = 125;
/// Gains of the window, in percent.
const WINDOW_GAIN: u64 = 200;
const UP_WINDOW_GAIN: u64 = 225;
const PROBE_RTT_WINDOW_GAIN: u64 = 50;
/// The rate is lower than the path's by this percentage, so that queues drain.
const MARGIN_PERCENT: u64 = 1;
/// Quanta that are on their way in the two hosts (section 5.5.8.1).
const OFFLOAD_QUANTA: u64 = 3;
/// A quantum is the volume of the rate in this time, within these bounds: see [`crate::pace`], which applies it.
const QUANTA_PER_SECOND: u64 = 1000;
const MIN_QUANTUM_SEGMENTS: u64 = 2;
const MAX_QUANTUM: u64 = 1 << 16;
/// Segments more in flight while a probe asks for more.
const PROBE_SEGMENTS: u64 = 2;
/// Assumed round trip for the first rate, if none was measured.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(1);

impl Bbr {
    fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => DRAIN_GAIN,
            State::ProbeBw(Phase::Down) => DOWN_GAIN,
            State::ProbeBw(Phase::Up) => UP_GAIN,
            State::ProbeBw(Phase::Cruise | Phase::Refill) | State::ProbeRtt => 100,
        }
    }

    fn window_gain(&self) -> u64 {
        match self.state {
            State::Startup | State::Drain => WINDOW_GAIN,
            State::ProbeBw(Phase::Down | Phase::Cruise | Phase::Refill) => WINDOW_GAIN,
            State::ProbeBw(Phase::Up) => UP_WINDOW_GAIN,
            State::ProbeRtt => PROBE_RTT_WINDOW_GAIN,
        }
    }

    /// Whether it sends more than before in a probe. Losses then set no bounds until the next acceleration.
    pub(super) fn is_accelerating(&self) -> bool {
        match self.state {
            State::Startup | State::ProbeBw(Phase::Refill | Phase::Up) => true,
            State::Drain | State::ProbeBw(Phase::Down | Phase::Cruise) | State::ProbeRtt => false,
        }
    }

    pub(super) fn set_pacing_rate(&mut self, ack: &PathAck) {
        if self.pacing_rate == 0 {
            // The initial window in a round trip.
            let nanos = ack.smoothed.unwrap_or(ASSUMED_ROUND_TRIP).as_nanos().max(1);
            let rate = u128::from(self.initial_window) * u128::from(NANOS_PER_SECOND) / nanos;
            let rate = u64::try_from(rate).unwrap_or(u64::MAX).min(super::model::MAX_RATE);
            self.pacing_rate = percent(rate, STARTUP_GAIN);
        }
        self.pace_at(self.pacing_gain());
    }

    /// Sets the rate with a gain. While the pipe is not full it does not fall: the measured rate may be that of the owner.
    pub(super) fn pace_at(&mut self, gain: u64) {
        let rate = percent(percent(self.model.rate(), gain), 100 - MARGIN_PERCENT);
        if rate > 0 && (self.full_pipe.was_reached() || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn quantum(&self) -> u64 {
        let least = MIN_QUANTUM_SEGMENTS * self.mss;
        (self.pacing_rate / QUANTA_PER_SECOND).clamp(least, MAX_QUANTUM.max(least))
    }

    /// Returns the bandwidth-delay product with a gain, and the excess for super-segments and for acknowledgments of two segments.
    pub(super) fn inflight(&self, gain: u64) -> u64 {
        self.quantized(self.product(gain))
    }

    fn quantized(&self, inflight: u64) -> u64 {
        let inflight = inflight.max(OFFLOAD_QUANTA * self.quantum()).max(MIN_PIPE_SEGMENTS * self.mss);
        let more = if self.state == State::ProbeBw(Phase::Up) { PROBE_SEGMENTS * self.mss } else { 0 };
        inflight.saturating_add(more)
    }

    /// The window of ProbeRTT.
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.product(PROBE_RTT_WINDOW_GAIN).max(MIN_PIPE_SEGMENTS * self.mss)
    }

    pub(super) fn set_window(&mut self, ack: &PathAck) {
        let most =
            self.quantized(self.product(self.window_gain()).saturating_add(self.aggregation.surplus()));
        if self.full_pipe.was_reached() {
            self.window = self.window.saturating_add(ack.bytes).min(most);
        } else if self.window < most || ack.sample.total < self.initial_window {
            self.window = self.window.saturating_add(ack.bytes);
        }
        let least = MIN_PIPE_SEGMENTS * self.mss;
        self.window = self.window.max(least);
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let bound = match self.state {
            State::ProbeBw(Phase::Down | Phase::Refill | Phase::Up) => self.model.inflight_longterm,
            State::ProbeBw(Phase::Cruise) | State::ProbeRtt => self.with_headroom(),
            State::Startup | State::Drain => UNBOUNDED,
        };
        let bound = bound.min(self.model.inflight_shortterm).max(least);
        self.window = self.window.min(bound).min(super::MAX_WINDOW.into());
    }
}
