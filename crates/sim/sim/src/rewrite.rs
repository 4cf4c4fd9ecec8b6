//! Boxes that rewrite headers: sequence numbers and addresses.

use core::net::SocketAddr;
use plait_base::{Instant, SeqNum};
use plait_wire::{Flags, SackBlocks, Segment, TcpOption, option_bytes, options};
use std::collections::BTreeMap;

use crate::{Direction, Element, Frame, Outlet};

/// Adds a constant to all sequence numbers of one direction, and subtracts it from the acknowledgments of
/// the other, SACK included, like firewalls that "improve" initial sequence numbers.
pub struct SequenceRewriter {
    /// Added to what the first end of the path sends.
    pub forward: u32,
    /// Added to what the second end sends.
    pub backward: u32,
}

impl Element for SequenceRewriter {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let (own, others) = match direction {
            Direction::Forward => (self.forward, self.backward),
            Direction::Backward => (self.backward, self.forward),
        };
        let frame = match frame.segment() {
            Some(mut segment) => {
                segment.seq += own;
                if segment.flags.contains(Flags::ACK) {
                    segment.ack = segment.ack - others;
                }
                shift_sack(&mut segment, others);
                Frame::of_segment(&segment)
            }
            None => frame,
        };
        out.push(now, direction, frame);
    }
}

fn shift_sack(segment: &mut Segment, by: u32) {
    let shift = |(left, right): &(SeqNum, SeqNum)| (*left - by, *right - by);
    let shifted = options(&segment.options).flatten().map(|option| match option {
        TcpOption::Sack(blocks) => TcpOption::Sack(blocks.iter().map(shift).collect::<SackBlocks>()),
        TcpOption::Mss(_)
        | TcpOption::WindowScale(_)
        | TcpOption::SackPermitted
        | TcpOption::Timestamps { .. }
        | TcpOption::Mptcp(_)
        | TcpOption::Eno(_)
        | TcpOption::Unknown { .. } => option,
    });
    if let Some(options) = option_bytes(shifted) {
        segment.options = options;
    }
}

/// Translates the addresses of the first end of a path: all its segments come from `public`, with a port for
/// each of its own.
pub struct Nat {
    public: core::net::IpAddr,
    next_port: u16,
    outside: BTreeMap<SocketAddr, u16>,
    inside: BTreeMap<u16, SocketAddr>,
}

impl Nat {
    /// Returns a translator with this address towards the second end. The world must route the address:
    /// [`crate::World::route`].
    pub fn new(public: core::net::IpAddr) -> Self {
        Self { public, next_port: 20_000, outside: BTreeMap::new(), inside: BTreeMap::new() }
    }

    fn port_for(&mut self, private: SocketAddr) -> u16 {
        *self.outside.entry(private).or_insert_with(|| {
            self.next_port += 1;
            self.inside.insert(self.next_port, private);
            self.next_port
        })
    }
}

impl Element for Nat {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(mut segment) = frame.segment() else { return };
        match direction {
            Direction::Forward => {
                segment.source = SocketAddr::new(self.public, self.port_for(segment.source));
            }
            Direction::Backward => match self.inside.get(&segment.destination.port()) {
                Some(private) => segment.destination = *private,
                None => return,
            },
        }
        out.push(now, direction, Frame::of_segment(&segment));
    }
}
