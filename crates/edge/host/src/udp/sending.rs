//! Sends from the endpoint to the sockets.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plait_base::{Instant, PathId};
use plait_carrier::tcp_in_udp::Datagrams;
use plait_tcp::FourTuple;
use plait_wire::{Flags, Segment};

use super::socket::Socket;
use super::{Opened, Udp};

/// The writer of the sockets; it keeps its allocation.
pub(super) struct Sender {
    udp: Arc<Udp>,
    datagrams: Datagrams,
}

impl Sender {
    pub(super) fn new(udp: Arc<Udp>) -> Self {
        Self { udp, datagrams: Datagrams::default() }
    }

    /// Sends a segment, or a super-segment, from the stack's address on a path over UDP; returns its source address on the network.
    ///
    /// # Errors
    /// The segment is lost, as on any network: there is no socket for it, or no room in the socket's queue.
    pub(super) fn send(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        segment: &Segment,
    ) -> io::Result<SocketAddr> {
        let (socket, from) = self.udp.socket_for(now, path, segment)?;
        self.datagrams.write(segment);
        let Self { udp: _, datagrams } = self;
        socket.send((from, segment.destination), segment.ecn, datagrams.bytes(), datagrams.size())?;
        Ok(socket.at(from))
    }
}

impl Udp {
    /// Returns the socket of a segment, and its source address if the socket has several. A SYN that opens a subflow gets a socket of its
    /// own.
    fn socket_for(
        &self,
        now: Instant,
        path: Option<PathId>,
        segment: &Segment,
    ) -> io::Result<(Arc<Socket>, Option<IpAddr>)> {
        let mut table = self.lock();
        if !table.credits.allows(segment) {
            // Sent when the question is repeated.
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let tuple = FourTuple { local: segment.source, remote: segment.destination };
        let is_syn = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let number = match table.opened.get_mut(&tuple) {
            Some(opened) => {
                opened.sent = now;
                opened.number
            }
            None if is_syn => {
                let place = table.places.iter().find(|place| Some(place.path) == path).cloned();
                let place = place.ok_or(ErrorKind::NotFound)?;
                let own = place.own_for(segment.source.ip()).ok_or(ErrorKind::AddrNotAvailable)?;
                // The kernel chooses the port: another program may use the stack's port.
                let socket = Socket::connect(&place, tuple.local, own, tuple.remote)?;
                let number = self.add(&mut table, socket)?;
                table.opened.insert(tuple, Opened { number, sent: now });
                number
            }
            None => *table.listening.get(&tuple.local).ok_or(ErrorKind::NotConnected)?,
        };
        let socket = table.sockets.get(&number).cloned().ok_or(ErrorKind::NotConnected)?;
        let from = socket.remote.is_none().then(|| table.asked.answers_from(&tuple, socket.own));
        Ok((socket, from))
    }
}
