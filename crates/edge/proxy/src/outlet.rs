//! The connection of a server to the destination of a client: to an address, to a socket in the file system, or to a nameserver.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::destination::Unreached;
use crate::nameservers::Asking;
use crate::relay::Abort;

/// A connection to a destination.
#[derive(Debug)]
pub(crate) enum Outlet {
    Tcp(TcpStream),
    #[cfg(unix)]
    Socket(UnixStream),
    Nameserver(Asking),
}

/// Connects to a socket in the file system of this host. A listener with a full queue has the same time as an address.
#[cfg(unix)]
pub(crate) async fn open_socket(path: &str) -> Result<Outlet, Unreached> {
    use tokio::time::{Duration, sleep, timeout};

    use crate::convert::ErrorCode;
    use crate::destination::CONNECT_TIMEOUT;

    /// Pause before another attempt at a full queue, which does not say when it has room.
    const PAUSE: Duration = Duration::from_millis(50);
    let opened = async {
        loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
                opened => return opened,
            }
        }
    };
    match timeout(CONNECT_TIMEOUT, opened).await {
        Ok(opened) => Ok(Outlet::Socket(opened?)),
        Err(_) => Err(Unreached::Refused(ErrorCode::DestinationUnreachable)),
    }
}

/// This system has no such sockets.
#[cfg(not(unix))]
pub(crate) async fn open_socket(_path: &str) -> Result<Outlet, Unreached> {
    Err(Unreached::Refused(crate::convert::ErrorCode::DestinationUnreachable))
}

/// Calls the method of the stream in it.
macro_rules! stream {
    ($outlet:expr, $stream:ident => $call:expr) => {
        match $outlet {
            Outlet::Tcp($stream) => $call,
            #[cfg(unix)]
            Outlet::Socket($stream) => $call,
            Outlet::Nameserver($stream) => $call,
        }
    };
}

impl AsyncRead for Outlet {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        stream!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Outlet {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        stream!(self.get_mut(), stream => Pin::new(stream).poll_write(context, data))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}

impl Abort for Outlet {
    fn abort(&mut self) {
        stream!(self, stream => stream.abort());
    }

    fn acknowledged(&self) -> u64 {
        stream!(self, stream => stream.acknowledged())
    }

    fn check(&self) -> io::Result<()> {
        stream!(self, stream => stream.check())
    }
}

/// A socket in the file system has no reset: its end after a failure looks like an end in order, unless bytes of the other end are unread.
#[cfg(unix)]
impl Abort for UnixStream {
    fn abort(&mut self) {}

    fn check(&self) -> io::Result<()> {
        self.take_error()?.map_or(Ok(()), Err)
    }
}
