//! DNS queries of enclosed programs, answered by the resolver of the server.
//!
//! A query that came over UDP leaves as DNS over TCP (RFC 7766: two bytes of length in front) in a stream of
//! its own, so that no path sees names that are asked for.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::{Duration, timeout};

use crate::client::Dialer;
use crate::convert::Destination;
use crate::request::{RequestError, answer, ask};

/// Longest query or answer by UDP (RFC 6891: more than anybody uses).
const MAX_DATAGRAM: usize = 4096;
/// Header of a message; shorter is no query.
const HEADER: usize = 12;
/// How long a program's resolver waits before it asks again anyway.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Queries on their way at a time; more are dropped, as a busy resolver does.
const MAX_QUERIES: usize = 64;

/// Answers the queries that come in at `socket`, until it fails.
///
/// # Errors
/// The socket failed.
pub async fn serve_queries<D: Dialer>(socket: UdpSocket, dialer: Arc<D>) -> io::Result<()> {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(MAX_QUERIES));
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await?;
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        if len < HEADER {
            continue;
        }
        let (query, socket, dialer) = (buffer[..len].to_vec(), socket.clone(), dialer.clone());
        tokio::spawn(async move {
            let response = match timeout(QUERY_TIMEOUT, resolve(&*dialer, &query)).await {
                Ok(Ok(response)) => truncate(response),
                // Silence makes programs wait; "server failure" makes them go on.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "DNS query failed");
                    failure(&query)
                }
                Err(_) => failure(&query),
            };
            let _ = socket.send_to(&response, from).await;
            drop(place);
        });
    }
}

async fn resolve<D: Dialer>(dialer: &D, query: &[u8]) -> Result<Vec<u8>, RequestError> {
    let mut stream = dialer.dial().await?;
    ask(&mut stream, Destination::Resolver).await?;
    let mut framed = (query.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(query);
    stream.write_all(&framed).await?;
    let mut got = answer(&mut stream).await?;
    let wanted = |got: &[u8]| got.first_chunk().map(|len| 2 + usize::from(u16::from_be_bytes(*len)));
    while wanted(&got).is_none_or(|wanted| got.len() < wanted) {
        if stream.read_buf(&mut got).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    stream.shutdown().await?;
    let end = wanted(&got).unwrap_or(got.len());
    got.truncate(end);
    Ok(got.split_off(2))
}

/// What does not fit is cut with the TC bit set: the program asks again by TCP (RFC 1035, section 4.1.1).
fn truncate(mut response: Vec<u8>) -> Vec<u8> {
    if response.len() > MAX_DATAGRAM {
        response.truncate(HEADER);
        response[2] |= 0x02;
        // Counts of the sections that were cut off.
        response[4..].fill(0);
    }
    response
}

/// SERVFAIL for a query.
fn failure(query: &[u8]) -> Vec<u8> {
    let mut response = query.to_vec();
    response[2] |= 0x80;
    response[3] = (response[3] & 0xf0) | 0x02;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::request;

    /// A server whose resolver answers with the query's bytes reversed behind the header, or not at all.
    struct Far {
        answers: bool,
    }

    impl Dialer for Far {
        type Stream = DuplexStream;

        async fn dial(&self) -> io::Result<DuplexStream> {
            if !self.answers {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let (near, mut far) = duplex(8192);
            tokio::spawn(async move {
                let (to, mut bytes) = request::request(&mut far).await.expect("a stream").expect("a request");
                assert_eq!(to, Destination::Resolver);
                while bytes.len() < 2 + 16 {
                    far.read_buf(&mut bytes).await.expect("a query");
                }
                bytes[14..].reverse();
                request::reply(&mut far, Ok(())).await.expect("room");
                for byte in bytes {
                    far.write_all(&[byte]).await.expect("room");
                }
            });
            Ok(near)
        }

        async fn delivered(&self, _: &DuplexStream) -> io::Result<()> {
            Ok(())
        }
    }

    async fn ask_one(answers: bool) -> Vec<u8> {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let at = server.local_addr().expect("bound");
        tokio::spawn(serve_queries(server, Arc::new(Far { answers })));
        let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        program.send_to(b"short", at).await.expect("sent and ignored");
        program.send_to(b"\x12\x34\x01\x00headers!name", at).await.expect("sent");
        let mut buffer = [0; 64];
        let len = program.recv(&mut buffer).await.expect("an answer");
        buffer[..len].to_vec()
    }

    #[tokio::test]
    async fn a_query_is_answered_by_the_servers_resolver() {
        assert_eq!(ask_one(true).await, b"\x12\x34\x01\x00headers!eman");
    }

    #[tokio::test]
    async fn a_query_that_cannot_be_asked_fails_at_once() {
        assert_eq!(ask_one(false).await, b"\x12\x34\x81\x02headers!name");
    }

    #[test]
    fn an_answer_that_is_too_long_asks_for_tcp() {
        let short = truncate(vec![0x01; MAX_DATAGRAM + 1]);
        assert_eq!(short, [1, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(truncate(vec![1; 100]).len(), 100);
    }
}
