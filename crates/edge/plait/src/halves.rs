//! The two directions of a connection, for different tasks.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::status::{Monitor, Status};

/// The receiving direction of a [`Stream`](crate::Stream).
#[derive(Debug)]
pub struct ReadHalf {
    pub(crate) monitor: Monitor,
    /// Data taken from the connection and not yet read.
    pending: Bytes,
}

/// The sending direction of a [`Stream`](crate::Stream); dropping it ends the direction.
#[derive(Debug)]
pub struct WriteHalf {
    monitor: Monitor,
    is_finished: bool,
}

/// Most bytes of one `poll_write` that are copied before the connection gets them: four super-segments.
const WRITE_CHUNK: usize = 256 * 1024;

impl ReadHalf {
    pub(crate) fn new(monitor: Monitor) -> Self {
        Self { monitor, pending: Bytes::new() }
    }

    /// Reads the next bytes without copying them; `None` at the end of the stream. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|context| self.poll_pending(context)).await?;
        let chunk = std::mem::take(&mut self.pending);
        Ok(if chunk.is_empty() { None } else { Some(chunk) })
    }

    /// The connection now; `None` when its host is gone.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.monitor.status()
    }

    /// As [`Stream::closed`](crate::Stream::closed). Dropping the future changes nothing.
    ///
    /// # Errors
    /// As [`Stream::closed`](crate::Stream::closed).
    pub async fn closed(&self) -> io::Result<()> {
        self.monitor.connection.closed().await
    }

    /// Becomes ready when `pending` has bytes, or has none because the stream is at its end.
    fn poll_pending(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.pending.is_empty() {
            self.pending = ready!(self.monitor.connection.poll_read(context))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl WriteHalf {
    pub(crate) fn new(monitor: Monitor) -> Self {
        Self { monitor, is_finished: false }
    }

    /// Writes all of `data` without copying it, and leaves it empty.
    ///
    /// Dropping the future leaves in `data` what was not written yet; another call goes on with it.
    ///
    /// # Errors
    /// The connection failed, or was shut down.
    pub async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<()> {
        while !data.is_empty() {
            let taken = poll_fn(|context| self.poll_give(context, |room| data.slice(..room.min(data.len()))));
            data.advance(taken.await?);
        }
        Ok(())
    }

    /// The connection now; `None` when its host is gone.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.monitor.status()
    }

    /// As [`Stream::closed`](crate::Stream::closed). Dropping the future changes nothing.
    ///
    /// # Errors
    /// As [`Stream::closed`](crate::Stream::closed).
    pub async fn closed(&self) -> io::Result<()> {
        self.monitor.connection.closed().await
    }

    /// Becomes ready with the number of bytes that the connection has taken, at least one of those that `cut` returns for the room.
    fn poll_give(&self, context: &Context<'_>, cut: impl FnMut(usize) -> Bytes) -> Poll<io::Result<usize>> {
        if self.is_finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.monitor.connection.poll_write(context, cut)
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.monitor.connection.finish();
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut has_read = false;
        while buffer.remaining() > 0 {
            match self.poll_pending(context) {
                Poll::Ready(Ok(())) => {}
                // Read data comes first; the error or the end is reported again later.
                Poll::Ready(Err(_)) | Poll::Pending if has_read => return Poll::Ready(Ok(())),
                other => return other,
            }
            if self.pending.is_empty() {
                break;
            }
            let len = self.pending.len().min(buffer.remaining());
            buffer.put_slice(&self.pending[..len]);
            self.pending.advance(len);
            has_read = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for ReadHalf {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let half = self.get_mut();
        ready!(half.poll_pending(context))?;
        Poll::Ready(Ok(&half.pending))
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        self.pending.advance(len);
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_give(context, |room| Bytes::copy_from_slice(&data[..data.len().min(room).min(WRITE_CHUNK)]))
    }

    /// The connection sends as soon as it may: there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.finish();
    }
}
