//! Receives from the sockets for the driver.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use plait_carrier::tcp_in_udp::{Arrived, trains};
use plait_wire::{Flags, Malformed};
use quinn_udp::RecvMeta;

use super::Udp;
use super::socket::Socket;
use crate::batch::Inbox;
use crate::carrier::LocalAddress;
use crate::log::debug;
use crate::pool::Buffer;
use crate::sys::{Ready, is_about_another};

/// Most buffers filled by one call, each with datagrams merged by receive offload.
const AT_ONCE: usize = 4;
/// Most errors of a socket read in a turn.
const ERRORS_AT_ONCE: usize = 8;

/// The reader of the sockets; it keeps its allocations.
pub(super) struct Receiver {
    udp: Arc<Udp>,
    buffers: Vec<Buffer>,
    found: Vec<Result<Arrived, Malformed>>,
}

impl Receiver {
    pub(super) fn new(udp: Arc<Udp>) -> Self {
        let (buffers, found) = (Vec::with_capacity(AT_ONCE), Vec::new());
        Self { udp, buffers, found }
    }

    /// Moves arrivals into `inbox`, until there are no more or it is full. A socket that is left makes its set readable again.
    pub(super) fn receive(&mut self, inbox: &mut Inbox<'_>) -> io::Result<()> {
        for Ready { number, has_errors } in self.udp.watched.ready()? {
            let socket = self.udp.lock().sockets.get(&number).cloned();
            let Some(socket) = socket else { continue };
            if has_errors {
                let errors = std::iter::from_fn(|| socket.next_error()).take(ERRORS_AT_ONCE).flatten();
                errors.for_each(|error| inbox.take_error(socket.path, error));
            }
            self.read(&socket, inbox);
            if inbox.is_full() {
                break;
            }
        }
        Ok(())
    }

    /// Reads a socket once.
    fn read(&mut self, socket: &Socket, inbox: &mut Inbox<'_>) {
        self.buffers.resize_with(AT_ONCE, || inbox.buffer());
        let mut meta = [RecvMeta::default(); AT_ONCE];
        let mut slices = self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer.as_mut()));
        let mut slices: [_; AT_ONCE] = std::array::from_fn(|_| slices.next().expect("as many as were made"));
        let filled = match socket.receive(&mut slices, &mut meta) {
            Ok(filled) => filled,
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_about_another(&error) => return,
            Err(error) => {
                debug!(%error, "a socket cannot be read");
                return;
            }
        };
        for (meta, mut buffer) in meta.iter().zip(self.buffers.drain(..)).take(filled) {
            let len = meta.len.min(buffer.as_ref().len());
            trains(&mut buffer.as_mut()[..len], meta.stride, |train| self.found.push(train));
            let (bytes, _) = buffer.split(len);
            let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
            // Without the scope and flow label that a socket adds to IPv6 addresses.
            let source = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            for train in self.found.drain(..) {
                let segment = train.and_then(|train| train.segment((source, socket.local), ecn, &bytes));
                let segment = match segment {
                    Ok(segment) => segment,
                    Err(reason) => {
                        inbox.take_malformed(socket.path, reason);
                        continue;
                    }
                };
                if segment.flags.contains(Flags::SYN) {
                    self.udp.lock().credits.note(&segment);
                }
                let local = meta.dst_ip.filter(|_| socket.remote.is_none());
                let local = local.map(|address| LocalAddress { address, own: socket.own });
                inbox.take_segment(socket.path, socket.at(meta.dst_ip), local, segment);
            }
        }
    }
}
