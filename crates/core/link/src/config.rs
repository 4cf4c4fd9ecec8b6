//! The configuration of a link.

use core::num::NonZeroU64;
use plait_base::Duration;

use crate::Loss;

/// One direction of a link. The default is perfect: immediate, of any rate, and nothing ever happens.
///
/// Probabilities are 0 to 1 per packet; what lies outside counts as the nearest of the two, NaN as 0.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// Bits per second through the bottleneck, headers from IP upwards counted; `None`: no bottleneck.
    pub rate: Option<NonZeroU64>,
    /// Depth of the token bucket in bytes: what passes at once after an idle time. At 0 each packet takes
    /// the time that its bits take at `rate`, as on a real wire.
    pub burst: u64,
    /// Bytes that wait in front of the bottleneck at most; a packet that would exceed it is dropped,
    /// unless nothing waits at all.
    pub queue_limit: u64,
    /// Longest packet in bytes, IP header included.
    pub mtu: u32,
    /// Propagation delay.
    pub delay: Duration,
    /// Additional delay that wanders between 0 and this. It does not reorder.
    pub jitter: Duration,
    /// Loss behind the bottleneck: a lost packet has used its share of the rate.
    pub loss: Loss,
    /// Packets that later ones overtake.
    pub reordering: Reordering,
    /// Probability of arriving twice.
    pub duplication: f64,
    /// Probability of arriving with one bit flipped.
    pub corruption: f64,
}

/// Reordering: some packets are held back while the rest passes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reordering {
    /// Probability of being held back.
    pub probability: f64,
    /// For how long.
    pub extra_delay: Duration,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            burst: 0,
            queue_limit: u64::MAX,
            mtu: 1500,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            reordering: Reordering::default(),
            duplication: 0.0,
            corruption: 0.0,
        }
    }
}

impl LinkConfig {
    /// Whether every packet that finds room arrives once, unchanged and in order. Then a super-segment may
    /// be offered in one piece ([`crate::Link::offer_train`]); else chance has to strike each of its packets.
    pub fn is_faithful(&self) -> bool {
        let never = |probability: f64| probability.is_nan() || probability <= 0.0;
        self.loss == Loss::None
            && never(self.reordering.probability)
            && never(self.duplication)
            && never(self.corruption)
    }
}

/// A rate in Mbit/s (10^6 bits per second); `None`, no bottleneck, for 0.
pub const fn megabits(rate: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(rate.saturating_mul(1_000_000))
}
