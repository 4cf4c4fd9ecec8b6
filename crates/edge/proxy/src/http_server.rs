//! Clients of a proxy for HTTP, each connection a protected stream of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::client::{Dialer, ForwardError, join, open};
use crate::convert::Destination;
use crate::http::{self, CONNECTED, Read, Request};
use crate::relay::Abort;
use crate::request::RequestError;
use crate::socks::Credentials;

/// Time limit for the client's request.
const TALK_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves one client to its end and returns the bytes from and to it. `at` is the address of the proxy, for the PAC file. `heard` is called
/// with the destination.
///
/// # Errors
/// The client broke off, the server refused (the client was told so), or a stream broke (the client's
/// connection was reset).
pub async fn serve_client<D: Dialer>(
    mut client: TcpStream,
    dialer: &D,
    (required, at): (Option<Credentials>, SocketAddr),
    heard: impl FnOnce(&Destination),
) -> Result<(u64, u64), ForwardError> {
    let talked = timeout(TALK_TIMEOUT, talk(&mut client, required.as_ref())).await;
    let Some((request, rest)) = talked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
        return Ok((0, 0));
    };
    let (to, head, body) = match request {
        Request::Pac => {
            client.write_all(&http::pac(at)).await?;
            client.shutdown().await?;
            return Ok((0, 0));
        }
        Request::Tunnel(to) => (to, None, u64::MAX),
        Request::Page { to, head, body } => (to, Some(head), body),
    };
    heard(&to);
    let mut client = OneRequest { stream: client, left: body };
    let first = match &head {
        Some(head) => [head, client.within(&rest)?].concat(),
        None => rest,
    };
    match open(dialer, to, &first).await {
        Ok(opened) => {
            if head.is_none() {
                client.write_all(CONNECTED).await.map_err(ForwardError::Program)?;
            }
            let (sent, received) = join(dialer, &mut client, opened).await?;
            Ok((sent + first.len() as u64, received))
        }
        Err(error) => {
            let code = match &error {
                RequestError::Refused(code) => Some(*code),
                RequestError::Nonsense(_) | RequestError::Lost(_) => None,
            };
            client.write_all(&http::failure(code)).await?;
            client.shutdown().await?;
            Err(error.into())
        }
    }
}

/// `None`: the client was refused and told.
async fn talk(
    client: &mut TcpStream,
    required: Option<&Credentials>,
) -> io::Result<Option<(Request, Vec<u8>)>> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        match http::read(&bytes, required) {
            Read::More => {
                if client.read_buf(&mut bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Read::Request(request, len) => return Ok(Some((request, bytes.split_off(len)))),
            Read::Refuse(answer) => {
                client.write_all(&answer).await?;
                client.shutdown().await?;
                return Ok(None);
            }
        }
    }
}

/// A client whose bytes behind its request are not for the destination.
struct OneRequest<S> {
    stream: S,
    /// Bytes of the request that have not been read.
    left: u64,
}

impl<S> OneRequest<S> {
    /// Counts bytes that were read with the head.
    fn within<'a>(&mut self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(another)?;
        Ok(bytes)
    }
}

fn another() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a second request on a connection")
}

impl<S: AsyncRead + Unpin> AsyncRead for OneRequest<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                buffer.set_filled(before);
                return Poll::Ready(Err(another()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OneRequest<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Abort> Abort for OneRequest<S> {
    fn abort(&mut self) {
        self.stream.abort();
    }

    fn acknowledged(&self) -> u64 {
        self.stream.acknowledged()
    }

    fn check(&self) -> io::Result<()> {
        self.stream.check()
    }
}
