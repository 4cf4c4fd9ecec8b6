//! One direction of a link: packets in, decisions out.

use plait_base::{Instant, Random, SeededRandom};

use crate::bottleneck::Bottleneck;
use crate::jitter::Jitter;
use crate::loss::{LossState, draw};
use crate::{LinkConfig, Reordering};

/// One direction of a link.
pub struct Link {
    config: LinkConfig,
    bottleneck: Option<Bottleneck>,
    loss: LossState,
    jitter: Jitter,
    reordering: SeededRandom,
    duplication: SeededRandom,
    corruption: SeededRandom,
    /// When the last packet that was not held back arrives; none that is offered later comes before it.
    last_arrival: Instant,
    stats: LinkStats,
}

/// The decision on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It never arrives.
    Drop(DropReason),
    /// It arrives.
    Deliver {
        /// When.
        at: Instant,
        /// When it arrives a second time, not before the first; unchanged, even if the first is corrupted.
        duplicate_at: Option<Instant>,
        /// A bit to be flipped, counted from the highest bit of the first byte.
        corrupt: Option<u64>,
    },
}

/// The reason for which a packet never arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// Longer than the MTU: a router would report it to the sender.
    TooBig {
        /// The MTU, in bytes.
        mtu: u32,
    },
    /// No room in the queue.
    QueueFull,
    /// Lost by chance.
    Lost,
}

/// Counters of a link, in packets unless in bytes. A train counts as one packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkStats {
    /// Offered.
    pub offered: u64,
    /// Bytes offered.
    pub offered_bytes: u64,
    /// Delivered, duplicates not counted.
    pub delivered: u64,
    /// Bytes delivered, duplicates not counted.
    pub delivered_bytes: u64,
    /// Dropped for their length.
    pub too_big: u64,
    /// Dropped at the full queue.
    pub queue_full: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Held back for later ones to overtake.
    pub reordered: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered with a bit flipped.
    pub corrupted: u64,
}

impl Link {
    /// An idle link. Equal configurations, seeds and offers get equal decisions.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            bottleneck: config.rate.map(|rate| Bottleneck::new(rate, config.burst)),
            config,
            loss: LossState::new(generator(seed, 0)),
            jitter: Jitter::new(generator(seed, 1)),
            reordering: generator(seed, 2),
            duplication: generator(seed, 3),
            corruption: generator(seed, 4),
            last_arrival: Instant::ZERO,
            stats: LinkStats::default(),
        }
    }

    /// Returns the configuration.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns its counters.
    pub const fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Bytes that wait in front of the bottleneck at `now`.
    pub fn waiting(&self, now: Instant) -> u64 {
        self.bottleneck.map_or(0, |bottleneck| bottleneck.waiting(now))
    }

    /// Changes the configuration from `now` on. Packets in flight keep their decisions, and waiting ones their places: a packet offered
    /// later does not arrive before them.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.bottleneck = match (self.bottleneck, config.rate) {
            (Some(bottleneck), Some(rate)) => Some(bottleneck.changed(now, rate, config.burst)),
            (None, Some(rate)) => Some(Bottleneck::new(rate, config.burst)),
            (Some(_) | None, None) => None,
        };
        self.config = config;
    }

    /// Decides on a packet of `len` bytes that is offered at `now`, which never goes back.
    pub fn offer(&mut self, now: Instant, len: u32) -> Decision {
        self.offer_train(now, len, len)
    }

    /// As [`Link::offer`], for a super-segment of `len` bytes that stands for packets of at most `longest`.
    /// One decision for all of it: right where [`LinkConfig::is_faithful`], else offer its packets.
    pub fn offer_train(&mut self, now: Instant, len: u32, longest: u32) -> Decision {
        self.stats.offered += 1;
        self.stats.offered_bytes += u64::from(len);
        match self.carry(now, len, longest) {
            Ok(departure) => self.deliver(departure, len),
            Err(reason) => {
                *match reason {
                    DropReason::TooBig { .. } => &mut self.stats.too_big,
                    DropReason::QueueFull => &mut self.stats.queue_full,
                    DropReason::Lost => &mut self.stats.lost,
                } += 1;
                Decision::Drop(reason)
            }
        }
    }

    /// Through queue, bottleneck and loss: when the packet leaves the bottleneck.
    fn carry(&mut self, now: Instant, len: u32, longest: u32) -> Result<Instant, DropReason> {
        if longest > self.config.mtu {
            return Err(DropReason::TooBig { mtu: self.config.mtu });
        }
        let departure = match &mut self.bottleneck {
            None => now,
            Some(bottleneck) => {
                let waiting = bottleneck.waiting(now);
                if waiting > 0 && waiting.saturating_add(u64::from(len)) > self.config.queue_limit {
                    return Err(DropReason::QueueFull);
                }
                bottleneck.pass(now, u64::from(len))
            }
        };
        if self.loss.strikes(self.config.loss) { Err(DropReason::Lost) } else { Ok(departure) }
    }

    /// Across the link behind the bottleneck: delay, reordering, duplication, corruption.
    fn deliver(&mut self, departure: Instant, len: u32) -> Decision {
        let jitter = self.jitter.at(departure, self.config.jitter);
        let in_order = (departure + self.config.delay + jitter).max(self.last_arrival);
        let Reordering { probability, extra_delay } = self.config.reordering;
        let at = if draw(&mut self.reordering) < probability {
            self.stats.reordered += 1;
            in_order + extra_delay
        } else {
            self.last_arrival = in_order;
            in_order
        };

        let is_duplicated = draw(&mut self.duplication) < self.config.duplication;
        let is_corrupted = draw(&mut self.corruption) < self.config.corruption && len > 0;
        // Drawn for every packet, so that the next decision does not depend on this one.
        let bit = self.corruption.below(u64::from(len.max(1)) * 8);

        self.stats.delivered += 1;
        self.stats.delivered_bytes += u64::from(len);
        self.stats.duplicated += u64::from(is_duplicated);
        self.stats.corrupted += u64::from(is_corrupted);
        Decision::Deliver {
            at,
            duplicate_at: is_duplicated.then_some(at),
            corrupt: is_corrupted.then_some(bit),
        }
    }
}

/// The generator number `stream` of `seed`.
fn generator(seed: u64, stream: u8) -> SeededRandom {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] = stream;
    SeededRandom::new(bytes)
}
