//! Boxes that forge: corrupted payload with a mended checksum, forged segments, flipped bits.

use bytes::Bytes;
use core::ops::Range;
use plait_base::{Instant, Random, SeededRandom};
use plait_wire::{Flags, OptionBytes, Segment};

use crate::{Direction, Element, Frame, Outlet};

/// Changes payload and mends the TCP checksum, like a box that rewrites addresses inside of protocols.
pub struct Corruptor {
    direction: Direction,
    since: Instant,
    /// Number of segments still to change.
    left: u32,
}

impl Corruptor {
    /// Changes one byte in each of the first `count` segments with payload from `since` on.
    pub fn new(direction: Direction, since: Instant, count: u32) -> Self {
        Self { direction, since, left: count }
    }
}

impl Element for Corruptor {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let applies = self.left > 0 && now >= self.since && direction == self.direction;
        let frame = match frame.segment() {
            Some(mut segment) if applies && !segment.payload.is_empty() => {
                self.left -= 1;
                let mut payload = segment.payload.to_vec();
                let middle = payload.len() / 2;
                payload[middle] ^= 0x20;
                segment.payload = payload.into();
                Frame::of_segment(&segment)
            }
            Some(_) | None => frame,
        };
        out.push(now, direction, frame);
    }
}

/// The kind of forgery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// A reset with the exact sequence number.
    Reset,
    /// A FIN after the last seen data.
    Fin,
    /// Bytes that no application wrote, without options.
    Data,
}

/// A box that sees everything and injects segments of its own.
pub struct Forger {
    direction: Direction,
    forgery: Forgery,
    /// Number of data segments to let pass first.
    behind: u32,
}

impl Forger {
    /// Forges once, after the data segment number `behind` in `direction`.
    pub fn new(direction: Direction, forgery: Forgery, behind: u32) -> Self {
        Self { direction, forgery, behind }
    }
}

impl Element for Forger {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let seen = frame.segment();
        out.push(now, direction, frame);
        let Some(segment) = seen.filter(|segment| direction == self.direction && !segment.payload.is_empty())
        else {
            return;
        };
        if self.behind == 0 {
            return;
        }
        self.behind -= 1;
        if self.behind > 0 {
            return;
        }
        let (flags, payload) = match self.forgery {
            Forgery::Reset => (Flags::RST.with(Flags::ACK), Bytes::new()),
            Forgery::Fin => (Flags::FIN.with(Flags::ACK), Bytes::new()),
            Forgery::Data => (Flags::ACK.with(Flags::PSH), Bytes::from_static(b"nobody wrote this")),
        };
        let forged = Segment {
            seq: segment.seq + segment.len_seq(),
            flags,
            options: OptionBytes::new(),
            payload,
            segment_size: 1460,
            ..segment
        };
        out.push(now, direction, Frame::of_segment(&forged));
    }
}

/// Flips bits of TCP headers, options and payload, and mends the checksum, so that no checksum detects the
/// change.
pub struct Mutator {
    probability: f64,
    during: Range<Instant>,
    random: SeededRandom,
}

impl Mutator {
    /// Mutates each segment with this probability.
    pub fn new(probability: f64, during: Range<Instant>, seed: u64) -> Self {
        Self { probability, during, random: SeededRandom::from_number(seed) }
    }
}

impl Element for Mutator {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let frame = match frame.segment() {
            Some(mut segment) if self.during.contains(&now) && self.random.chance(self.probability) => {
                mutate(&mut segment, &mut self.random);
                Frame::of_segment(&segment)
            }
            Some(_) | None => frame,
        };
        out.push(now, direction, frame);
    }
}

fn mutate(segment: &mut Segment, random: &mut SeededRandom) {
    for _ in 0..=random.below(3) {
        let bit = random.next_u32();
        match random.below(6) {
            0 => segment.flags.0 ^= 1 << (bit % 9),
            1 => segment.seq = plait_base::SeqNum::new(segment.seq.bits() ^ (1 << (bit % 32))),
            2 => segment.ack = plait_base::SeqNum::new(segment.ack.bits() ^ (1 << (bit % 32))),
            3 => segment.window ^= 1 << (bit % 16),
            4 if !segment.payload.is_empty() => {
                let mut payload = segment.payload.to_vec();
                let at = bit as usize / 8 % payload.len();
                payload[at] ^= 1 << (bit % 8);
                segment.payload = payload.into();
            }
            _ if !segment.options.is_empty() => {
                let at = bit as usize / 8 % segment.options.len();
                segment.options[at] ^= 1 << (bit % 8);
            }
            _ => segment.urgent ^= 1 << (bit % 16),
        }
    }
}
