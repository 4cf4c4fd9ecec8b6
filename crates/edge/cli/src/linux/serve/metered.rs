//! The stream of a client, with its bytes counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plait::Stream;
use plait_proxy::relay::Abort;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::running::Tally;

/// A stream whose bytes count for its client, each once: when they are read, and when the stream has taken them.
pub(super) struct Metered<'a> {
    stream: &'a mut Stream,
    tally: Option<Arc<Tally>>,
}

impl<'a> Metered<'a> {
    pub(super) fn new(stream: &'a mut Stream, tally: Option<Arc<Tally>>) -> Self {
        Self { stream, tally }
    }

    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(tally), Poll::Ready(Ok(bytes))) = (&self.tally, &written) {
            tally.sends(*bytes);
        }
        written
    }
}

impl AsyncRead for Metered<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut *self.stream).poll_read(context, buffer);
        if let Some(tally) = &self.tally {
            tally.receives(buffer.filled().len() - before);
        }
        polled
    }
}

impl AsyncWrite for Metered<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write(context, bytes);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write_vectored(context, parts);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}

impl Abort for Metered<'_> {
    fn abort(&mut self) {
        Stream::abort(self.stream);
    }

    fn acknowledged(&self) -> u64 {
        Abort::acknowledged(&*self.stream)
    }

    fn check(&self) -> io::Result<()> {
        Abort::check(&*self.stream)
    }
}
