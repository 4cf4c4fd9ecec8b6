//! Startup and Drain (sections 5.3.1 and 5.3.2): the sender accelerates until the path delivers no faster, or loses too much.

use super::model::volume;
use super::{Bbr, PathAck, State};

/// Least rate, in percent of the previous one, that counts as growth.
const GROWTH_PERCENT: u64 = 125;
/// Round trips without growth after which the pipe is full.
const FULL_ROUNDS: u8 = 3;
/// Gaps in a round trip that together with too much loss end Startup.
const FULL_GAPS: u32 = 6;
/// Round trips after which Drain is over in any case.
const MAX_DRAIN_ROUNDS: u64 = 3;

/// Whether sending faster still makes the path deliver faster.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    rate: u64,
    rounds: u8,
    /// It does not, in the acceleration that is running.
    is_full: bool,
    /// It did not once.
    reached: bool,
    drain_from: u64,
}

impl FullPipe {
    /// An acceleration begins, from `rate`.
    pub(super) fn restart(&mut self, rate: u64) {
        *self = Self { rate, rounds: 0, is_full: false, ..*self };
    }

    pub(super) fn on_ack(&mut self, ack: &PathAck, begins_round: bool) {
        if self.is_full || !begins_round || ack.is_app_limited() || ack.sample.rate.is_none() {
            return;
        }
        if u128::from(ack.rate()) * 100 >= u128::from(self.rate) * u128::from(GROWTH_PERCENT) {
            self.restart(ack.rate());
            return;
        }
        self.rounds += 1;
        self.is_full = self.rounds >= FULL_ROUNDS;
        self.reached |= self.is_full;
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn was_reached(&self) -> bool {
        self.reached
    }

    pub(super) fn set_reached(&mut self, reached: bool) {
        self.reached = reached;
    }
}

impl Bbr {
    pub(super) fn check_startup_done(&mut self, ack: &PathAck) {
        self.check_startup_loss(ack);
        if self.state == State::Startup && self.full_pipe.was_reached() {
            self.state = State::Drain;
            self.full_pipe.drain_from = self.rounds.count();
        }
    }

    /// Ends Startup after a round trip of a recovery with many losses in many places: the path is full, and higher rates would only lose
    /// more.
    fn check_startup_loss(&mut self, ack: &PathAck) {
        let is_startup = self.state == State::Startup && !self.full_pipe.was_reached();
        let many = self.model.losses.gaps >= FULL_GAPS;
        if !is_startup || !self.model.losses.ends || !self.episode.is_recovering() || !many {
            return;
        }
        let departure = ack.sample.departure;
        if self.is_too_much(departure.lost_since(ack.lost), departure.in_flight()) {
            self.episode.left(State::Startup);
            self.full_pipe.set_reached(true);
            let product = self.product(100);
            self.model.inflight_longterm = product.max(self.model.latest_delivered());
        }
    }

    pub(super) fn check_drain_done(&mut self, ack: &PathAck) {
        if self.state != State::Drain {
            return;
        }
        let is_late = self.rounds.count() > self.full_pipe.drain_from + MAX_DRAIN_ROUNDS;
        if is_late || ack.in_flight <= self.inflight(100) {
            self.start_down(ack.now);
        }
    }

    /// The bandwidth-delay product times a gain; before the first round trip, the initial window.
    pub(super) fn product(&self, gain: u64) -> u64 {
        match self.round_trips.shortest() {
            Some(round_trip) => super::percent(volume(self.model.rate(), round_trip), gain),
            None => self.initial_window,
        }
    }
}
