//! The bytes received by the TCP sockets of a kernel, according to `ss`: subflows of Multipath TCP are
//! among them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use plait_netns::Namespace;

/// All that are open.
#[derive(Debug, PartialEq)]
pub(crate) struct Sockets(Vec<Received>);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Received {
    port: u16,
    pub(crate) peer: SocketAddr,
    /// Payload.
    pub(crate) bytes: u64,
}

impl Sockets {
    /// The current sockets of a host.
    pub(crate) fn of(namespace: &Namespace) -> Result<Self> {
        Self::parse(&namespace.run("ss", "-H -O -t -i -n state established")?)
    }

    /// Reads what `ss -H -O -t -i -n` prints: a line for each socket.
    fn parse(text: &str) -> Result<Self> {
        let one = |line: &str| {
            let mut words = line.split_whitespace().skip_while(|word| !word.contains(':'));
            let (local, peer) = (words.next()?, words.next()?);
            // A socket that has received nothing yet has no such word.
            let bytes = words.find_map(|word| word.strip_prefix("bytes_received:"));
            Some(Received {
                port: local.rsplit_once(':')?.1.parse().ok()?,
                peer: address(peer)?,
                bytes: bytes.map_or(Some(0), |bytes| bytes.parse().ok())?,
            })
        };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| one(line).with_context(|| format!("ss says {line:?}")))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// The sockets at this port.
    pub(crate) fn on(&self, port: u16) -> impl Iterator<Item = &Received> {
        self.0.iter().filter(move |one| one.port == port)
    }
}

/// `[::ffff:10.1.1.2]:4433` is at a socket of both families what `10.1.1.2:4433` is at others.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once(':')?;
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = ip.split('%').next()?.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_socket_has_received_is_read() {
        let text = "0      0      [::ffff:10.2.1.2]:5201 [::ffff:10.1.1.2]:40000 cubic wscale:7,7 rto:204 bytes_received:1234 segs_in:5\n\
                    0      12     10.2.2.2%p2:5202   10.1.2.2:40001 cubic rto:204 segs_in:5\n";
        let sockets = Sockets::parse(text).expect("well-formed");
        let ours: Vec<_> = sockets.on(5201).collect();
        assert_eq!(ours, [&Received { port: 5201, peer: ([10, 1, 1, 2], 40000).into(), bytes: 1234 }]);
        assert_eq!(sockets.on(5202).map(|one| one.bytes).sum::<u64>(), 0);
        assert_eq!(sockets.on(5202).count(), 1);
    }

    #[test]
    fn what_is_no_socket_is_an_error() {
        assert!(Sockets::parse("Netid State\n").is_err());
        assert!(Sockets::parse("0 0 10.2.1.2:5201 10.1.1.2:40000 bytes_received:many\n").is_err());
        assert_eq!(Sockets::parse("\n").expect("nothing"), Sockets(Vec::new()));
    }
}
