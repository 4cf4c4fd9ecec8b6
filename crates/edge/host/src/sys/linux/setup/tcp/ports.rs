//! Reserves a port while we listen on it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt, socket,
    sockopt,
};

use crate::error::Error;

/// A port that neither the kernel nor another host of ours assigns while this lives.
#[derive(Debug)]
pub(super) struct PortReservation {
    _kernel: OwnedFd,
    _ours: UnixListener,
}

impl PortReservation {
    /// Reserves `port` in the network namespace of this thread.
    pub(super) fn take(port: u16) -> Result<Self, Error> {
        Ok(Self { _ours: among_hosts(port)?, _kernel: in_the_kernel(port)? })
    }
}

/// Two sockets that are only bound do not exclude each other. An abstract name does, in one network namespace
/// and until its owner ends in any way.
fn among_hosts(port: u16) -> Result<UnixListener, Error> {
    let name = format!("plait-listen-{port}");
    let taken = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse { port, holder: "another plait listens on it" },
        _ => Error::system("reserve the port among plait hosts", source),
    };
    UnixAddress::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name)).map_err(taken)
}

/// Bound, never listening: the segments for it do not reach the kernel's TCP.
fn in_the_kernel(port: u16) -> Result<OwnedFd, Error> {
    let taken = |errno: nix::Error| match errno {
        nix::Error::EADDRINUSE => Error::PortInUse { port, holder: "a program of this host listens on it" },
        nix::Error::EACCES => Error::system("use a port below 1024 (run as root)", errno),
        _ => Error::system("reserve the port", errno),
    };
    let open = |family| {
        let fd =
            socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp).map_err(taken)?;
        // A connection in TIME-WAIT on that port is no obstacle.
        setsockopt(&fd, sockopt::ReuseAddr, &true).map_err(taken)?;
        Ok::<_, Error>(fd)
    };
    // One socket for both families; for IPv4 on a host without IPv6.
    if let Ok(fd) = open(AddressFamily::Inet6) {
        let any = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        match bind(fd.as_raw_fd(), &any) {
            Ok(()) => return Ok(fd),
            Err(nix::Error::EADDRNOTAVAIL) => {}
            Err(errno) => return Err(taken(errno)),
        }
    }
    let fd = open(AddressFamily::Inet)?;
    let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    bind(fd.as_raw_fd(), &any).map_err(taken)?;
    Ok(fd)
}
