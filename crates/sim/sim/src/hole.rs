//! Boxes that drop packets: black holes, acknowledgment loss, links with a small MTU.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use plait_base::{Instant, Random, SeededRandom};
use plait_wire::{Flags, IcmpReason, IpVersion, Segment, icmp_error};

use crate::{Direction, Element, Frame, Outlet};

/// Drops everything for some time, silently.
pub struct BlackHole {
    /// The time range.
    pub during: Range<Instant>,
}

impl Element for BlackHole {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if !self.during.contains(&now) {
            out.push(now, direction, frame);
        }
    }
}

/// Loses bare acknowledgments.
pub struct AckLoss {
    probability: f64,
    random: SeededRandom,
}

impl AckLoss {
    /// Loses each with this probability.
    pub fn new(probability: f64, seed: u64) -> Self {
        Self { probability, random: SeededRandom::from_number(seed) }
    }
}

impl Element for AckLoss {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let is_bare = |segment: &Segment| segment.payload.is_empty() && segment.flags == Flags::ACK;
        if !(frame.segment().is_some_and(|segment| is_bare(&segment)) && self.random.chance(self.probability))
        {
            out.push(now, direction, frame);
        }
    }
}

/// A link that carries only small packets.
pub struct NarrowLink {
    /// MTU, in bytes, IP header included.
    pub mtu: u16,
    /// Whether the router in front of it reports that a packet is too big, or drops it silently.
    pub speaks: bool,
}

impl Element for NarrowLink {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if frame.bytes.len() <= usize::from(self.mtu) {
            out.push(now, direction, frame);
            return;
        }
        if !self.speaks {
            return;
        }
        let Some(segment) = frame.segment() else { return };
        let router = match IpVersion::of(&segment.source.ip()) {
            IpVersion::V4 => IpAddr::from(Ipv4Addr::new(198, 51, 100, 1)),
            IpVersion::V6 => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1)),
        };
        let reason = IcmpReason::TooBig { mtu: u32::from(self.mtu) };
        if let Ok(error) = icmp_error(reason, router, &frame.bytes) {
            out.push(now, direction.reversed(), Frame::new(error.into()));
        }
    }
}
