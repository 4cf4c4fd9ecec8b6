//! Sockets of UDP that are bound to a device.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use super::icmp;
use crate::own_mark::put_mark;

/// Opens a socket at `own`, an address of `device`, that is connected to `remote`, from a port that the kernel chooses.
pub(crate) fn connected(device: &str, own: IpAddr, remote: SocketAddr) -> io::Result<UdpSocket> {
    let io = on_device(device, own)?;
    bind(io.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(own, 0)))?;
    connect(io.as_raw_fd(), &SockaddrStorage::from(remote))?;
    Ok(io.into())
}

/// A socket that receives packets from `device` to `port`, for every address of this host. If another program has the port at one of
/// them, the socket is for `own` alone.
pub(crate) fn listening(device: &str, own: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let at = |address: IpAddr| SockaddrStorage::from(SocketAddr::new(address, port));
    let any = if own.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let io = on_device(device, own)?;
    match bind(io.as_raw_fd(), &at(any)) {
        Err(Errno::EADDRINUSE) => bind(io.as_raw_fd(), &at(own))?,
        bound => bound?,
    }
    Ok(io.into())
}

/// A socket of the family of `own` that is bound to the device, with the mark of this process.
fn on_device(device: &str, own: IpAddr) -> io::Result<OwnedFd> {
    let family = if own.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let io = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    if own.is_ipv6() {
        setsockopt(&io, sockopt::Ipv6V6Only, &true)?;
    }
    // Since Linux 5.7 every user may bind a socket to a device if it is not bound yet. Before, routes alone decide where packets leave.
    match setsockopt(&io, sockopt::BindToDevice, &OsString::from(device)) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    put_mark(&io)?;
    icmp::ask_for(&io, own.is_ipv4())?;
    Ok(io)
}

/// Lets a socket buffer this many bytes in each direction, whatever the limits of others; returns whether it is permitted.
pub(crate) fn force_buffers(io: &UdpSocket, bytes: usize) -> [bool; 2] {
    [
        setsockopt(io, sockopt::SndBufForce, &bytes).is_ok(),
        setsockopt(io, sockopt::RcvBufForce, &bytes).is_ok(),
    ]
}

/// Whether the error means that the kernel does not cut trains. `quinn_udp` makes none any more then.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

/// Whether the error comes from ICMP, about an earlier datagram. Its content is read from the error queue, which names the datagram
/// ([`icmp`]).
pub(crate) fn is_about_another(error: &io::Error) -> bool {
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
