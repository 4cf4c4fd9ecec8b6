//! Ports of the server that lead to its client, as `ssh -R` has them.
//!
//! A client asks for a port ([`Destination::Remote`]) over some streams, each of which waits for one connection. Meanwhile it asks now and
//! then for nothing ([`Destination::Nowhere`]), so that both ends notice when the other one has gone. For a connection, the server asks the
//! client for an address, that of the peer; the client connects to its own destination and answers. Only then bytes follow, both ways.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Duration, interval, timeout};

use crate::convert::{Destination, ErrorCode, Instance, Message, Parsed};
use crate::request::{RequestError, ask, reply};

/// Time between two questions of a client that waits.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How long a client may take to connect to its destination: a little longer than the destination.
const PATIENCE: Duration = Duration::from_secs(30);

/// Client: waits for a connection on a stream that the server has accepted for it; `got` are bytes behind the answer. Returns the address of
/// the peer, or `None` if the server has ended the stream in order.
///
/// # Errors
/// The stream failed, or the server broke the rules.
pub async fn wait_for_connection<S>(stream: &mut S, mut got: Vec<u8>) -> io::Result<Option<SocketAddr>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut signs = interval(SIGN_OF_LIFE);
    signs.reset();
    loop {
        let message = tokio::select! {
            message = next(stream, &mut got) => message?,
            _ = signs.tick() => {
                ask(stream, Destination::Nowhere).await?;
                continue;
            }
        };
        match message {
            None => return Ok(None),
            Some(Message::Connected(_)) => {}
            // The server sends nothing more before the answer.
            Some(Message::Connect(Destination::Address(from))) if got.is_empty() => return Ok(Some(from)),
            Some(Message::Connect(_) | Message::Failed(_)) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Server: answers the client's questions until `event` completes. Returns `None` if the client has ended the stream.
///
/// # Errors
/// The stream failed, or the client broke the rules.
pub async fn hold<S, T>(
    stream: &mut S,
    got: &mut Vec<u8>,
    event: impl Future<Output = T>,
    instance: Option<Instance>,
) -> io::Result<Option<T>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut event = pin!(event);
    loop {
        let message = tokio::select! {
            biased;
            result = &mut event => return Ok(Some(result)),
            message = next(stream, got) => message?,
        };
        match message {
            None => return Ok(None),
            Some(Message::Connect(Destination::Nowhere)) => reply(stream, Ok(instance)).await?,
            Some(_) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Server: offers a connection of this peer to a client that waits; returns the first bytes behind its answer.
///
/// # Errors
/// The client cannot connect to its destination, does not answer in time, or the stream failed.
pub async fn offer<S>(stream: &mut S, mut got: Vec<u8>, from: SocketAddr) -> Result<Vec<u8>, RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ask(stream, Destination::Address(from)).await?;
    let answered = async {
        loop {
            match next(stream, &mut got).await? {
                None => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                // It has crossed the offer.
                Some(Message::Connect(Destination::Nowhere)) => {}
                Some(Message::Connected(_)) => return Ok(got),
                Some(Message::Failed(code)) => return Err(RequestError::Refused(code)),
                Some(Message::Connect(_)) => {
                    return Err(RequestError::Nonsense(ErrorCode::UnsupportedMessage));
                }
            }
        }
    };
    let late = || Err(io::Error::from(ErrorKind::TimedOut).into());
    timeout(PATIENCE, answered).await.unwrap_or_else(|_| late())
}

/// The next message, without which `got` keeps the bytes; `None` at the end. A call that is dropped loses nothing.
async fn next(stream: &mut (impl AsyncRead + Unpin), got: &mut Vec<u8>) -> io::Result<Option<Message>> {
    loop {
        match Message::parse(got) {
            Parsed::Message(message, len) => {
                got.drain(..len);
                return Ok(Some(message));
            }
            Parsed::Invalid(_) => return Err(ErrorKind::InvalidData.into()),
            Parsed::Incomplete => {}
        }
        if stream.read_buf(got).await? == 0 {
            return if got.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::sleep;

    use super::*;

    fn peer() -> SocketAddr {
        "192.0.2.1:40000".parse().expect("an address")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_gives_signs_of_life_and_none_of_them_reaches_the_peer() {
        let (mut client, mut server) = duplex(4096);
        let far = tokio::spawn(async move {
            let mut got = Vec::new();
            let held = hold(&mut server, &mut got, sleep(Duration::from_secs(100)), None).await;
            assert!(held.expect("open").is_some());
            let rest = offer(&mut server, got, peer()).await.expect("an answer");
            let mut text = [0; 5];
            server.read_exact(&mut text).await.expect("open");
            (rest, text)
        });
        let from = wait_for_connection(&mut client, Vec::new()).await.expect("open");
        assert_eq!(from, Some(peer()));
        // A sign of life crosses the offer.
        ask(&mut client, Destination::Nowhere).await.expect("open");
        reply(&mut client, Ok(None)).await.expect("open");
        sleep(Duration::from_secs(1)).await;
        client.write_all(b"hello").await.expect("open");
        let (rest, text) = far.await.expect("no panic");
        assert!(rest.is_empty() && &text == b"hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_cannot_connect_says_so_and_a_silent_one_is_not_waited_for() {
        let (mut client, mut server) = duplex(4096);
        reply(&mut client, Err(ErrorCode::ConnectionReset)).await.expect("open");
        let refused = offer(&mut server, Vec::new(), peer()).await;
        assert!(matches!(refused, Err(RequestError::Refused(ErrorCode::ConnectionReset))));
        let late = offer(&mut server, Vec::new(), peer()).await;
        assert!(matches!(late, Err(RequestError::Lost(error)) if error.kind() == ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn an_end_is_told_from_a_mistake() {
        let (mut client, mut server) = duplex(4096);
        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("open");
        assert!(hold(&mut server, &mut Vec::new(), pending::<()>(), None).await.is_err());
        let (client, mut server) = duplex(4096);
        drop(client);
        assert!(hold(&mut server, &mut Vec::new(), pending::<()>(), None).await.expect("an end").is_none());
        let (mut client, server) = duplex(4096);
        drop(server);
        assert_eq!(wait_for_connection(&mut client, Vec::new()).await.expect("an end"), None);
    }
}
