//! Effect of losses on the model (section 5.5.10), and its reversal if nothing was lost.

use plait_base::Instant;

use super::{Bbr, PathAck, State, UNBOUNDED, percent};
use crate::flight::Sent;

/// Losses beyond this percentage of the bytes in flight are too many (`LossThresh`).
const LOSS_PERCENT: u64 = 2;
/// The number of standard deviations by which they must exceed it.
const DEVIATIONS: u64 = 2;

/// A period of losses, from the first to the end of the recovery, and the state before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Episode {
    is_recovering: bool,
    /// Whether the earlier state is stored.
    is_noted: bool,
    rate_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
    /// The probe that the losses have ended.
    left: Option<State>,
}

impl Default for Episode {
    fn default() -> Self {
        Self {
            is_recovering: false,
            is_noted: false,
            rate_shortterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            inflight_longterm: UNBOUNDED,
            left: None,
        }
    }
}

impl Episode {
    pub(super) fn is_recovering(&self) -> bool {
        self.is_recovering
    }

    /// Notes that losses have ended this state.
    pub(super) fn left(&mut self, state: State) {
        self.left = Some(state);
    }
}

impl Bbr {
    /// Whether this many lost bytes of those in flight are too many. A path that loses [`LOSS_PERCENT`] of all segments by chance loses
    /// more than that in every second round trip, and the draft lets the sender yield each time. Here the losses must exceed the chance
    /// losses of such a path by two standard deviations. Without SACK a round trip shows one loss at most, and each counts.
    pub(super) fn is_too_much(&self, lost: u64, in_flight: u64) -> bool {
        let expected = percent(in_flight, LOSS_PERCENT);
        let deviation = expected.saturating_mul(self.mss).isqrt();
        let allowed = expected.saturating_add(DEVIATIONS * deviation);
        if self.has_sack { lost > allowed } else { lost > 0 }
    }

    /// A range was declared lost; `lost` and `delivered` count all bytes so far.
    pub(crate) fn on_lost(&mut self, now: Instant, sent: &Sent, lost: u64, delivered: u64) {
        self.rounds.note_delivered(delivered);
        self.note_episode();
        self.note_loss(lost.saturating_sub(sent.len()), delivered);
        let losses = &mut self.model.losses;
        losses.gaps += u32::from(sent.start != losses.gap_end);
        losses.gap_end = sent.end;
        if !self.cycle.is_probe {
            return;
        }
        let (since, in_flight) = (sent.departure.lost_since(lost), sent.departure.in_flight());
        if self.is_too_much(since, in_flight) {
            let volume = volume_at_loss(sent.len(), since, in_flight);
            self.bound_longterm(now, volume, sent.departure.is_app_limited());
        }
    }

    /// Notes a loss in this round trip, in addition to `lost` bytes before.
    pub(crate) fn note_loss(&mut self, lost: u64, delivered: u64) {
        let losses = &mut self.model.losses;
        if !losses.is_lossy {
            losses.is_lossy = true;
            losses.ends_beyond = delivered;
            losses.lost_before = lost;
            losses.delivered_before = delivered;
        }
    }

    /// Sets bounds by the delivered volume once per round trip outside of a probe, if too much was lost.
    pub(super) fn adapt_shortterm(&mut self, ack: &PathAck) {
        let losses = self.model.losses;
        if !losses.ends {
            return;
        }
        let lost = ack.lost - losses.lost_before;
        let all = lost + (ack.sample.total - losses.delivered_before);
        if losses.is_lossy && !self.is_accelerating() && self.is_too_much(lost, all) {
            self.model.lower_shortterm(self.window);
        }
        self.model.losses.is_lossy = false;
    }

    /// A fast recovery begins.
    pub(crate) fn on_recovery(&mut self) {
        self.note_episode();
        self.episode.is_recovering = true;
    }

    /// The retransmission timer has fired.
    pub(crate) fn on_timeout(&mut self) {
        self.note_episode();
        self.episode.is_recovering = true;
    }

    /// Lets one segment more than those in flight leave (section 5.6.4.4).
    pub(crate) fn on_timeout_judged(&mut self, in_flight: u32) {
        self.window = (u64::from(in_flight) + self.mss).min(self.window);
    }

    pub(crate) fn on_recovered(&mut self) {
        self.episode.is_recovering = false;
        self.episode.is_noted = false;
        self.restore_window();
    }

    fn note_episode(&mut self) {
        if self.episode.is_noted {
            return;
        }
        self.save_window();
        self.episode = Episode {
            is_recovering: self.episode.is_recovering,
            is_noted: true,
            rate_shortterm: self.model.rate_shortterm,
            inflight_shortterm: self.model.inflight_shortterm,
            inflight_longterm: self.model.inflight_longterm,
            left: None,
        };
    }

    /// Reverts the effect of losses, because nothing was lost (section 5.5.11). The bounds are as before, or higher, and an ended probe
    /// goes on.
    pub(crate) fn undo(&mut self) {
        self.on_recovered();
        let Episode {
            is_recovering: _,
            is_noted: _,
            rate_shortterm,
            inflight_shortterm,
            inflight_longterm,
            left,
        } = self.episode;
        self.model.losses.is_lossy = false;
        self.full_pipe.restart(0);
        self.model.rate_shortterm = self.model.rate_shortterm.max(rate_shortterm);
        self.model.inflight_shortterm = self.model.inflight_shortterm.max(inflight_shortterm);
        self.model.inflight_longterm = self.model.inflight_longterm.max(inflight_longterm);
        self.episode.left = None;
        match (left, self.state) {
            (None, _) | (Some(_), State::ProbeRtt) => {}
            (Some(State::Startup), _) => {
                self.full_pipe.set_reached(false);
                self.state = State::Startup;
            }
            (Some(_), _) => self.start_refill(),
        }
    }

    pub(super) fn save_window(&mut self) {
        let is_small = self.episode.is_recovering || self.state == State::ProbeRtt;
        self.prior_window = if is_small { self.prior_window.max(self.window) } else { self.window };
    }

    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }
}

/// Returns the volume in flight at which the losses became too many, within a run of `len` bytes.
fn volume_at_loss(len: u64, lost: u64, in_flight: u64) -> u64 {
    let (before, lost_before) = (in_flight.saturating_sub(len), lost.saturating_sub(len));
    let allowed = u128::from(before) * u128::from(LOSS_PERCENT);
    let prefix = allowed.saturating_sub(u128::from(lost_before) * 100) / u128::from(100 - LOSS_PERCENT);
    before.saturating_add(u64::try_from(prefix).unwrap_or(u64::MAX))
}
