//! The laws of controllers with a window: its growth in congestion avoidance, and its fall on loss.

#[cfg(test)]
mod example;

use plait_base::Instant;

use super::Ack;
use super::coupled::{Coupling, Lia, Olia};
use super::cubic::Cubic;

/// One law. Slow start, timeouts and the smallest window are common to all laws ([`super::windowed`]).
pub(super) trait Grow {
    /// Returns the bytes to add to a window of `window` bytes for an ACK in congestion avoidance that found the window in use. `share` is
    /// the part of the increase of one TCP.
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, share: f64) -> f64;

    /// Returns the window after a loss with `used` bytes of the window in use.
    fn reduced(&mut self, _now: Instant, _mss: u32, used: u32) -> u32 {
        used / 2
    }

    /// Counts acknowledged bytes, in slow start too.
    fn on_acked(&mut self, _bytes: u32) {}

    /// Notes time in which the window was not in use.
    fn on_unused_window(&mut self, _now: Instant) {}

    /// Notes a timeout or an idle time: the next ACK in congestion avoidance begins anew.
    fn end_epoch(&mut self) {}

    /// Takes the values of all subflows of the connection, or of those in one queue ([`super::Coupled`]).
    fn set_siblings(&mut self, _siblings: Option<Coupling>) {}

    /// Whether pacing may spread the window over the round trip.
    fn is_paced(&self) -> bool {
        true
    }

    /// Smoothed bytes between two losses, if the law counts them.
    fn bytes_between_losses(&self) -> u64 {
        0
    }
}

/// The law of a controller. An enum, because it is copied before each reduction, to be restored by `undo`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Law {
    NewReno(NewReno),
    Cubic(Cubic),
    Lia(Lia),
    Olia(Olia),
}

/// One segment in each round trip (RFC 5681).
#[derive(Clone, Copy, Debug)]
pub(super) struct NewReno;

impl Law {
    pub(super) fn rule(&self) -> &dyn Grow {
        match self {
            Self::NewReno(law) => law,
            Self::Cubic(law) => law,
            Self::Lia(law) => law,
            Self::Olia(law) => law,
        }
    }

    pub(super) fn rule_mut(&mut self) -> &mut dyn Grow {
        match self {
            Self::NewReno(law) => law,
            Self::Cubic(law) => law,
            Self::Lia(law) => law,
            Self::Olia(law) => law,
        }
    }
}

impl Grow for NewReno {
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, share: f64) -> f64 {
        share * reno_growth(ack, mss, window)
    }
}

/// One segment per window of acknowledged bytes (RFC 5681, equation 3, in bytes).
pub(super) fn reno_growth(ack: &Ack, mss: u32, window: u32) -> f64 {
    f64::from(ack.bytes) * f64::from(mss) / f64::from(window.max(1))
}
