//! The listeners to which the rules redirect.
//!
//! A redirected packet comes to an address of the device that it arrived on, so the listeners are at all addresses. The rules let nothing else
//! reach them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::bail;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, listen, setsockopt, socket,
    sockopt,
};
use tokio::net;

use crate::linux::up::rules::Ports;

/// Only root opens ports below 1024: after a crash, the rules lead to them, and no other user may take them.
const PORTS: std::ops::RangeInclusive<u16> = 700..=1023;
/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The listeners of one set of paths.
pub(super) struct Door {
    pub(super) ports: Ports,
    pub(super) tcp: net::TcpListener,
    pub(super) dns: net::UdpSocket,
    /// DNS over TCP, by both families.
    pub(super) dns_tcp: net::TcpListener,
    /// TCP, and DNS over UDP; `None` on a host without IPv6.
    pub(super) v6: Option<(net::TcpListener, net::UdpSocket)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    /// One socket of IPv6 for both.
    Both,
}

/// Opens so many doors.
///
/// # Errors
/// Too few ports are free.
pub(super) fn open(count: usize) -> anyhow::Result<Vec<Door>> {
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let mut ports = PORTS.rev();
    let mut doors = Vec::new();
    while doors.len() < count {
        let at = |port| Some((port, tcp(Family::V4, port)?, udp(Family::V4, port)?));
        let with_v6 = |port| {
            let v6 = if has_ipv6 { Some((tcp(Family::V6, port)?, udp(Family::V6, port)?)) } else { None };
            Some((at(port)?, v6))
        };
        let both = if has_ipv6 { Family::Both } else { Family::V4 };
        let found = ports.by_ref().find_map(with_v6);
        let dns_tcp = ports.by_ref().find_map(|port| Some((port, tcp(both, port)?)));
        let (Some(((both, tcp, dns), v6)), Some((dns_port, dns_tcp))) = (found, dns_tcp) else {
            bail!("cannot listen: too few ports from {} to {} are free here", PORTS.start(), PORTS.end());
        };
        let v6 = v6
            .map(|(tcp, udp)| anyhow::Ok((net::TcpListener::from_std(tcp)?, net::UdpSocket::from_std(udp)?)));
        doors.push(Door {
            ports: Ports { both, dns_tcp: dns_port, has_ipv6 },
            tcp: net::TcpListener::from_std(tcp)?,
            dns: net::UdpSocket::from_std(dns)?,
            dns_tcp: net::TcpListener::from_std(dns_tcp)?,
            v6: v6.transpose()?,
        });
    }
    Ok(doors)
}

fn tcp(family: Family, port: u16) -> Option<TcpListener> {
    let listener = bound(family, SockType::Stream, port).ok()?;
    listen(&listener, Backlog::new(BACKLOG).ok()?).ok()?;
    Some(listener.into())
}

fn udp(family: Family, port: u16) -> Option<UdpSocket> {
    bound(family, SockType::Datagram, port).ok().map(UdpSocket::from)
}

/// A socket at all addresses of these families.
fn bound(family: Family, kind: SockType, port: u16) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let domain = if family == Family::V4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(domain, kind, flags, None)?;
    if kind == SockType::Stream {
        // Connections of an earlier process may linger.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    }
    if family == Family::V4 {
        let at = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        bind(socket.as_raw_fd(), &at)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6V6Only, &(family == Family::V6))?;
        let at = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        bind(socket.as_raw_fd(), &at)?;
    }
    Ok(socket)
}
