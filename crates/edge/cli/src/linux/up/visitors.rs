//! Connections that others have opened to services of this host before `plait up`, such as the session of SSH that it is started in. Their
//! answers leave as before; connection tracking may not know which end has opened them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// States of a socket in `/proc/net/tcp` (net/tcp_states.h).
const ESTABLISHED: &str = "01";
const LISTENING: &str = "0A";
/// Most connections that are kept: each is two rules.
const MOST: usize = 1024;

/// A connection that a peer has opened to a port here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Visitor {
    pub(super) remote: SocketAddr,
    pub(super) own_port: u16,
}

/// The visitors of this network namespace now.
pub(super) fn now() -> Vec<Visitor> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mut all = in_text(&(read("/proc/net/tcp") + &read("/proc/net/tcp6")));
    if all.len() > MOST {
        tracing::warn!(all = all.len(), "only {MOST} connections from others are kept, the rest are reset");
        all.truncate(MOST);
    }
    all
}

/// Connections to a port with a listener.
fn in_text(text: &str) -> Vec<Visitor> {
    let sockets: Vec<_> = text.lines().filter_map(socket).collect();
    let listening = sockets.iter().filter(|(_, _, state)| *state == LISTENING);
    let listening: BTreeSet<u16> = listening.map(|(own, _, _)| own.port()).collect();
    let visits = sockets.iter().filter(|(own, remote, state)| {
        *state == ESTABLISHED && listening.contains(&own.port()) && !remote.ip().is_loopback()
    });
    let visitors: BTreeSet<_> =
        visits.map(|(own, remote, _)| Visitor { remote: *remote, own_port: own.port() }).collect();
    visitors.into_iter().collect()
}

/// Own end, peer and state in a line.
fn socket(line: &str) -> Option<(SocketAddr, SocketAddr, &str)> {
    let mut fields = line.split_whitespace().skip(1);
    Some((address(fields.next()?)?, address(fields.next()?)?, fields.next()?))
}

/// An address in words of 32 bits, each in the order of this machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn connections_to_listeners_are_told_from_those_to_others() {
        let text = "  sl  local_address rem_address   st tx_queue\n\
            0: 00000000:0016 00000000:0000 0A 00000000:00000000\n\
            1: 0200A8C0:0016 0900A8C0:C350 01 00000000:00000000\n\
            2: 0200A8C0:C351 0900A8C0:0016 01 00000000:00000000\n\
            3: 0100007F:0016 0100007F:C352 01 00000000:00000000\n\
            4: 0000000000000000FFFF00000200A8C0:0016 0000000000000000FFFF00000A00A8C0:C350 01 0\n\
            5: 000080FE00000000000000000100000A:0016 000080FE00000000000000000200000A:C350 06 0\n";
        let shown: Vec<_> =
            in_text(text).iter().map(|visitor| (visitor.remote.to_string(), visitor.own_port)).collect();
        assert_eq!(shown, [("192.168.0.9:50000".to_owned(), 22), ("192.168.0.10:50000".to_owned(), 22)]);
    }
}
