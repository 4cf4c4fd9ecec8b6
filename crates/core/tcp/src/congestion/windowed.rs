//! Controllers with a window and no rate. Slow start and the reaction to timeouts are common to all. They differ in the growth of the
//! window in congestion avoidance and in its fall on loss: the `law`.

use plait_base::{Duration, Instant};

use super::coupled::Coupling;
use super::law::Law;
use super::slow_start::{self, SlowStart};
use super::{Ack, MAX_WINDOW};
use crate::pace::QUANTUM;

/// Smallest window after a loss, in segments (RFC 5681, equation 4).
const MIN_WINDOW_SEGMENTS: u32 = 2;

/// Pacing rate in parts of a window per round trip: while the window doubles, and after.
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;

/// Slow start and a law; all windows in bytes.
#[derive(Clone, Debug)]
pub(super) struct Windowed {
    state: Window,
    slow_start: SlowStart,
    law: Law,
    initial_window: u32,
    /// Window up to which doubling continues after an idle time, whatever the delay is: the path has carried that much. Zero if the idle
    /// time took nothing.
    carried: u32,
    /// Its part of the increase of one TCP ([`Coupling::share`]).
    share: f64,
    /// Largest number of bytes in flight when a lost segment left; zero after the reduction for it. The bytes in flight at the detection of
    /// the loss may be far fewer, if the peer's window or the owner has stopped the sending meanwhile.
    flight_of_lost: u32,
    before_reduction: Option<(Window, Law)>,
}

/// State of every controller.
#[derive(Clone, Copy, Debug)]
struct Window {
    mss: u32,
    bytes: u32,
    threshold: u32,
    /// Growth that is too small for a whole byte yet.
    fraction: f64,
}

impl Windowed {
    /// A controller in slow start. `mss` and `initial_window` in bytes.
    pub(super) fn new(law: Law, mss: u16, initial_window: u32) -> Self {
        let mss = u32::from(mss.max(1));
        let bytes = initial_window.clamp(mss, MAX_WINDOW);
        Self {
            state: Window { mss, bytes, threshold: u32::MAX, fraction: 0.0 },
            slow_start: SlowStart::default(),
            law,
            initial_window: bytes,
            carried: 0,
            share: 1.0,
            flight_of_lost: 0,
            before_reduction: None,
        }
    }

    /// Begins in congestion avoidance with this window, which another controller has found.
    pub(super) fn go_on_with(&mut self, window: u32) {
        self.state.bytes = window.clamp(MIN_WINDOW_SEGMENTS * self.state.mss, MAX_WINDOW);
        self.state.threshold = self.state.bytes;
        self.end_search();
    }

    /// Congestion window.
    pub(super) fn window(&self) -> u32 {
        self.state.bytes
    }

    /// Slow start threshold; `u32::MAX` before the first loss.
    pub(super) fn slow_start_threshold(&self) -> u32 {
        self.state.threshold
    }

    /// Returns the rate of sending in bytes per second for a round trip of `round_trip`. It is higher than the window allows, so that
    /// pacing spreads the bytes and does not limit them (the factors are those of Linux). `None` if there is nothing to spread: before the
    /// first sample, and if the round trip is no longer than a quantum. Also `None` for LIA and OLIA: at a full queue a paced flow loses
    /// less than one clocked by acknowledgments, so that together they would take more than one TCP.
    pub(super) fn pacing_rate(&self, round_trip: Option<Duration>) -> Option<u64> {
        if !self.law.rule().is_paced() {
            return None;
        }
        let nanos = round_trip.filter(|&round_trip| round_trip > QUANTUM)?.as_nanos();
        let doubles = self.state.bytes < self.state.threshold / 2;
        let percent = if doubles { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
        // At most 2^30 * 200 * 10^7: below 2^61.
        Some(
            u64::from(self.state.bytes) * percent * (1_000_000_000 / 100)
                / u64::try_from(nanos).unwrap_or(u64::MAX),
        )
    }

    /// Smoothed bytes between two losses, by which OLIA ranks paths. Zero for the other algorithms.
    pub(super) fn bytes_between_losses(&self) -> u64 {
        self.law.rule().bytes_between_losses()
    }

    /// New data was acknowledged, outside of recovery.
    pub(super) fn on_ack(&mut self, ack: &Ack) {
        let Self { state, slow_start, law, share, carried, .. } = self;
        let law = law.rule_mut();
        law.on_acked(ack.bytes);
        if !ack.window_limited {
            law.on_unused_window(ack.now);
            return;
        }
        if state.bytes < state.threshold {
            let growth = if state.bytes < *carried {
                slow_start::most_growth(ack, state.mss)
            } else {
                slow_start.on_ack(ack, state.mss)
            };
            state.bytes = state.bytes.saturating_add(growth).min(state.threshold).min(MAX_WINDOW);
            if slow_start.is_over() {
                // RFC 9406, section 4.2: congestion avoidance starts from here. What idle time takes later comes back up to here.
                state.threshold = state.bytes;
                *slow_start = SlowStart::finished();
            }
            return;
        }
        let growth = law.growth(ack, state.mss, state.bytes, *share);
        state.grow(growth);
    }

    /// Notes the loss of a segment that had left with `in_flight` bytes in flight, its own included.
    pub(super) fn on_lost(&mut self, in_flight: u32) {
        self.flight_of_lost = self.flight_of_lost.max(in_flight);
    }

    /// Notes the end of the recovery: its losses have had their effect.
    pub(super) fn on_recovered(&mut self) {
        self.flight_of_lost = 0;
    }

    /// Loss, once per window of data: a recovery begins. Sets the threshold and the window
    /// that recovery ends with. `in_flight` is what was outstanding before the loss was noticed.
    pub(super) fn on_congestion(&mut self, now: Instant, in_flight: u32) {
        self.before_reduction = Some((self.state, self.law));
        self.state.threshold = self.reduced_window(now, in_flight);
        self.state.bytes = self.state.threshold;
        self.state.fraction = 0.0;
        self.end_search();
    }

    /// Handles a mark "congestion experienced" that the peer has reported (RFC 3168). It counts as a loss, without a retransmission and
    /// without a later reversal. The caller calls it once per round trip (until the segments sent before are acknowledged) and not during a
    /// recovery. `in_flight` is what was outstanding before the acknowledgment with the report.
    pub(super) fn on_congestion_experienced(&mut self, now: Instant, in_flight: u32) {
        self.on_congestion(now, in_flight);
        self.before_reduction = None;
    }

    /// The retransmission timer fired for the first time for this data (RFC 5681, section 3.1): one segment.
    pub(super) fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        self.before_reduction = Some((self.state, self.law));
        self.state.threshold = self.reduced_window(now, in_flight);
        self.state.bytes = self.state.mss;
        self.state.fraction = 0.0;
        self.end_search();
        self.law.rule_mut().end_epoch();
    }

    /// Reverts the last reduction, which was a mistake (F-RTO, D-SACK, Eifel): the state is as before it, or better.
    pub(super) fn undo(&mut self) {
        self.flight_of_lost = 0;
        let Some((state, law)) = self.before_reduction.take() else { return };
        self.state.bytes = self.state.bytes.max(state.bytes);
        self.state.threshold = self.state.threshold.max(state.threshold);
        self.law = law;
    }

    /// Sets a new segment size.
    pub(super) fn set_mss(&mut self, mss: u16) {
        self.state.mss = u32::from(mss.max(1));
        self.state.bytes = self.state.bytes.max(self.state.mss);
    }

    /// Handles an idle time of more than a retransmission timeout: the window is out of date (RFC 5681, section 4.1). The threshold keeps
    /// what was learned (RFC 7661, section 4.4.2).
    pub(super) fn on_idle(&mut self, now: Instant) {
        if self.state.bytes > self.initial_window {
            self.keep_learned();
            self.state.bytes = self.initial_window;
        }
        let law = self.law.rule_mut();
        law.end_epoch();
        law.on_unused_window(now);
    }

    /// Handles a retransmission timeout in which at most `used` bytes of the window were in use: the rest of it is out of date (RFC 7661,
    /// section 4.3). The window goes half of the way down to them, and comes back by slow start.
    pub(super) fn on_unused(&mut self, used: u32) {
        let used = used.max(self.initial_window);
        if self.state.bytes > used {
            self.keep_learned();
            self.state.bytes = used + (self.state.bytes - used) / 2;
        }
    }

    /// Keeps what was learned before the window shrinks for a reason other than loss. Without a threshold, the delay would be compared with
    /// that of another time, and would end the doubling at a few segments: HyStart++ is for finding a threshold (RFC 9406, section 4.3).
    fn keep_learned(&mut self) {
        let learned = self.state.bytes / 4 * 3;
        self.state.threshold = self.state.threshold.max(learned);
        self.carried = self.carried.max(learned);
        self.slow_start.restart();
    }

    /// Ends the search: a loss has shown the capacity of the path.
    fn end_search(&mut self) {
        self.slow_start = SlowStart::finished();
        self.carried = 0;
    }

    /// What it knows of its siblings: for LIA and OLIA all subflows of the connection, for the others those over the same path.
    /// `None` where it has none.
    pub(super) fn set_coupling(&mut self, coupling: Option<Coupling>) {
        self.share = coupling.map_or(1.0, |coupling| coupling.share);
        self.law.rule_mut().set_siblings(coupling);
    }

    fn reduced_window(&mut self, now: Instant, in_flight: u32) -> u32 {
        // An unused window shows nothing about the path (RFC 5681: FlightSize; RFC 7661, section 4.4.1: no less than was in use in the last
        // round trip).
        let in_use = in_flight.max(core::mem::take(&mut self.flight_of_lost));
        let used = self.state.bytes.min(in_use.max(self.state.bytes / 2));
        let reduced = self.law.rule_mut().reduced(now, self.state.mss, used);
        reduced.max(MIN_WINDOW_SEGMENTS * self.state.mss)
    }
}

impl Window {
    /// Adds `growth` bytes and keeps the fraction of a byte for the next time.
    fn grow(&mut self, growth: f64) {
        let total = self.fraction + growth;
        if !total.is_finite() || total < 0.0 {
            // OLIA may want to shrink the window of a path that others outdo; never below the minimum.
            if total.is_finite() {
                let floor = MIN_WINDOW_SEGMENTS * self.mss;
                self.bytes = self.bytes.saturating_sub(-total as u32).max(floor);
                self.fraction = 0.0;
            }
            return;
        }
        self.fraction = total % 1.0;
        self.bytes = self.bytes.saturating_add(total as u32).min(MAX_WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::super::law::NewReno;
    use super::*;

    #[test]
    fn a_loss_is_measured_by_what_was_in_flight_as_it_left_not_by_what_is_left_once_it_is_noticed() {
        let mut windowed = Windowed::new(Law::NewReno(NewReno), 1000, 200_000);
        // The peer's window closed behind it, and most of the rest has arrived since.
        windowed.on_lost(160_000);
        windowed.on_lost(150_000);
        windowed.on_congestion(Instant::ZERO, 30_000);
        assert_eq!(windowed.window(), 80_000);
        // What was lost in the recovery is answered for with it.
        windowed.on_lost(80_000);
        windowed.on_recovered();
        windowed.on_congestion(Instant::ZERO, 50_000);
        assert_eq!(windowed.window(), 25_000);
    }

    #[test]
    fn what_was_not_lost_after_all_does_not_count_at_the_next_loss() {
        let mut windowed = Windowed::new(Law::NewReno(NewReno), 1000, 200_000);
        windowed.on_timeout(Instant::ZERO, 150_000);
        windowed.on_lost(190_000);
        windowed.undo();
        windowed.on_congestion(Instant::ZERO, 120_000);
        assert_eq!(windowed.window(), 60_000);
    }
}
