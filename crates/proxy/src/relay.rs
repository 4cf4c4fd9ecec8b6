//! Two streams joined: what comes in at one goes out at the other, each direction to its own end.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

/// Bytes on their way in each direction: a few super-segments.
pub(crate) const BUFFER: usize = 256 * 1024;

/// A stream that can be ended so that the other side cannot take it for the end of the data.
pub trait Abort {
    /// Resets it.
    fn abort(&mut self);
}

impl Abort for TcpStream {
    fn abort(&mut self) {
        // A socket that is already gone has no linger time to set.
        let _ = self.set_zero_linger();
    }
}

impl Abort for plait::Stream {
    fn abort(&mut self) {
        Self::abort(self);
    }
}

/// Copies until both directions have ended and returns the bytes each carried, `a` to `b` first. A failure on
/// one side becomes a reset on both: a broken stream must never look like a complete one.
///
/// # Errors
/// One side failed.
pub async fn relay<A, B>(a: &mut A, b: &mut B) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Abort + Unpin,
    B: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let result = copy_bidirectional_with_sizes(a, b, BUFFER, BUFFER).await;
    if result.is_err() {
        a.abort();
        b.abort();
    }
    result
}

#[cfg(test)]
impl Abort for tokio::io::DuplexStream {
    fn abort(&mut self) {}
}
