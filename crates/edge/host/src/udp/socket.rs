//! One UDP socket.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plait_base::PathId;
use plait_wire::IcmpError;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::Place;
use crate::sys::{self, Sockets, Watched, is_about_another, is_refusal};

/// Buffer of a socket in each direction, in bytes, if the system allows it: the packets that a TUN device delivers while the driver is
/// busy. Root needs no permission (`SO_RCVBUFFORCE`).
const BUFFER: usize = 16 << 20;

/// A non-blocking UDP socket that is bound to a path. Its datagrams are never fragmented.
#[derive(Debug)]
pub(super) struct Socket {
    watched: Mutex<Option<Watched>>,
    io: UdpSocket,
    state: UdpSocketState,
    pub(super) path: PathId,
    /// The kernel's number of the device that it is bound to.
    pub(super) device_index: u32,
    /// The stack's address and port.
    pub(super) local: SocketAddr,
    /// The device's address.
    pub(super) own: IpAddr,
    /// The port on the network.
    pub(super) port: u16,
    /// The peer, if the socket is connected. Otherwise the socket listens: it accepts packets from every peer, to any of several local
    /// addresses.
    pub(super) remote: Option<SocketAddr>,
}

impl Socket {
    /// Opens a socket for the stack's address `local` that is connected to `remote`, from the address `own` of the path's device and a port
    /// that the kernel chooses: another program may use the stack's port.
    pub(super) fn connect(
        place: &Place,
        local: SocketAddr,
        own: IpAddr,
        remote: SocketAddr,
    ) -> io::Result<Self> {
        Self::of(sys::connected(&place.device, own, remote)?, place, (local, own), Some(remote))
    }

    /// Opens a socket for the stack's address and port `local` that receives datagrams from the path's device.
    pub(super) fn listen(place: &Place, local: SocketAddr, own: IpAddr) -> io::Result<Self> {
        Self::of(sys::listening(&place.device, own, local.port())?, place, (local, own), None)
    }

    /// The same, with a socket of another process.
    pub(super) fn given(place: &Place, local: SocketAddr, own: IpAddr, io: UdpSocket) -> io::Result<Self> {
        Self::of(io, place, (local, own), None)
    }

    fn of(
        io: UdpSocket,
        place: &Place,
        (local, own): (SocketAddr, IpAddr),
        remote: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        let port = io.local_addr()?.port();
        let [sends, receives] = sys::force_buffers(&io, BUFFER);
        // As much as permitted: a small buffer is slower, but no error.
        if !sends {
            let _ = state.set_send_buffer_size(UdpSockRef::from(&io), BUFFER);
        }
        if !receives {
            let _ = state.set_recv_buffer_size(UdpSockRef::from(&io), BUFFER);
        }
        let (path, device_index) = (place.path, place.index);
        Ok(Self { watched: Mutex::default(), io, state, path, device_index, local, own, port, remote })
    }

    /// Our end on the network, if the peer has sent to this address.
    pub(super) fn at(&self, asked: Option<IpAddr>) -> SocketAddr {
        let address =
            asked.filter(|_| self.remote.is_none()).map_or(self.own, |address| address.to_canonical());
        SocketAddr::new(address, self.port)
    }

    /// Registers it in `sockets` under this number.
    pub(super) fn watch(&self, sockets: &Sockets, number: u64) -> io::Result<()> {
        let mut watched = self.watched();
        if watched.is_none() {
            *watched = Some(sockets.add(&self.io, number)?);
        }
        Ok(())
    }

    /// Reads it no longer, because another process does.
    pub(super) fn leave(&self) {
        if let Some(watched) = self.watched().take() {
            watched.end(&self.io);
        }
    }

    /// Another descriptor of it, for another process.
    pub(super) fn duplicate(&self) -> io::Result<UdpSocket> {
        self.io.try_clone()
    }

    fn watched(&self) -> MutexGuard<'_, Option<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next ICMP error about one of its datagrams; `Some(None)` is an error without a segment.
    pub(super) fn next_error(&self) -> Option<Option<IcmpError>> {
        sys::next_error(&self.io, self.local, self.remote)
    }

    /// Sends the consecutive datagrams in `bytes`, each `size` bytes long except the last, to the second of `ends`; from the first, if
    /// there is one.
    pub(super) fn send(
        &self,
        ends: (Option<IpAddr>, SocketAddr),
        ecn: u8,
        bytes: &[u8],
        size: usize,
    ) -> io::Result<()> {
        /// Longest train that the kernel accepts: the size of an IP packet.
        const MAX_TRAIN: usize = 65_000;
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.state.max_gso_segments().min(MAX_TRAIN / size.max(1)).max(1);
            let (train, behind) = rest.split_at(rest.len().min(count * size.max(1)));
            match self.send_train(ends, ecn, train, size) {
                // The kernel has just reported that it does not cut trains: send again, one by one.
                Err(error) if train.len() > size && is_refusal(&error) => continue,
                // An ICMP error about an earlier datagram; this one has not been sent.
                Err(error) if is_about_another(&error) => self.send_train(ends, ecn, train, size)?,
                other => other?,
            }
            rest = behind;
        }
        Ok(())
    }

    fn send_train(
        &self,
        (src_ip, destination): (Option<IpAddr>, SocketAddr),
        ecn: u8,
        train: &[u8],
        size: usize,
    ) -> io::Result<()> {
        let segment_size = (train.len() > size).then_some(size);
        let ecn = EcnCodepoint::from_bits(ecn);
        let transmit = Transmit { destination, ecn, contents: train, segment_size, src_ip };
        self.state.try_send(UdpSockRef::from(&self.io), &transmit)
    }

    /// Sends an empty datagram to the peer of a connected socket. If it is lost, another follows.
    pub(super) fn say_nothing(&self) {
        let _ = self.io.send(&[]);
    }

    /// Reads received data into `buffers`, merged datagrams into each.
    pub(super) fn receive(&self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        self.state.recv(UdpSockRef::from(&self.io), buffers, meta)
    }
}

impl Drop for Socket {
    /// The poller drops the socket before it is closed: another process may have a descriptor of it, which keeps it open.
    fn drop(&mut self) {
        self.leave();
    }
}
