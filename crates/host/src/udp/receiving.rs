//! From the sockets to the endpoint.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plait_base::PathId;
use plait_carrier::tcp_in_udp::{Train, trains};
use plait_tcp::FourTuple;
use plait_wire::{Malformed, Packet, Segment};
use quinn_udp::RecvMeta;
use tracing::debug;

use super::Udp;
use super::socket::Socket;
use crate::pool::{Buffer, Pool};
use crate::sys::{Ready, is_about_another};

/// Buffers that one call may fill, each with what receive offload has merged.
const AT_ONCE: usize = 4;
/// Errors of a socket that are read in a turn.
const ERRORS_AT_ONCE: usize = 8;

/// Reads the sockets; it keeps its allocations.
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

    /// Gives `take` what has come, by which path and to which address of ours, until there is no more or `take` says that it is enough.
    pub(crate) fn receive(
        &mut self,
        pool: &Pool,
        mut take: impl FnMut(PathId, SocketAddr, Result<Packet, Malformed>) -> bool,
    ) -> io::Result<()> {
        for Ready { number, has_errors } in self.udp.watched.ready()? {
            let socket = self.udp.lock().sockets.get(&number).cloned();
            let Some(socket) = socket else { continue };
            if has_errors {
                let errors = std::iter::from_fn(|| socket.next_error()).take(ERRORS_AT_ONCE).flatten();
                errors.for_each(|error| {
                    take(socket.path, socket.at(None), Ok(Packet::Icmp(error)));
                });
            }
            if !self.read(&socket, pool, &mut take) {
                break;
            }
        }
        Ok(())
    }

    /// Reads a socket once; whether more is wanted.
    fn read(
        &mut self,
        socket: &Socket,
        pool: &Pool,
        take: &mut impl FnMut(PathId, SocketAddr, Result<Packet, Malformed>) -> bool,
    ) -> bool {
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
            // Without the scope and flow label that a socket adds to addresses of IPv6.
            let source = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            for train in self.found.drain(..) {
                let segment = train.and_then(|train| train.segment((source, socket.local), ecn, &bytes));
                if let Ok(segment) = &segment {
                    self.udp.note_arrival(socket, segment, meta.dst_ip);
                }
                is_more_wanted = take(socket.path, socket.at(meta.dst_ip), segment.map(Packet::Tcp));
            }
        }
        is_more_wanted
    }
}

impl Udp {
    /// What has come may have to be answered.
    fn note_arrival(&self, socket: &Socket, segment: &Segment, asked: Option<IpAddr>) {
        if let Some(address) = asked.filter(|address| socket.remote.is_none() && *address != socket.own) {
            let tuple = FourTuple { local: segment.destination, remote: segment.source };
            self.lock().asked.note(tuple, address, socket.own);
        }
        if segment.flags.contains(plait_wire::Flags::SYN) {
            self.lock().credits.note(segment);
        }
    }
}
