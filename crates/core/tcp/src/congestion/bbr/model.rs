//! Estimates of the path: its delivery rate, and the volume of our bytes that it holds (section 5.5).

use plait_base::Duration;

use super::{PathAck, UNBOUNDED, percent};
use crate::pace::NANOS_PER_SECOND;

/// A rate beyond which nothing is believed, so that products of rates and times have an end: 2^40 bytes per second.
pub(super) const MAX_RATE: u64 = 1 << 40;
/// The part of a bound that remains at least after one round trip with loss, in percent (`Beta`).
pub(super) const BETA_PERCENT: u64 = 70;

/// The estimates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Largest rates of the last cycle of probing and of this one.
    rates: [u64; 2],
    /// Bounds of rate and volume that losses since the last probe have set.
    pub(super) rate_shortterm: u64,
    pub(super) inflight_shortterm: u64,
    /// Volume beyond which a probe has seen too much loss.
    pub(super) inflight_longterm: u64,
    /// Largest rate and volume delivered in the round trip that is running.
    latest_rate: u64,
    latest_delivered: u64,
    pub(super) losses: LossRound,
}

/// The round trip in which losses are counted. It begins with the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRound {
    /// It ends with the delivery of data that leaves after this many bytes are delivered.
    pub(super) ends_beyond: u64,
    /// It has just ended.
    pub(super) ends: bool,
    /// Something was lost in it.
    pub(super) is_lossy: bool,
    /// Bytes lost when it began.
    pub(super) lost_before: u64,
    /// Bytes delivered then.
    pub(super) delivered_before: u64,
    /// Ranges with something between them that were lost, and the end of the last.
    pub(super) gaps: u32,
    pub(super) gap_end: u64,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            rates: [0; 2],
            rate_shortterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            inflight_longterm: UNBOUNDED,
            latest_rate: 0,
            latest_delivered: 0,
            losses: LossRound::default(),
        }
    }

    /// Largest rate of two cycles.
    pub(super) fn max_rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// Returns the rate in effect.
    pub(super) fn rate(&self) -> u64 {
        self.max_rate().min(self.rate_shortterm)
    }

    pub(super) fn latest_delivered(&self) -> u64 {
        self.latest_delivered
    }

    /// Takes a sample of the rate (section 5.5.3). A sample that the owner has limited counts if it is higher.
    pub(super) fn take_rate(&mut self, ack: &PathAck) {
        let rate = ack.rate();
        if rate > 0 && (rate >= self.max_rate() || !ack.is_app_limited()) {
            self.rates[1] = self.rates[1].max(rate);
        }
    }

    /// Ends a cycle of probing. A cycle without a sample does not replace the last one.
    pub(super) fn end_cycle(&mut self) {
        if self.rates[1] > 0 {
            self.rates = [self.rates[1], 0];
        }
    }

    /// At the beginning of each acknowledgment (section 5.5.10.3).
    pub(super) fn take_latest(&mut self, ack: &PathAck) {
        self.latest_rate = self.latest_rate.max(ack.rate());
        self.latest_delivered = self.latest_delivered.max(ack.sample.delivered);
        self.losses.ends = ack.sample.prior >= self.losses.ends_beyond;
        if self.losses.ends {
            self.losses.ends_beyond = ack.sample.total;
        }
    }

    /// At its end.
    pub(super) fn advance_latest(&mut self, ack: &PathAck) {
        if self.losses.ends {
            self.latest_rate = ack.rate();
            self.latest_delivered = ack.sample.delivered;
            self.losses.gaps = 0;
        }
    }

    /// Lowers the bounds after a round trip with losses outside of a probe: to less than before, but not below the latest delivery.
    /// `window` limited the volume so far.
    pub(super) fn lower_shortterm(&mut self, window: u64) {
        let (rate, inflight) = (
            if self.rate_shortterm == UNBOUNDED { self.max_rate() } else { self.rate_shortterm },
            if self.inflight_shortterm == UNBOUNDED { window } else { self.inflight_shortterm },
        );
        self.rate_shortterm = self.latest_rate.max(percent(rate, BETA_PERCENT));
        self.inflight_shortterm = self.latest_delivered.max(percent(inflight, BETA_PERCENT));
    }

    pub(super) fn reset_shortterm(&mut self) {
        self.rate_shortterm = UNBOUNDED;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// Drops the effect of past losses.
    pub(super) fn reset_congestion(&mut self) {
        self.losses.is_lossy = false;
        self.latest_rate = 0;
        self.latest_delivered = 0;
    }
}

/// Bytes that `rate` gives in `time`.
pub(super) fn volume(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / u128::from(NANOS_PER_SECOND)).unwrap_or(u64::MAX)
}
