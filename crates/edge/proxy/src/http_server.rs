//! Clients of a proxy for HTTP, each connection a protected stream of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::asked::drain;
use crate::client::{Dialer, Early, ForwardError};
use crate::convert::Destination;
use crate::direct::{Direct, join, open};
use crate::http::{self, CONNECTED, MAX_HEAD, Read, Request};
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
    (dialer, direct): (&D, &Direct),
    (required, at): (Option<Credentials>, SocketAddr),
    heard: impl FnOnce(&Destination),
) -> Result<(u64, u64), ForwardError> {
    let talked = timeout(TALK_TIMEOUT, talk(&mut client, required.as_ref())).await;
    let (request, rest) = match talked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        Ok(request) => request,
        Err(answer) => {
            client.write_all(&answer).await?;
            client.shutdown().await?;
            drain(&mut client).await;
            return Ok((0, 0));
        }
    };
    let (to, head, body, is_idempotent) = match request {
        Request::Pac(named) => {
            let here = || Destination::Address((at.ip().to_canonical(), at.port()).into());
            client.write_all(&http::pac(&named.unwrap_or_else(here))).await?;
            client.shutdown().await?;
            return Ok((0, 0));
        }
        Request::Tunnel(to) => (to, None, u64::MAX, false),
        Request::Page { to, head, body, is_idempotent } => (to, Some(head), body, is_idempotent),
    };
    heard(&to);
    let mut client = OneRequest { stream: client, left: body, is_page: head.is_some(), is_answered: false };
    let first = match &head {
        Some(head) => [head, client.part_of_request(&rest)].concat(),
        None => rest,
    };
    let early = if is_idempotent { Early::Repeatable(&first) } else { Early::Once(&first) };
    match open((dialer, direct), to, early).await {
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
            drain(&mut client.stream).await;
            Err(error.into())
        }
    }
}

/// The client's request, and the bytes behind its head.
///
/// # Errors
/// The answer to a request that is refused.
async fn talk(
    client: &mut TcpStream,
    required: Option<&Credentials>,
) -> io::Result<Result<(Request, Vec<u8>), Vec<u8>>> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        let before = bytes.len();
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A head that comes in single bytes is not read anew at each of them.
        if !bytes[before..].contains(&b'\n') && bytes.len() < MAX_HEAD {
            continue;
        }
        match http::read(&bytes, required) {
            Read::More => {}
            Read::Request(request, len) => return Ok(Ok((request, bytes.split_off(len)))),
            Read::Refuse(answer) => return Ok(Err(answer)),
        }
    }
}

/// A client whose bytes behind its request are not for the destination: they are read and dropped.
struct OneRequest<S> {
    stream: S,
    /// Bytes of the request that have not been read.
    left: u64,
    /// Whether the answer is the last that the client gets.
    is_page: bool,
    /// Whether the answer has ended.
    is_answered: bool,
}

impl<S> OneRequest<S> {
    /// The part of bytes behind the head that belongs to the request.
    fn part_of_request<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.left -= len as u64;
        &bytes[..len]
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for OneRequest<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.is_page && self.is_answered && self.left == 0 {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let read = buffer.filled().len() - before;
            let part = usize::try_from(self.left).unwrap_or(usize::MAX).min(read);
            self.left -= part as u64;
            buffer.set_filled(before + part);
            if part > 0 || read == 0 {
                return Poll::Ready(Ok(()));
            }
        }
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
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        // The reader, a part of the same task, may have nothing to wait for any more.
        self.is_answered = true;
        context.waker().wake_by_ref();
        Poll::Ready(Ok(()))
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
