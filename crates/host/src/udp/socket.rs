//! One socket.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use plait_base::PathId;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::{Place, icmp};

/// What a socket may hold in each direction, in bytes, if the system lets it: some round trips of a fast path while the driver
/// does something else.
const BUFFER: usize = 4 << 20;

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
    /// The peer, if it is connected.
    pub(super) remote: Option<SocketAddr>,
}

impl Socket {
    /// A socket at the address `own` of the path's device, for the stack's address `local`; connected to `remote`, if there is
    /// one.
    pub(super) fn bind(
        place: &Place,
        local: SocketAddr,
        own: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<Self, Errno> {
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
        bind(io.as_raw_fd(), &SockaddrStorage::from(own))?;
        icmp::ask_for(&io, own.is_ipv4())?;
        if let Some(remote) = remote {
            connect(io.as_raw_fd(), &SockaddrStorage::from(remote))?;
        }
        let reference = UdpSockRef::from(&io);
        let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EINVAL));
        let state = UdpSocketState::new(reference).map_err(errno)?;
        // As much as there may be: a small buffer is slower, but no error.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&io), BUFFER);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&io), BUFFER);
        Ok(Self { io, state, path: place.path, local, own: own.ip(), remote })
    }

    /// Sends datagrams that lie one behind the other in `bytes`, each `size` bytes long but the last.
    pub(super) fn send(&self, remote: SocketAddr, ecn: u8, bytes: &[u8], size: usize) -> io::Result<()> {
        /// Longest train that the kernel takes: an IP packet's worth.
        const MAX_TRAIN: usize = 65_000;
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.state.max_gso_segments().min(MAX_TRAIN / size.max(1)).max(1);
            let (train, behind) = rest.split_at(rest.len().min(count * size.max(1)));
            match self.send_train(remote, ecn, train, size) {
                // It does not cut trains, and has told so now: once more, one by one.
                Err(error) if train.len() > size && is_refusal(&error) => continue,
                // What ICMP has said about an earlier one; this one has not been sent.
                Err(error) if is_about_another(&error) => self.send_train(remote, ecn, train, size)?,
                other => other?,
            }
            rest = behind;
        }
        Ok(())
    }

    fn send_train(&self, destination: SocketAddr, ecn: u8, train: &[u8], size: usize) -> io::Result<()> {
        let segment_size = (train.len() > size).then_some(size);
        let ecn = EcnCodepoint::from_bits(ecn);
        let transmit = Transmit { destination, ecn, contents: train, segment_size, src_ip: None };
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
