//! Congestion control: how many bytes may be in flight, and how fast they leave.
//!
//! A [`Controller`] is told what was acknowledged and lost, and returns a window. Loss detection, and the approach to the window during
//! recovery (proportional rate reduction), are elsewhere.
//!
//! There are two kinds. Those of `windowed` have a window that grows with acknowledgments and falls with a loss; pacing derives a rate from
//! it. `bbr` has a model of the path, which gives both the rate and the window, also in every phase of a recovery.

mod adaptive;
mod algorithm;
pub(crate) mod bbr;
mod coupled;
mod cubic;
mod law;
mod slow_start;
mod windowed;

use alloc::boxed::Box;
use plait_base::{Duration, Instant};

pub use algorithm::{Algorithm, Coupled};
pub use coupled::{Coupling, Member};

use crate::flight::Sent;
use adaptive::{Choice, Verdict};
use bbr::{Bbr, PathAck};
use coupled::{Lia, Olia};
use cubic::Cubic;
use law::{Law, NewReno};
use windowed::Windowed;

/// The content of an ACK that acknowledged new data.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Time of its arrival.
    pub now: Instant,
    /// Bytes newly delivered by it (cumulatively or selectively).
    pub bytes: u32,
    /// Bytes in flight before it.
    pub in_flight: u32,
    /// Smoothed round-trip time, if one was measured yet.
    pub srtt: Option<Duration>,
    /// Smallest round-trip time seen.
    pub min_rtt: Option<Duration>,
    /// Latest sample.
    pub latest_rtt: Option<Duration>,
    /// The window was in use: without that it must not grow (RFC 7661).
    pub window_limited: bool,
}

/// Upper bound of the window, in bytes: far above what a window field can offer (RFC 7323: 1 GiB), so that
/// sums of windows fit in 32 bits.
const MAX_WINDOW: u32 = 1 << 30;

/// One controller; all windows in bytes.
#[derive(Clone, Debug)]
pub struct Controller {
    kind: Kind,
    /// The choice that may replace it.
    choice: Option<Box<Choice>>,
    initial_window: u32,
    mss: u16,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections have the larger one, and it is asked for each segment"
)]
enum Kind {
    Windowed(Windowed),
    /// On the heap: it is several times as large, and few connections have it.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// A controller at the start of a connection. `mss` and `initial_window` in bytes.
    pub fn new(algorithm: Algorithm, mss: u16, initial_window: u32) -> Self {
        let law = match algorithm {
            Algorithm::NewReno => Law::NewReno(NewReno),
            Algorithm::Cubic | Algorithm::Adaptive => Law::Cubic(Cubic::default()),
            Algorithm::Lia => Law::Lia(Lia::default()),
            Algorithm::Olia => Law::Olia(Olia::default()),
            Algorithm::Bbr => {
                let kind = Kind::Bbr(Box::new(Bbr::new(mss, initial_window)));
                return Self { kind, choice: None, initial_window, mss };
            }
        };
        let choice = (algorithm == Algorithm::Adaptive).then(|| Box::new(Choice::new()));
        Self { kind: Kind::Windowed(Windowed::new(law, mss, initial_window)), choice, initial_window, mss }
    }

    /// Sets the additional input of BBR: a seed for the random times of its probes (same seed, same choices), and whether the peer
    /// acknowledges selectively, so that more than one loss can be seen in a round trip.
    pub(crate) fn for_connection(mut self, seed: u64, has_sack: bool) -> Self {
        match &mut self.kind {
            Kind::Windowed(_) => {}
            Kind::Bbr(bbr) => bbr.on_established(seed, has_sack),
        }
        if let Some(choice) = &mut self.choice {
            choice.on_established(seed, has_sack);
        }
        self
    }

    /// Congestion window.
    pub fn window(&self) -> u32 {
        match &self.kind {
            Kind::Windowed(windowed) => windowed.window(),
            Kind::Bbr(bbr) => bbr.window(),
        }
    }

    /// Slow start threshold; `u32::MAX` before the first loss. BBR has none, and returns its window once it has found the rate.
    pub fn slow_start_threshold(&self) -> u32 {
        match &self.kind {
            Kind::Windowed(windowed) => windowed.slow_start_threshold(),
            Kind::Bbr(bbr) if bbr.is_startup() => u32::MAX,
            Kind::Bbr(bbr) => bbr.window(),
        }
    }

    /// Whether the window is below the threshold.
    pub fn is_slow_start(&self) -> bool {
        self.window() < self.slow_start_threshold()
    }

    /// Returns the rate of sending in bytes per second for a round trip of `round_trip`. It is higher than the window allows, so that
    /// pacing spreads the bytes and does not limit them (the factors are those of Linux). `None` if there is nothing to spread: before the
    /// first sample, and if the round trip is no longer than a quantum. BBR has its own rate, [`Controller::own_rate`].
    pub fn pacing_rate(&self, round_trip: Option<Duration>) -> Option<u64> {
        match &self.kind {
            Kind::Windowed(windowed) => windowed.pacing_rate(round_trip),
            Kind::Bbr(bbr) => bbr.pacing_rate(),
        }
    }

    /// Returns its phase in a word or two, for display.
    pub fn phase(&self) -> &'static str {
        match &self.kind {
            Kind::Windowed(_) if self.is_slow_start() => "slow start",
            Kind::Windowed(_) => "avoidance",
            Kind::Bbr(bbr) => bbr.state().name(),
        }
    }

    /// Returns the rate in bytes per second that it enforces with or without pacing, if it has one and has measured it.
    pub fn own_rate(&self) -> Option<u64> {
        match &self.kind {
            Kind::Windowed(_) => None,
            Kind::Bbr(bbr) => bbr.pacing_rate(),
        }
    }

    /// Whether its window also counts during a recovery, in place of proportional rate reduction.
    pub(crate) fn leads_recovery(&self) -> bool {
        match &self.kind {
            Kind::Windowed(_) => false,
            Kind::Bbr(_) => true,
        }
    }

    /// The model of the path, if it has one.
    pub(crate) fn bbr(&self) -> Option<&Bbr> {
        match &self.kind {
            Kind::Windowed(_) => None,
            Kind::Bbr(bbr) => Some(bbr),
        }
    }

    /// Smoothed bytes between two losses, by which OLIA ranks paths. Zero for the other algorithms.
    pub fn bytes_between_losses(&self) -> u64 {
        match &self.kind {
            Kind::Windowed(windowed) => windowed.bytes_between_losses(),
            Kind::Bbr(_) => 0,
        }
    }

    /// New data was acknowledged, outside of recovery.
    pub fn on_ack(&mut self, ack: &Ack) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_ack(ack),
            Kind::Bbr(_) => {}
        }
    }

    /// Handles a delivery, cumulative or selective, in any phase of recovery.
    pub(crate) fn on_path_ack(&mut self, ack: &PathAck) {
        match &mut self.kind {
            Kind::Windowed(_) => {}
            Kind::Bbr(bbr) => bbr.on_ack(ack),
        }
        let verdict = self.choice.as_mut().map_or(Verdict::Stay, |choice| choice.on_ack(ack));
        self.follow(verdict, Some(ack));
    }

    /// Whether it handles each delivery ([`Controller::on_path_ack`]).
    pub(crate) fn watches_path(&self) -> bool {
        self.leads_recovery() || self.choice.is_some()
    }

    /// Replaces the controller by the other if that suits the path better. Each begins with the other's bytes in flight.
    fn follow(&mut self, verdict: Verdict, ack: Option<&PathAck>) {
        let window = self.window().max(self.initial_window);
        match (verdict, &self.choice) {
            (Verdict::Stay, _) | (Verdict::Cubic | Verdict::Bbr, None) => {}
            (Verdict::Bbr, Some(choice)) => {
                let (seed, has_sack) = choice.for_bbr();
                let mut bbr = Bbr::new(self.mss, window);
                bbr.on_established(seed, has_sack);
                if let Some(ack) = ack {
                    bbr.on_ack(ack);
                }
                self.kind = Kind::Bbr(Box::new(bbr));
            }
            (Verdict::Cubic, Some(_)) => {
                let window = match &self.kind {
                    Kind::Bbr(bbr) => bbr.path_volume(),
                    Kind::Windowed(_) => window,
                };
                let mut cubic = Windowed::new(Law::Cubic(Cubic::default()), self.mss, self.initial_window);
                cubic.go_on_with(window);
                self.kind = Kind::Windowed(cubic);
            }
        }
    }

    /// Handles a range that was declared lost, before a recovery begins for it. `lost` are the bytes lost so far, including the range, and
    /// `delivered` those delivered.
    pub(crate) fn on_lost(&mut self, now: Instant, sent: &Sent, lost: u64, delivered: u64) {
        match &mut self.kind {
            Kind::Windowed(windowed) => {
                windowed.on_lost(u32::try_from(sent.departure.in_flight()).unwrap_or(u32::MAX));
            }
            Kind::Bbr(bbr) => bbr.on_lost(now, sent, lost, delivered),
        }
        if let Some(choice) = &mut self.choice {
            choice.on_lost(sent.at);
        }
    }

    /// Loss, once per window of data: a recovery begins. Sets the threshold and the window
    /// that recovery ends with. `in_flight` is what was outstanding before the loss was noticed.
    pub fn on_congestion(&mut self, now: Instant, in_flight: u32) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_congestion(now, in_flight),
            Kind::Bbr(bbr) => bbr.on_recovery(),
        }
    }

    /// A loss that a probe has repaired already: no recovery begins for it. `lost` and `delivered` are the bytes lost and delivered
    /// so far.
    pub(crate) fn on_repaired_loss(&mut self, now: Instant, in_flight: u32, lost: u64, delivered: u64) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_congestion(now, in_flight),
            Kind::Bbr(bbr) => bbr.note_loss(lost, delivered),
        }
    }

    /// Handles the end of the recovery: all segments that were outstanding at its start have arrived.
    pub(crate) fn on_recovered(&mut self) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_recovered(),
            Kind::Bbr(bbr) => bbr.on_recovered(),
        }
    }

    /// Handles a mark "congestion experienced" that the peer has reported (RFC 3168). It counts as a loss, without a retransmission and
    /// without a later reversal. The caller calls it once per round trip (until the segments sent before are acknowledged) and not during a
    /// recovery. `in_flight` is what was outstanding before the acknowledgment with the report. Connections with BBR do not accept ECN.
    pub fn on_congestion_experienced(&mut self, now: Instant, in_flight: u32) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_congestion_experienced(now, in_flight),
            Kind::Bbr(_) => {}
        }
        let verdict = self.choice.as_mut().map_or(Verdict::Stay, |choice| choice.on_mark());
        self.follow(verdict, None);
    }

    /// The retransmission timer fired for the first time for this data (RFC 5681, section 3.1): one segment.
    pub fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_timeout(now, in_flight),
            Kind::Bbr(bbr) => bbr.on_timeout(),
        }
    }

    /// Handles the result of that timeout: the losses are known, and this much is left in flight.
    pub(crate) fn on_timeout_judged(&mut self, in_flight: u32) {
        match &mut self.kind {
            Kind::Windowed(_) => {}
            Kind::Bbr(bbr) => bbr.on_timeout_judged(in_flight),
        }
    }

    /// Reverts the last reduction, which was a mistake (F-RTO, D-SACK, Eifel): the state is as before it, or better.
    pub fn undo(&mut self) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.undo(),
            Kind::Bbr(bbr) => bbr.undo(),
        }
    }

    /// Sets a new segment size.
    pub fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.set_mss(mss),
            Kind::Bbr(bbr) => bbr.set_mss(mss),
        }
    }

    /// Handles an idle time of more than a retransmission timeout: the window is out of date (RFC 5681, section 4.1). The threshold keeps
    /// what was learned (RFC 7661, section 4.4.2). BBR keeps its window.
    pub fn on_idle(&mut self, now: Instant) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_idle(now),
            Kind::Bbr(_) => {}
        }
    }

    /// Handles the first segment after an idle time of the owner with nothing in flight.
    pub(crate) fn on_restart(&mut self, now: Instant) {
        match &mut self.kind {
            Kind::Windowed(_) => {}
            Kind::Bbr(bbr) => bbr.on_restart(now),
        }
    }

    /// Handles a retransmission timeout in which at most `used` bytes of the window were in use: the rest of it is out of date (RFC 7661,
    /// section 4.3). The window goes half of the way down to them, and comes back by slow start. The window of BBR depends on the delivery
    /// of the path, and stays.
    pub fn on_unused(&mut self, used: u32) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.on_unused(used),
            Kind::Bbr(_) => {}
        }
    }

    /// Sets the values of its siblings: for LIA and OLIA all subflows of the connection, for the others those over the same path. `None` if
    /// there are none. BBR ignores them.
    pub fn set_coupling(&mut self, coupling: Option<Coupling>) {
        match &mut self.kind {
            Kind::Windowed(windowed) => windowed.set_coupling(coupling),
            Kind::Bbr(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
