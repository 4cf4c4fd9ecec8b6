//! One stream that two directions and a watch of it share.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose reader, writer and watch are parts of one task. Other than the halves of tokio, it gives the watch access to the stream
/// itself.
pub(crate) struct Shared<'a, S>(Mutex<&'a mut S>);

impl<'a, S> Shared<'a, S> {
    pub(crate) fn new(stream: &'a mut S) -> Self {
        Self(Mutex::new(stream))
    }

    /// Calls `f` with the stream.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&S) -> T) -> T {
        f(&**self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, &'a mut S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for &Shared<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for &Shared<'_, S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.lock()).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_shutdown(context)
    }
}
