//! The right to listen on a port, tried before a file is written in vain.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use plait_console::prerequisite::{MissingPrerequisite, may_change_the_network};

use crate::options::Options;

/// Tries whether this user may listen on `port` over UDP, if the listener has no other carrier: over TCP the port is one of the stack, and
/// not of the kernel. Whether another program has the port is found by listening.
pub(crate) fn of_listener(options: &Options, port: u16) -> anyhow::Result<()> {
    let is_over_udp = options.carrier == plait::Carriers::Udp || !may_change_the_network();
    let Err(error) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { return Ok(()) };
    if !is_over_udp || error.kind() != ErrorKind::PermissionDenied {
        return Ok(());
    }
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.map_or_else(|_| "1024".to_owned(), |text| text.trim().to_owned());
    let why =
        format!("this user may not listen on port {port}: ports below {first} need CAP_NET_BIND_SERVICE");
    let fix = format!(
        "a port from {first}, or sysctl -w net.ipv4.ip_unprivileged_port_start={port}, or run as root"
    );
    Err(MissingPrerequisite::named("port", (why, fix.into())).into())
}
