//! Joins two streams: data from one leaves on the other, and each direction ends on its own.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;

use crate::copying::copy;

/// A stream that can be aborted, so that the other side does not take it for the end of the data.
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
    let ((a_in, mut a_out), (b_in, mut b_out)) = (split(&mut *a), split(&mut *b));
    let there = async {
        let copied = copy(a_in, &mut b_out).await?;
        b_out.shutdown().await?;
        Ok(copied)
    };
    let back = async {
        let copied = copy(b_in, &mut a_out).await?;
        a_out.shutdown().await?;
        Ok(copied)
    };
    let result = tokio::try_join!(there, back);
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
