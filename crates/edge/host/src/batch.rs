//! Batches of segments between the driver and a carrier. Both keep their allocations.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use plait_base::{Instant, PathId};
use plait_endpoint::Arrival;
use plait_pcap::Direction;
use plait_wire::{IcmpError, Malformed, Packet, Segment};

use crate::capture::Capture;
use crate::carrier::LocalAddress;
use crate::clock::Clock;
use crate::log::{debug, trace};
use crate::pool::{Buffer, Pool};
use crate::stack_address;
use crate::sys::Received;

/// Arrivals of a turn at which the carriers stop reading.
const READ_BATCH: usize = 64;

/// The arrivals of a turn.
pub(crate) struct Inbox<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) pool: &'a Pool,
    pub(crate) capture: Option<&'a mut Capture>,
    /// The position of the carrier among those of the host.
    pub(crate) carrier: usize,
    pub(crate) arrived: &'a mut Vec<Arrived>,
}

/// An arrival: a segment, a super-segment or an ICMP error.
pub(crate) struct Arrived {
    pub(crate) carrier: usize,
    pub(crate) arrival: Arrival,
    pub(crate) local: Option<LocalAddress>,
    pub(crate) packet: Result<Packet, Malformed>,
}

/// Segments to be sent, in their order.
pub(crate) struct Outbox<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) capture: Option<&'a mut Capture>,
    pub(crate) batch: &'a mut VecDeque<Outgoing>,
}

/// A segment, or a super-segment, to be sent.
pub(crate) struct Outgoing {
    /// The path that has the source address, if there is one.
    pub(crate) path: Option<PathId>,
    pub(crate) segment: Segment,
}

impl Inbox<'_> {
    /// A buffer for one packet of any length.
    pub(crate) fn buffer(&self) -> Buffer {
        self.pool.take()
    }

    /// Whether the carrier should read no more in this turn.
    pub(crate) fn is_full(&self) -> bool {
        self.arrived.len() >= READ_BATCH
    }

    /// Takes an IP packet, whose path follows from its destination. Its time is now, however long the rest of the batch and the lock take.
    pub(crate) fn take_packet(&mut self, packet: &Bytes, received: Received) {
        let arrival = Arrival::at(self.clock.now());
        if let Some(capture) = &mut self.capture {
            capture.received(packet, received);
        }
        let parsed = Packet::parse(packet, received.segment_size, received.trust);
        let parsed = parsed.and_then(|packet| match packet {
            Packet::Tcp(segment) if stack_address::is_one(segment.destination.ip()) => {
                Err(Malformed::Address)
            }
            packet => Ok(packet),
        });
        if let Err(reason) = &parsed {
            debug!(?reason, len = packet.len(), "packet dropped: malformed");
        }
        self.push(arrival, None, parsed);
    }

    /// Takes a segment that arrived on a path, for the address and port `at` of this host on the network. `local` is passed to
    /// [`crate::carrier::Carrier::note_arrival`].
    pub(crate) fn take_segment(
        &mut self,
        path: PathId,
        at: SocketAddr,
        local: Option<LocalAddress>,
        segment: Segment,
    ) {
        if let Some(capture) = &mut self.capture {
            capture.segment(Direction::Inbound, segment.clone(), Some(at));
        }
        self.push(self.arrival(path), local, Ok(Packet::Tcp(segment)));
    }

    /// Takes an error about a segment that was sent on a path.
    pub(crate) fn take_error(&mut self, path: PathId, error: IcmpError) {
        debug!(reason = ?error.reason, "ICMP error about a datagram");
        self.push(self.arrival(path), None, Ok(Packet::Icmp(error)));
    }

    /// Counts what arrived on a path and is no segment.
    pub(crate) fn take_malformed(&mut self, path: PathId, reason: Malformed) {
        trace!(?reason, "datagram dropped: malformed");
        self.push(self.arrival(path), None, Err(reason));
    }

    fn arrival(&self, path: PathId) -> Arrival {
        Arrival { at: self.clock.now(), path: Some(path) }
    }

    fn push(&mut self, arrival: Arrival, local: Option<LocalAddress>, packet: Result<Packet, Malformed>) {
        self.arrived.push(Arrived { carrier: self.carrier, arrival, local, packet });
    }
}

impl Outbox<'_> {
    /// The time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The next segment. It stays until [`Outbox::sent`] or [`Outbox::lost`] is called.
    pub(crate) fn next(&self) -> Option<&Outgoing> {
        self.batch.front()
    }

    /// Removes the next segment: it has left, from the address and port `from` on the network if the carrier knows them.
    pub(crate) fn sent(&mut self, from: Option<SocketAddr>) {
        if let (Some(Outgoing { segment, path: _ }), Some(capture)) =
            (self.batch.pop_front(), &mut self.capture)
        {
            capture.segment(Direction::Outbound, segment, from);
        }
    }

    /// Removes the next segment: it is lost, as on any network.
    pub(crate) fn lost(&mut self) {
        self.batch.pop_front();
    }
}
