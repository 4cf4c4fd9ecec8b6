//! BBR version 3 (draft-ietf-ccwg-bbr): a model of the path in place of a window that falls with each loss.
//!
//! The model has the largest recent delivery rate of the path, and the shortest round trip. Their product is the volume that the path holds
//! without a queue. The rate of sending and, as a second limit, the window are derived from it. To keep the model accurate, the sender
//! passes through states:
//!
//! - *Startup* sends ever faster until the path delivers no faster, *Drain* empties the queue that this has built;
//! - *ProbeBW* goes round in four phases: UP sends more than the path delivers, DOWN less until the queue of that is gone, CRUISE as
//!   much, for some seconds, and REFILL as much again with what congestion has taken meanwhile given back;
//! - *ProbeRTT* sends little for a fifth of a second, each five seconds unless the round trip was short by itself, so that
//!   queues drain and the shortest round trip is seen.
//!
//! Losses count if more than 2 % of the bytes in flight are lost, and more than such a path would lose by chance. Then UP ends, and the
//! volume in flight becomes a bound (`inflight_longterm`) until a later probe finds a higher one. Between the probes, a round trip with
//! such a loss sets bounds that last until the next REFILL.
//!
//! Modules: `model` has the estimates, `rounds` counts round trips, `aggregation` measures aggregated acknowledgments. `startup`,
//! `probe_bw` and `probe_rtt` are the states, `losses` has the effect of losses and its reversal, `control` derives rate and window.
//!
//! All rates are in bytes per second, all volumes in bytes, all gains in percent. Numbers of the peer have an effect only through samples
//! of the delivery rate, which never exceed the rate of sending.

mod aggregation;
mod control;
mod losses;
mod model;
mod probe_bw;
mod probe_rtt;
mod rounds;
mod startup;

use plait_base::{Duration, Instant};

use super::MAX_WINDOW;
use crate::delivery_rate::Sample;
use aggregation::Aggregation;
use losses::Episode;
use model::Model;
use probe_bw::{Cycle, Phase};
use probe_rtt::RoundTrips;
use rounds::Rounds;
use startup::FullPipe;

/// Smallest window, in segments: enough for a peer that acknowledges each second one (section 5.6.4.3).
const MIN_PIPE_SEGMENTS: u64 = 4;
/// No bound; also a volume or a rate that is never reached.
const UNBOUNDED: u64 = u64::MAX;

/// The content of an acknowledgment that delivered something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathAck {
    /// Time of its arrival.
    pub(crate) now: Instant,
    /// The sample of the delivery rate.
    pub(crate) sample: Sample,
    /// Bytes that it delivered.
    pub(crate) bytes: u64,
    /// Bytes lost so far, what it shows included.
    pub(crate) lost: u64,
    /// Bytes in flight after it.
    pub(crate) in_flight: u64,
    /// Time since the newest covered segment left, if that was sent only once.
    pub(crate) round_trip: Option<Duration>,
    /// Smoothed round trip.
    pub(crate) smoothed: Option<Duration>,
    /// The window was what held the sender back.
    pub(crate) window_limited: bool,
}

impl PathAck {
    /// Bytes per second; 0 if the sample is too short.
    fn rate(&self) -> u64 {
        self.sample.rate.unwrap_or(0).min(model::MAX_RATE)
    }

    fn is_app_limited(&self) -> bool {
        self.sample.departure.is_app_limited()
    }
}

/// The state of the sender (section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It searches for the rate.
    Startup,
    /// It lets the queue of that drain.
    Drain,
    /// It knows the rate and looks for more now and then.
    ProbeBw(Phase),
    /// It looks for the shortest round trip.
    ProbeRtt,
}

impl State {
    /// Returns its name in the draft.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Drain => "Drain",
            Self::ProbeBw(Phase::Down) => "ProbeBW_DOWN",
            Self::ProbeBw(Phase::Cruise) => "ProbeBW_CRUISE",
            Self::ProbeBw(Phase::Refill) => "ProbeBW_REFILL",
            Self::ProbeBw(Phase::Up) => "ProbeBW_UP",
            Self::ProbeRtt => "ProbeRTT",
        }
    }
}

/// The controller of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    state: State,
    model: Model,
    rounds: Rounds,
    aggregation: Aggregation,
    full_pipe: FullPipe,
    cycle: Cycle,
    round_trips: RoundTrips,
    episode: Episode,
    has_sack: bool,
    /// Payload of a segment.
    mss: u64,
    initial_window: u64,
    window: u64,
    /// The last window that neither a recovery nor ProbeRTT had made small.
    prior_window: u64,
    /// Bytes per second; 0 before the first round trip is known.
    pacing_rate: u64,
    /// Sending goes on after an idle time.
    idle_restart: bool,
}

impl Bbr {
    pub(crate) fn new(mss: u16, initial_window: u32) -> Self {
        let mss = u64::from(mss.max(1));
        let window = u64::from(initial_window.min(MAX_WINDOW)).max(mss);
        Self {
            state: State::Startup,
            model: Model::new(),
            rounds: Rounds::default(),
            aggregation: Aggregation::default(),
            full_pipe: FullPipe::default(),
            cycle: Cycle::default(),
            round_trips: RoundTrips::default(),
            episode: Episode::default(),
            has_sack: true,
            mss,
            initial_window: window,
            window,
            prior_window: 0,
            pacing_rate: 0,
            idle_restart: false,
        }
    }

    pub(crate) fn on_established(&mut self, seed: u64, has_sack: bool) {
        self.cycle.set_seed(seed);
        self.has_sack = has_sack;
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Largest rate at which the path has delivered lately.
    #[cfg(test)]
    pub(crate) fn max_rate(&self) -> u64 {
        self.model.max_rate()
    }

    pub(crate) fn is_startup(&self) -> bool {
        self.state == State::Startup
    }

    /// Whether it sends less than possible on purpose.
    pub(crate) fn is_probing_round_trip(&self) -> bool {
        self.state == State::ProbeRtt
    }

    pub(crate) fn window(&self) -> u32 {
        u32::try_from(self.window).unwrap_or(MAX_WINDOW).min(MAX_WINDOW)
    }

    /// Bytes that the path holds without a queue, as far as is known.
    pub(crate) fn path_volume(&self) -> u32 {
        u32::try_from(self.product(100)).unwrap_or(MAX_WINDOW).min(MAX_WINDOW)
    }

    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }

    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = u64::from(mss.max(1));
        self.window = self.window.max(self.mss);
    }

    /// Something was delivered (section 5.2.3).
    pub(crate) fn on_ack(&mut self, ack: &PathAck) {
        self.model.take_latest(ack);
        self.rounds.on_ack(ack);
        self.model.take_rate(ack);
        self.adapt_shortterm(ack);
        let rate = self.model.rate();
        self.aggregation.on_ack(ack, rate, self.window, self.rounds.count(), self.full_pipe.was_reached());
        self.full_pipe.on_ack(ack, self.rounds.begins());
        self.check_startup_done(ack);
        self.check_drain_done(ack);
        self.move_cycle(ack);
        self.take_round_trip(ack);
        self.check_probe_rtt(ack);
        self.model.advance_latest(ack);
        self.set_pacing_rate(ack);
        self.set_window(ack);
    }

    /// Restarts after an idle time (section 5.4.1), at the rate of the path, because there is nothing to catch up with.
    pub(crate) fn on_restart(&mut self, now: Instant) {
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.state {
            State::ProbeBw(_) => self.pace_at(100),
            State::ProbeRtt => self.check_probe_rtt_done(now),
            State::Startup | State::Drain => {}
        }
    }
}

/// Returns `percent` percent of `value`.
fn percent(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
