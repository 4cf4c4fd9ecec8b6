//! A stream with its bytes counted: of a client of `serve`, or of a device behind `gateway`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plait_proxy::relay::Abort;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::running::Tally;
use crate::running::devices::Visit;

/// Counts the bytes of a stream, each once: when they are read, and when the stream has taken them.
pub(in crate::linux) trait Meter {
    /// Bytes that were read.
    fn has_read(&self, bytes: usize);

    /// Bytes that were written.
    fn has_written(&self, bytes: usize);
}

impl Meter for Option<Arc<Tally>> {
    fn has_read(&self, bytes: usize) {
        self.iter().for_each(|tally| tally.receives(bytes));
    }

    fn has_written(&self, bytes: usize) {
        self.iter().for_each(|tally| tally.sends(bytes));
    }
}

impl Meter for Visit {
    fn has_read(&self, bytes: usize) {
        self.sends(bytes);
    }

    fn has_written(&self, bytes: usize) {
        self.receives(bytes);
    }
}

/// A stream whose bytes count.
pub(in crate::linux) struct Metered<S, M> {
    stream: S,
    meter: M,
}

impl<S, M: Meter> Metered<S, M> {
    pub(in crate::linux) fn new(stream: S, meter: M) -> Self {
        Self { stream, meter }
    }

    fn counted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.meter.has_written(*bytes);
        }
        written
    }
}

impl<S: AsyncRead + Unpin, M: Meter + Unpin> AsyncRead for Metered<S, M> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.meter.has_read(buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin, M: Meter + Unpin> AsyncWrite for Metered<S, M> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.counted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.counted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: Abort, M> Abort for Metered<S, M> {
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
