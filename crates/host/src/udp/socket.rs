//! One socket.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use plait_base::PathId;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::{Place, icmp};

/// What a socket may hold in each direction, in bytes, if the system lets it: what a TUN device does while the driver
/// does something else. Who is root needs no leave (`SO_RCVBUFFORCE`).
const BUFFER: usize = 16 << 20;

/// A socket of UDP that is bound to a path. It does not block; what leaves is never fragmented.
#[derive(Debug)]
pub(super) struct Socket {
    io: OwnedFd,
    state: UdpSocketState,
    pub(super) path: PathId,
    /// The stack's address and port.
    pub(super) local: SocketAddr,
    /// The device's address.
    pub(super) own: IpAddr,
    /// The peer, if it is connected. Else it listens: whoever comes is taken, and has asked one of several addresses.
    pub(super) remote: Option<SocketAddr>,
}

impl Socket {
    /// A socket for the stack's address `local` that is connected to `remote`, from the address `own` of the path's device and a port that
    /// the kernel chooses: the stack's may be another program's.
    pub(super) fn connect(
        place: &Place,
        local: SocketAddr,
        own: IpAddr,
        remote: SocketAddr,
    ) -> Result<Self, Errno> {
        let io = on_device(place, own)?;
        bind(io.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(own, 0)))?;
        connect(io.as_raw_fd(), &SockaddrStorage::from(remote))?;
        Self::of(io, place, (local, own), Some(remote))
    }

    /// A socket for the stack's address and port `local` that takes what comes by the path's device, for whichever address of this host; where
    /// somebody else has the port at one of them, for `own` alone.
    pub(super) fn listen(place: &Place, local: SocketAddr, own: IpAddr) -> Result<Self, Errno> {
        let at = |address: IpAddr| SockaddrStorage::from(SocketAddr::new(address, local.port()));
        let any = if own.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let io = on_device(place, own)?;
        match bind(io.as_raw_fd(), &at(any)) {
            Err(Errno::EADDRINUSE) => bind(io.as_raw_fd(), &at(own))?,
            bound => bound?,
        }
        Self::of(io, place, (local, own), None)
    }

    fn of(
        io: OwnedFd,
        place: &Place,
        (local, own): (SocketAddr, IpAddr),
        remote: Option<SocketAddr>,
    ) -> Result<Self, Errno> {
        let reference = UdpSockRef::from(&io);
        let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EINVAL));
        let state = UdpSocketState::new(reference).map_err(errno)?;
        // As much as there may be: a small buffer is slower, but no error.
        if setsockopt(&io, sockopt::SndBufForce, &BUFFER).is_err() {
            let _ = state.set_send_buffer_size(UdpSockRef::from(&io), BUFFER);
        }
        if setsockopt(&io, sockopt::RcvBufForce, &BUFFER).is_err() {
            let _ = state.set_recv_buffer_size(UdpSockRef::from(&io), BUFFER);
        }
        Ok(Self { io, state, path: place.path, local, own, remote })
    }

    /// Sends datagrams that lie one behind the other in `bytes`, each `size` bytes long but the last, to the second of `ends`; from the first, if
    /// there is one.
    pub(super) fn send(
        &self,
        ends: (Option<IpAddr>, SocketAddr),
        ecn: u8,
        bytes: &[u8],
        size: usize,
    ) -> io::Result<()> {
        /// Longest train that the kernel takes: an IP packet's worth.
        const MAX_TRAIN: usize = 65_000;
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.state.max_gso_segments().min(MAX_TRAIN / size.max(1)).max(1);
            let (train, behind) = rest.split_at(rest.len().min(count * size.max(1)));
            match self.send_train(ends, ecn, train, size) {
                // It does not cut trains, and has told so now: once more, one by one.
                Err(error) if train.len() > size && is_refusal(&error) => continue,
                // What ICMP has said about an earlier one; this one has not been sent.
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

    /// Sends an empty datagram to the peer of a connected socket. Where it gets lost, another follows.
    pub(super) fn say_nothing(&self) {
        let _ = nix::unistd::write(&self.io, &[]);
    }

    /// Reads what has come into `buffers`, merged datagrams into each.
    pub(super) fn receive(&self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        self.state.recv(UdpSockRef::from(&self.io), buffers, meta)
    }
}

/// A socket of the family of `own` that is bound to the path's device.
fn on_device(place: &Place, own: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if own.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let io = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    if own.is_ipv6() {
        setsockopt(&io, sockopt::Ipv6V6Only, &true)?;
    }
    // Since Linux 5.7 anybody may do that to a socket that is not bound to a device. Before, routes alone say where packets
    // leave.
    match setsockopt(&io, sockopt::BindToDevice, &OsString::from(&place.device)) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno),
    }
    icmp::ask_for(&io, own.is_ipv4())?;
    Ok(io)
}

/// Whether this is how a system says that it does not cut trains.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

/// Whether the error is one that ICMP has brought, about an earlier datagram. What it says is read from the queue of errors, which tells
/// which one it was ([`icmp`]).
pub(super) fn is_about_another(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EMSGSIZE
        )
    )
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
