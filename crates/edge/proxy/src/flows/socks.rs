//! SOCKS5: UDP ASSOCIATE (RFC 1928, section 7).
//!
//! An association belongs to the TCP connection that has asked for it, and ends with it. It has a socket at the address that the client has
//! connected to. Only the client may send there: by its address, and by the port that it has named or that its first datagram comes from.
//! Each destination has a flow of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::carried::{TOGETHER, take_from};
use super::local::{Answers, FlowDialer, LocalFlows};
use crate::convert::Destination;
use crate::socks::{Asked, address, destination, succeeded};

/// Most flows of one association.
const MAX_FLOWS: usize = 256;
/// Bytes in front of an address: two reserved ones, and the number of a fragment.
const FRONT: usize = 3;

/// Serves an association to its end and returns the bytes of datagrams from and to the client. `port` is the one that the client has named,
/// or 0.
///
/// # Errors
/// There is no socket for it, or the client has gone before the answer.
pub(crate) async fn associate<F: FlowDialer>(
    client: &mut TcpStream,
    port: u16,
    flows: &Arc<F>,
) -> io::Result<(u64, u64)> {
    let socket = UdpSocket::bind((client.local_addr()?.ip(), 0)).await?;
    let mut source = Source { ip: client.peer_addr()?.ip().to_canonical(), port };
    client.write_all(&succeeded(socket.local_addr()?)).await?;
    let socket = Arc::new(socket);
    let mut flows = LocalFlows::new(Arc::clone(flows), MAX_FLOWS);
    let (mut sent, received) = (0, Arc::new(AtomicU64::new(0)));
    loop {
        let mut ignored = [0; 64];
        tokio::select! {
            // It ends with the connection, in whichever way that ends.
            read = client.read(&mut ignored) => if !read.is_ok_and(|read| read > 0) { break },
            ready = socket.readable() => {
                ready?;
                for _ in 0..TOGETHER {
                    let (datagram, from) = match take_from(&socket) {
                        Ok(Some(taken)) => taken,
                        Ok(None) => break,
                        Err(error) => {
                            tracing::debug!(%error, "no datagram was received");
                            continue;
                        }
                    };
                    let Some((to, at)) = parse(&datagram) else { continue };
                    if !source.is(from) {
                        continue;
                    }
                    sent += (datagram.len() - at) as u64;
                    let begin = || {
                        let answers = ToClient {
                            socket: Arc::clone(&socket),
                            client: from,
                            front: front(&datagram, &to, at),
                            received: Arc::clone(&received),
                        };
                        (to.clone(), answers)
                    };
                    flows.carry(to.clone(), datagram.slice(at..), begin);
                }
            }
        }
    }
    Ok((sent, received.load(Ordering::Relaxed)))
}

/// The one that may send.
#[derive(Debug)]
struct Source {
    ip: std::net::IpAddr,
    /// 0 until it is known.
    port: u16,
}

impl Source {
    /// Whether `from` is the client. Its port is the first one that is seen, if it has named none.
    fn is(&mut self, from: SocketAddr) -> bool {
        if from.ip().to_canonical() != self.ip {
            return false;
        }
        if self.port == 0 {
            self.port = from.port();
        }
        from.port() == self.port
    }
}

/// Returns the destination of a datagram of the client, and where its payload begins. `None` for a fragment, and for what is no such datagram.
fn parse(datagram: &[u8]) -> Option<(Destination, usize)> {
    let (&[_, _, fragment], rest) = datagram.split_first_chunk::<FRONT>()?;
    if fragment != 0 {
        return None;
    }
    match destination(rest)? {
        Asked::For(to, length) => Some((to, FRONT + length)),
        Asked::Wrong(_) => None,
    }
}

/// What stands in front of the answers of a destination: its address, or the name that the client has sent.
fn front(datagram: &Bytes, to: &Destination, at: usize) -> Vec<u8> {
    match to {
        Destination::Address(of) => [&[0; FRONT][..], &address(*of)].concat(),
        Destination::Name(..)
        | Destination::Named(..)
        | Destination::Socket(_)
        | Destination::Service(_)
        | Destination::Remote(_)
        | Destination::Resolver
        | Destination::Nowhere
        | Destination::Datagrams => [&[0; FRONT][..], &datagram[FRONT..at]].concat(),
    }
}

/// Sends answers to the client of an association.
struct ToClient {
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    front: Vec<u8>,
    received: Arc<AtomicU64>,
}

impl Answers for ToClient {
    async fn answer(&self, payload: Bytes) {
        self.received.fetch_add(payload.len() as u64, Ordering::Relaxed);
        let datagram = [&self.front[..], &payload].concat();
        if let Err(error) = self.socket.send_to(&datagram, self.client).await {
            tracing::debug!(%error, "an answer could not be passed on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_names_its_destination_and_a_fragment_is_refused() {
        let v4 = [0, 0, 0, 1, 192, 0, 2, 7, 0, 53, b'q'];
        let at: SocketAddr = "192.0.2.7:53".parse().expect("an address");
        assert_eq!(parse(&v4), Some((Destination::Address(at), 10)));
        let name = [&[0, 0, 0, 3, 7][..], b"example", &[1, 187], b"quic"].concat();
        assert_eq!(parse(&name), Some((Destination::Name("example".into(), 443), 14)));
        let mut v6 = vec![0, 0, 0, 4];
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 53]);
        assert_eq!(parse(&v6).map(|(to, at)| (to.to_string(), at)), Some(("[2001:db8::1]:53".into(), 22)));
        assert_eq!(parse(&[0, 0, 1, 1, 192, 0, 2, 7, 0, 53, b'q']), None, "a fragment");
        for short in 0..10 {
            assert_eq!(parse(&v4[..short]), None, "{short}");
        }
        assert_eq!(parse(&[0, 0, 0, 9, 192, 0, 2, 7, 0, 53, b'q']), None, "no kind of address");
    }

    #[test]
    fn answers_come_from_the_destination_that_was_asked() {
        for datagram in [
            [&[0, 0, 0, 1, 192, 0, 2, 7, 0, 53][..], b"q"].concat(),
            [&[0, 0, 0, 3, 1][..], b"x", &[0, 53], b"q"].concat(),
        ] {
            let (to, at) = parse(&datagram).expect("a destination");
            assert_eq!(front(&Bytes::from(datagram.clone()), &to, at), datagram[..at]);
        }
    }

    #[test]
    fn only_the_client_sends_by_the_port_that_it_has_begun_with() {
        let at = |text: &str| text.parse::<SocketAddr>().expect(text);
        let mut source = Source { ip: [127, 0, 0, 1].into(), port: 0 };
        assert!(!source.is(at("127.0.0.2:4000")));
        assert!(source.is(at("127.0.0.1:4000")) && source.is(at("[::ffff:127.0.0.1]:4000")));
        assert!(!source.is(at("127.0.0.1:4001")) && !source.is(at("127.0.0.2:4000")));
        let mut named = Source { ip: [127, 0, 0, 1].into(), port: 5000 };
        assert!(!named.is(at("127.0.0.1:4000")) && named.is(at("127.0.0.1:5000")));
    }
}
