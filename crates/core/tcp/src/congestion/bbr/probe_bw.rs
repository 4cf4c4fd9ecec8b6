//! ProbeBW (section 5.3.3): mostly as fast as the path delivers, and faster at intervals to see whether it delivers more.
//!
//! The interval is two to three seconds at random, or as many round trips as segments fit into the path (63 at most), whichever is sooner.
//! The latter is the time in which Reno regains its loss at a probe, so that Reno can compete on short paths.

use plait_base::{Duration, Instant, Random, SeededRandom};

use super::model::BETA_PERCENT;
use super::{Bbr, MIN_PIPE_SEGMENTS, PathAck, State, UNBOUNDED, percent};

/// Shortest time between two probes, and by how much more at most.
const MIN_WAIT: Duration = Duration::from_secs(2);
const MAX_MORE_NANOS: u64 = 1_000_000_000;
/// Most round trips between two probes.
const MAX_WAIT_ROUNDS: u64 = 63;
/// The part of the volume bound that is left free, in percent (`Headroom`).
const HEADROOM_PERCENT: u64 = 15;
/// The bound grows by two to this many segments in a round trip at most.
const MAX_UP_ROUNDS: u32 = 30;

/// Phases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Slower than the path, until the queue is gone.
    Down,
    /// As fast as the path.
    Cruise,
    /// As fast as the path, for a round trip, so that it is full when the probe begins.
    Refill,
    /// Faster than the path.
    Up,
}

/// The transmissions to which acknowledgments refer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Feedback {
    /// None of a probe.
    #[default]
    None,
    /// Of the time before a probe.
    Refilling,
    /// Not yet of the probe that is running.
    Starting,
    /// Of the probe.
    Probe,
    /// Of a probe that is over.
    Stopping,
}

/// The state of the cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    began: Instant,
    wait: Duration,
    /// The count of round trips at which the wait began; chance puts it one earlier.
    wait_from: u64,
    feedback: Feedback,
    /// Whether segments lost now left in a probe that has not been judged yet.
    pub(super) is_probe: bool,
    /// The last probe lost too much.
    was_too_high: bool,
    /// Whether the last probe ended early, because the one before had lost too much.
    was_careful: bool,
    /// Bytes acknowledged in UP towards the next segment of the bound, how many it takes, and round trips of UP.
    up_acked: u64,
    up_acked_per_segment: u64,
    up_rounds: u32,
    random: u64,
}

impl Cycle {
    pub(super) fn set_seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Returns the next number. It only spreads probes in time, one draw in seconds.
    fn chance(&mut self) -> u64 {
        self.random = SeededRandom::from_number(self.random).next_u64();
        self.random
    }

    fn pick_wait(&mut self, now: Instant, round: u64) {
        self.began = now;
        self.wait_from = round.saturating_sub(self.chance() & 1);
        self.wait = MIN_WAIT + Duration::from_nanos(self.chance() % MAX_MORE_NANOS);
    }

    /// Stops for ProbeRTT, whose deliveries are not a probe.
    pub(super) fn stop(&mut self) {
        self.feedback = Feedback::Stopping;
    }
}

impl Bbr {
    pub(super) fn start_down(&mut self, now: Instant) {
        self.model.reset_congestion();
        self.cycle.up_acked_per_segment = UNBOUNDED;
        self.cycle.pick_wait(now, self.rounds.count());
        self.cycle.feedback = Feedback::Stopping;
        self.rounds.begin();
        self.state = State::ProbeBw(Phase::Down);
    }

    pub(super) fn start_cruise(&mut self) {
        self.state = State::ProbeBw(Phase::Cruise);
    }

    pub(super) fn start_refill(&mut self) {
        self.model.reset_shortterm();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.was_careful = false;
        self.cycle.feedback = Feedback::Refilling;
        self.rounds.begin();
        self.state = State::ProbeBw(Phase::Refill);
    }

    fn start_up(&mut self, ack: &PathAck) {
        self.cycle.is_probe = true;
        self.cycle.feedback = Feedback::Starting;
        self.rounds.begin();
        self.full_pipe.restart(ack.rate());
        self.state = State::ProbeBw(Phase::Up);
        self.raise_slope();
    }

    /// One step of the cycle.
    pub(super) fn move_cycle(&mut self, ack: &PathAck) {
        if !self.full_pipe.was_reached() || self.adapt_longterm(ack) {
            return;
        }
        match self.state {
            State::Startup | State::Drain | State::ProbeRtt => {}
            State::ProbeBw(Phase::Down) => {
                if self.is_time_to_probe(ack) {
                    self.start_refill();
                } else if self.is_time_to_cruise(ack) {
                    self.start_cruise();
                }
            }
            State::ProbeBw(Phase::Cruise) => {
                if self.is_time_to_probe(ack) {
                    self.start_refill();
                }
            }
            State::ProbeBw(Phase::Refill) => {
                if self.rounds.begins() {
                    self.start_up(ack);
                }
            }
            State::ProbeBw(Phase::Up) => {
                if self.is_time_to_go_down(ack) {
                    self.cycle.was_too_high = false;
                    self.start_down(ack.now);
                }
            }
        }
    }

    /// Handles the start and end of a probe's samples; raises the bound of the volume if more gets through. Returns whether the phase has
    /// changed.
    fn adapt_longterm(&mut self, ack: &PathAck) -> bool {
        let in_cycle = matches!(self.state, State::ProbeBw(_));
        let begins = self.rounds.begins();
        if self.cycle.feedback == Feedback::Starting && begins {
            self.cycle.feedback = Feedback::Probe;
        }
        if self.cycle.feedback == Feedback::Stopping && begins {
            self.cycle.is_probe = false;
            self.cycle.feedback = Feedback::None;
            if in_cycle && !ack.is_app_limited() {
                self.model.end_cycle();
            }
            if in_cycle && self.cycle.was_careful && !self.cycle.was_too_high {
                // The careful probe caused no loss: the next one goes on.
                self.start_refill();
                return true;
            }
        }
        let departure = ack.sample.departure;
        let is_safe = !self.is_too_much(departure.lost_since(ack.lost), departure.in_flight());
        if is_safe && self.model.inflight_longterm != UNBOUNDED {
            self.model.inflight_longterm = self.model.inflight_longterm.max(departure.in_flight());
            if self.state == State::ProbeBw(Phase::Up) {
                self.raise_longterm(ack);
            }
        }
        false
    }

    /// Sets the bound to the volume at which a probe lost too much, or to the volume of the path (section 5.5.10.2).
    pub(super) fn bound_longterm(&mut self, now: Instant, volume: u64, app_limited: bool) {
        self.cycle.was_too_high = true;
        self.cycle.is_probe = false;
        if !app_limited {
            self.model.inflight_longterm = volume.max(percent(self.target(), BETA_PERCENT));
        }
        if self.state == State::ProbeBw(Phase::Up) {
            self.episode.left(self.state);
            self.start_down(now);
        }
    }

    /// Raises the bound by one segment in the first round trip of UP that it limits, then by two, four, and so on.
    fn raise_longterm(&mut self, ack: &PathAck) {
        if !ack.window_limited || self.window < self.model.inflight_longterm {
            return;
        }
        self.cycle.up_acked = self.cycle.up_acked.saturating_add(ack.bytes);
        let segments = self.cycle.up_acked / self.cycle.up_acked_per_segment.max(1);
        self.cycle.up_acked -= segments * self.cycle.up_acked_per_segment;
        self.model.inflight_longterm = self.model.inflight_longterm.saturating_add(segments * self.mss);
        if self.rounds.begins() {
            self.raise_slope();
        }
    }

    fn raise_slope(&mut self) {
        let segments = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(MAX_UP_ROUNDS);
        self.cycle.up_acked_per_segment = (self.window / segments).max(self.mss);
    }

    fn is_time_to_probe(&self, ack: &PathAck) -> bool {
        let is_long = ack.now.saturating_since(self.cycle.began) > self.cycle.wait;
        let segments = self.target() / self.mss;
        is_long || self.rounds.count() - self.cycle.wait_from >= segments.min(MAX_WAIT_ROUNDS)
    }

    fn is_time_to_cruise(&self, ack: &PathAck) -> bool {
        ack.in_flight <= self.with_headroom() && ack.in_flight <= self.inflight(100)
    }

    fn is_time_to_go_down(&mut self, ack: &PathAck) -> bool {
        if self.cycle.was_too_high && ack.in_flight >= self.model.inflight_longterm {
            self.cycle.was_careful = true;
            return true;
        }
        if ack.window_limited && self.window >= self.model.inflight_longterm {
            // The bound holds it back, and not the path.
            self.full_pipe.restart(ack.rate());
            return false;
        }
        self.full_pipe.is_full()
    }

    /// Returns the target of the bytes in flight: the volume of the path, unless congestion has cut the window.
    fn target(&self) -> u64 {
        self.product(100).min(self.window)
    }

    /// Returns the bound of the volume less a part for others.
    pub(super) fn with_headroom(&self) -> u64 {
        let bound = self.model.inflight_longterm;
        if bound == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = percent(bound, HEADROOM_PERCENT).max(self.mss);
        bound.saturating_sub(headroom).max(MIN_PIPE_SEGMENTS * self.mss)
    }
}
