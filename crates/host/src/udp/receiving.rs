//! Receives from the sockets for the endpoint.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use plait_base::PathId;
use plait_carrier::tcp_in_udp::{Train, trains};
use plait_tcp::FourTuple;
use plait_wire::{Flags, Malformed, Packet, Segment};
use quinn_udp::RecvMeta;
use tracing::debug;

use super::Udp;
use super::asked::Asking;
use super::socket::Socket;
use crate::pool::{Buffer, Pool};
use crate::sys::{Ready, is_about_another};

/// Most buffers filled by one call, each with datagrams merged by receive offload.
const AT_ONCE: usize = 4;
/// Most errors of a socket read in a turn.
const ERRORS_AT_ONCE: usize = 8;

/// An arrival on a path: a segment or a super-segment, or an error about a sent one.
pub(crate) struct Datagrams {
    pub(crate) path: PathId,
    /// The local address.
    pub(crate) local: SocketAddr,
    /// The local address at a listening socket, where it may differ from the path's.
    pub(crate) asking: Option<Asking>,
    pub(crate) packet: Result<Packet, Malformed>,
}

/// The reader of the sockets; it keeps its allocations.
pub(crate) struct Receiver {
    udp: Arc<Udp>,
    buffers: Vec<Buffer>,
    found: Vec<Result<Train, Malformed>>,
}

impl Receiver {
    pub(crate) fn new(udp: Arc<Udp>) -> Self {
        let (buffers, found) = (Vec::with_capacity(AT_ONCE), Vec::new());
        Self { udp, buffers, found }
    }

    /// Passes arrivals to `take`, until there are no more or `take` returns that it is enough.
    pub(crate) fn receive(&mut self, pool: &Pool, mut take: impl FnMut(Datagrams) -> bool) -> io::Result<()> {
        for Ready { number, has_errors } in self.udp.watched.ready()? {
            let socket = self.udp.lock().sockets.get(&number).cloned();
            let Some(socket) = socket else { continue };
            if has_errors {
                let errors = std::iter::from_fn(|| socket.next_error()).take(ERRORS_AT_ONCE).flatten();
                errors.for_each(|error| {
                    let (path, local) = (socket.path, socket.at(None));
                    take(Datagrams { path, local, asking: None, packet: Ok(Packet::Icmp(error)) });
                });
            }
            if !self.read(&socket, pool, &mut take) {
                break;
            }
        }
        Ok(())
    }

    /// Reads a socket once; returns whether to read more.
    fn read(&mut self, socket: &Socket, pool: &Pool, take: &mut impl FnMut(Datagrams) -> bool) -> bool {
        self.buffers.resize_with(AT_ONCE, || pool.take());
        let mut meta = [RecvMeta::default(); AT_ONCE];
        let mut slices = self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer.as_mut()));
        let mut slices: [_; AT_ONCE] = std::array::from_fn(|_| slices.next().expect("as many as were made"));
        let filled = match socket.receive(&mut slices, &mut meta) {
            Ok(filled) => filled,
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_about_another(&error) => return true,
            Err(error) => {
                debug!(%error, "a socket cannot be read");
                return true;
            }
        };
        let mut is_more_wanted = true;
        for (meta, mut buffer) in meta.iter().zip(self.buffers.drain(..)).take(filled) {
            let len = meta.len.min(buffer.as_ref().len());
            trains(&mut buffer.as_mut()[..len], meta.stride, |train| self.found.push(train));
            let (bytes, _) = buffer.split(len);
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            // Without the scope and flow label that a socket adds to IPv6 addresses.
            let source = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            for train in self.found.drain(..) {
                let segment = train.and_then(|train| train.segment((source, socket.local), ecn, &bytes));
                if let Ok(segment) = &segment
                    && segment.flags.contains(Flags::SYN)
                {
                    self.udp.lock().credits.note(segment);
                }
                let (path, local) = (socket.path, socket.at(meta.dst_ip));
                let asking = meta.dst_ip.filter(|_| socket.remote.is_none());
                let asking = asking.map(|address| Asking { address, own: socket.own });
                is_more_wanted = take(Datagrams { path, local, asking, packet: segment.map(Packet::Tcp) });
            }
        }
        is_more_wanted
    }
}

impl Udp {
    /// Notes the local address of a packet to a listening socket, before the endpoint gets it: answers are sent from
    /// that address.
    pub(crate) fn note_asking(
        &self,
        segment: &Segment,
        asking: Asking,
        has_tuple: impl Fn(&FourTuple) -> bool,
    ) {
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        self.lock().asked.note(tuple, asking, has_tuple);
    }
}
