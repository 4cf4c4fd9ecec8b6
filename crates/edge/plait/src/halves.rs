//! The two directions of a connection, for different tasks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::status::{Monitor, Status};

/// The receiving direction of a [`Stream`](crate::Stream).
#[derive(Debug)]
pub struct ReadHalf {
    pub(crate) inner: ::plait_host::ReadHalf,
    pub(crate) monitor: Monitor,
}

/// The sending direction of a [`Stream`](crate::Stream); dropping it ends the direction.
#[derive(Debug)]
pub struct WriteHalf {
    pub(crate) inner: ::plait_host::WriteHalf,
    pub(crate) monitor: Monitor,
}

impl ReadHalf {
    /// Reads the next bytes without copying them; `None` at the end of the stream. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        self.inner.read_chunk().await
    }

    /// The connection now; `None` when its host is gone.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.monitor.status()
    }

    /// As [`Stream::closed`](crate::Stream::closed).
    ///
    /// # Errors
    /// As [`Stream::closed`](crate::Stream::closed).
    pub async fn closed(&self) -> io::Result<()> {
        self.inner.closed().await
    }
}

impl WriteHalf {
    /// Writes all of `data` without copying it, and leaves it empty.
    ///
    /// Dropping the future leaves in `data` what was not written yet; another call goes on with it.
    ///
    /// # Errors
    /// The connection failed, or was shut down.
    pub async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<()> {
        self.inner.write_chunk(data).await
    }

    /// The connection now; `None` when its host is gone.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.monitor.status()
    }

    /// As [`Stream::closed`](crate::Stream::closed).
    ///
    /// # Errors
    /// As [`Stream::closed`](crate::Stream::closed).
    pub async fn closed(&self) -> io::Result<()> {
        self.inner.closed().await
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

impl AsyncBufRead for ReadHalf {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().inner).poll_fill_buf(context)
    }

    fn consume(self: Pin<&mut Self>, len: usize) {
        Pin::new(&mut self.get_mut().inner).consume(len);
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
