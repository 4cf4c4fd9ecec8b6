//! The listeners to which the rules redirect, at loopback addresses.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use anyhow::{Context, bail};
use plait_proxy::run::Gate;
use tokio::net;

use super::rules::{GROUP, Ports};
use crate::output::say;

/// Only root opens ports below 1024, unless the host has another limit: after a crash, the rules lead to them, and no other user may take them.
const PORTS: RangeInclusive<u16> = 700..=1023;

/// All listeners.
pub(super) struct Doors {
    pub(super) ports: Ports,
    pub(super) tcp4: net::TcpListener,
    pub(super) dns: net::UdpSocket,
    pub(super) dns_tcp: net::TcpListener,
    /// TCP, and DNS over UDP; `None` on a host without IPv6.
    pub(super) v6: Option<(net::TcpListener, net::UdpSocket)>,
    /// `None` on kernels without NFLOG.
    pub(super) gate: Option<Gate>,
}

/// Sockets at one port.
type Both = (TcpListener, UdpSocket);

impl Doors {
    /// # Errors
    /// No two ports are free.
    pub(super) fn open() -> anyhow::Result<Self> {
        let has_ipv6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let first_of_all = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first_of_all = first_of_all.ok().and_then(|text| text.trim().parse().ok());
        let ports = ports_of_root(first_of_all.unwrap_or(1024)).unwrap_or_else(|| {
            say(
                "warning: each user of this host may open the ports that plait up uses, and can take them and the questions of DNS after a \
                 crash\n  fix: sysctl -w net.ipv4.ip_unprivileged_port_start=1024",
            );
            PORTS
        });
        let mut free = ports.clone().rev().filter_map(|port| Some((port, both(port, has_ipv6)?)));
        let Some((port, (v4, v6))) = free.next() else {
            bail!("cannot listen: no port from {} to {} is free here", ports.start(), ports.end());
        };
        let dns_tcp =
            (*ports.start()..port).rev().find_map(|port| Some((port, tcp(Ipv4Addr::LOCALHOST, port)?)));
        let (dns_port, dns_tcp) = dns_tcp.context("cannot listen: no second port below 1024 is free here")?;
        let gate = Gate::open(GROUP, has_ipv6).inspect_err(|error| {
            tracing::warn!(
                "connections are accepted before it is known whether their destination can be reached: {error:#}"
            );
        });
        let (tcp4, dns) = to_tokio(v4)?;
        Ok(Self {
            ports: Ports { both: port, dns_tcp: dns_port, has_ipv6: v6.is_some() },
            tcp4,
            dns,
            dns_tcp: net::TcpListener::from_std(dns_tcp)?,
            v6: v6.map(to_tokio).transpose()?,
            gate: gate.ok(),
        })
    }
}

/// Those of [`PORTS`] that only root opens: the ones below `first_of_all`. `None` if there are no two.
fn ports_of_root(first_of_all: u16) -> Option<RangeInclusive<u16>> {
    let last = PORTS.end().min(&first_of_all.checked_sub(1)?).to_owned();
    (last > *PORTS.start()).then_some(*PORTS.start()..=last)
}

/// The sockets of both families at a port, if it is free for all of them.
fn both(port: u16, has_ipv6: bool) -> Option<(Both, Option<Both>)> {
    let v4 = (tcp(Ipv4Addr::LOCALHOST, port)?, udp(Ipv4Addr::LOCALHOST, port)?);
    let v6 = if has_ipv6 {
        Some((tcp(Ipv6Addr::LOCALHOST, port)?, udp(Ipv6Addr::LOCALHOST, port)?))
    } else {
        None
    };
    Some((v4, v6))
}

fn tcp(at: impl Into<std::net::IpAddr>, port: u16) -> Option<TcpListener> {
    let listener = TcpListener::bind((at.into(), port)).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

fn udp(at: impl Into<std::net::IpAddr>, port: u16) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((at.into(), port)).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

fn to_tokio((tcp, udp): Both) -> anyhow::Result<(net::TcpListener, net::UdpSocket)> {
    Ok((net::TcpListener::from_std(tcp)?, net::UdpSocket::from_std(udp)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_that_no_other_user_opens_are_those_of_root() {
        assert_eq!(ports_of_root(1024), Some(PORTS));
        assert_eq!(ports_of_root(u16::MAX), Some(PORTS));
        assert_eq!(ports_of_root(800), Some(700..=799));
        assert_eq!([701, 80, 1, 0].map(ports_of_root), [const { None }; 4]);
    }
}
