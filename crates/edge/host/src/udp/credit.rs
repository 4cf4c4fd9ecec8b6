//! No amplification: until a peer's address is validated, an answer is never longer than the question.
//!
//! Only a SYN has such an answer, the SYN/ACK. Any other answer to an unknown peer is a reset: the shortest segment, except for the
//! reason in a reset that refuses a join, which is shorter than the join. A SYN/ACK is sent again only for a SYN that was sent
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use plait_carrier::tcp_in_udp::{HEADER, MAX_HEADER};
use plait_wire::{Flags, Segment};

/// Most SYNs that wait for their answers. The answer comes at once; a SYN beyond the limit is answered when it is repeated.
const MOST: usize = 4096;

/// The bytes that may be sent to each address.
#[derive(Default)]
pub(super) struct Credits {
    bytes: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// In the order in which they came.
    order: VecDeque<(SocketAddr, SocketAddr)>,
}

impl Credits {
    /// Notes a received segment.
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

/// Whether the segment has exactly these of the flags SYN and ACK.
fn is(segment: &Segment, flags: Flags) -> bool {
    let others = Flags::SYN.with(Flags::ACK).without(flags);
    segment.flags.contains(flags) && (others == Flags::default() || !segment.flags.contains(others))
}

/// Its length as a datagram.
fn len(segment: &Segment) -> usize {
    HEADER + segment.options.len().next_multiple_of(4) + segment.payload.len()
}
