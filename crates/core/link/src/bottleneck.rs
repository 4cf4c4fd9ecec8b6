//! The token bucket and the queue in front of it.

use core::num::NonZeroU64;
use plait_base::Instant;

/// When everything accepted so far is paid for, at a rate. No queue is kept: with one rate for all, the
/// bytes that wait follow from that moment.
///
/// Times are in nanoseconds multiplied by the rate, so that no packet's time is rounded and a long run has
/// exactly the rate asked for. A bit costs [`BIT`] at any rate; all products fit 128 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bottleneck {
    rate: NonZeroU64,
    burst: u64,
    paid: u128,
}

/// Nanoseconds in a second: what one bit costs in nanoseconds times bits per second.
const BIT: u128 = 1_000_000_000;

impl Bottleneck {
    /// Idle, with a full bucket.
    pub(crate) const fn new(rate: NonZeroU64, burst: u64) -> Self {
        Self { rate, burst, paid: 0 }
    }

    /// One of another rate with as many bytes in its queue.
    pub(crate) fn changed(&self, now: Instant, rate: NonZeroU64, burst: u64) -> Self {
        let mut changed = Self::new(rate, burst);
        let unpaid = self.paid.saturating_sub(self.scaled(now));
        let ahead = unpaid.min(cost(burst) + self.waiting_cost(now));
        changed.paid = changed.scaled(now).saturating_add(ahead);
        changed
    }

    /// Bytes that wait at `now`, the unsent part of one under way included.
    pub(crate) fn waiting(&self, now: Instant) -> u64 {
        u64::try_from(self.waiting_cost(now).div_ceil(8 * BIT)).unwrap_or(u64::MAX)
    }

    /// Takes `len` bytes and returns when the last of them has passed.
    pub(crate) fn pass(&mut self, now: Instant, len: u64) -> Instant {
        self.paid = self.paid.max(self.scaled(now)).saturating_add(cost(len));
        let departure = self.paid.saturating_sub(cost(self.burst)).div_ceil(u128::from(self.rate.get()));
        Instant::from_nanos(u64::try_from(departure).unwrap_or(u64::MAX)).max(now)
    }

    fn waiting_cost(&self, now: Instant) -> u128 {
        self.paid.saturating_sub(self.scaled(now)).saturating_sub(cost(self.burst))
    }

    fn scaled(&self, at: Instant) -> u128 {
        u128::from(at.as_nanos()) * u128::from(self.rate.get())
    }
}

/// Returns the cost of `bytes`, at any rate.
fn cost(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * BIT
}
