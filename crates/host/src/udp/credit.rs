//! No amplification: until somebody has shown that his address is his own, an answer is never longer than the question.
//!
//! Only a SYN has such an answer, the SYN/ACK: what else is said to strangers is a reset, the shortest segment there is but for the
//! reason in one that refuses a join, which is shorter than the join. A SYN/ACK that is sent again needs a SYN that was sent again.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use plait_carrier::tcp_in_udp::{HEADER, MAX_HEADER};
use plait_wire::{Flags, Segment};

/// SYNs that wait for their answers. It comes at once; what is more than these is answered when it is said again.
const MOST: usize = 4096;

/// Bytes that may be said to whom.
#[derive(Default)]
pub(super) struct Credits {
    bytes: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// In the order in which they came.
    order: VecDeque<(SocketAddr, SocketAddr)>,
}

impl Credits {
    /// A segment has come.
    pub(super) fn note(&mut self, segment: &Segment) {
        if !is(segment, Flags::SYN) {
            return;
        }
        let who = (segment.destination, segment.source);
        if let Some(bytes) = self.bytes.get_mut(&who) {
            *bytes = (*bytes + len(segment)).min(2 * MAX_HEADER);
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes.remove(&oldest);
        }
        self.bytes.insert(who, len(segment));
        self.order.push_back(who);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.bytes.len(), self.order.len())
    }

    /// Whether a segment may leave.
    pub(super) fn allows(&mut self, segment: &Segment) -> bool {
        if !is(segment, Flags::SYN.with(Flags::ACK)) {
            return true;
        }
        let Some(bytes) = self.bytes.get_mut(&(segment.source, segment.destination)) else { return false };
        let left = bytes.checked_sub(len(segment));
        *bytes = left.unwrap_or(*bytes);
        left.is_some()
    }
}

/// Whether of SYN and ACK it has these.
fn is(segment: &Segment, flags: Flags) -> bool {
    let others = Flags::SYN.with(Flags::ACK).without(flags);
    segment.flags.contains(flags) && (others == Flags::default() || !segment.flags.contains(others))
}

/// Its length as a datagram.
fn len(segment: &Segment) -> usize {
    HEADER + segment.options.len().next_multiple_of(4) + segment.payload.len()
}
