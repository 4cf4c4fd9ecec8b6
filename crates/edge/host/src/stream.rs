//! A connection as an application sees it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use plait_endpoint::ConnectionId;
use plait_mptcp::{ConnectionError, Negotiated, ReadError, Status};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::failure::{end_of, error_of, gone};
use crate::shared::{Awaited, Interest, Phase, Shared};

/// A Multipath TCP connection, or the plain TCP connection after a fallback: [`Stream::status`] reports which.
///
/// Reading and writing work like those of any tokio socket. [`tokio::io::AsyncWriteExt::shutdown`] ends our direction and leaves the
/// other open. Dropping the stream releases the connection: written data is still delivered as long as the [`crate::Host`] lives. If the
/// peer has sent data that was not read, it gets a reset.
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The receiving direction of a [`Stream`].
#[derive(Debug)]
pub struct ReadHalf {
    handle: Arc<Handle>,
    /// Data taken from the connection and not yet read.
    pending: Bytes,
}

/// The sending direction of a [`Stream`]; dropping it ends the direction.
#[derive(Debug)]
pub struct WriteHalf {
    handle: Arc<Handle>,
    is_finished: bool,
}

/// The connection; released after both halves.
struct Handle {
    shared: Arc<Shared>,
    id: ConnectionId,
}

/// Reads the status of a connection in use elsewhere, and can end it. The connection is kept while the monitor exists.
#[derive(Clone, Debug)]
pub struct Monitor {
    handle: Arc<Handle>,
}

/// Most bytes of one `poll_write` that are copied before the endpoint gets them: four super-segments.
const WRITE_CHUNK: usize = 256 * 1024;

impl Stream {
    /// Returns the stream of a connection that the endpoint has just created, with its waiters registered.
    pub(crate) fn new(shared: Arc<Shared>, id: ConnectionId) -> Self {
        let handle = Arc::new(Handle { shared, id });
        let read = ReadHalf { handle: handle.clone(), pending: Bytes::new() };
        Self { read, write: WriteHalf { handle, is_finished: false } }
    }

    /// The negotiated protocol, and the state of each subflow.
    pub fn status(&self) -> Option<Status> {
        self.read.handle.status()
    }

    /// Returns a monitor that reads the status while the halves are in use.
    pub fn monitor(&self) -> Monitor {
        Monitor { handle: self.read.handle.clone() }
    }

    /// Splits the stream into two halves that different tasks can use.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Reads the next bytes without copying them; `None` at the end of the stream.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        self.read.read_chunk().await
    }

    /// Writes all of `data` without copying it.
    ///
    /// # Errors
    /// The connection failed, or was shut down.
    pub async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<()> {
        self.write.write_chunk(data).await
    }

    /// Waits until the connection has ended: both directions have ended and the peer knows, or it failed.
    ///
    /// # Errors
    /// The connection failed. Reading may have ended in order all the same. After a reset by a peer whose data was read to the end, only
    /// this error reports the loss of written data.
    pub async fn closed(&self) -> io::Result<()> {
        self.read.handle.closed().await
    }

    /// Ends the connection at once, in both directions.
    pub fn abort(&self) {
        self.read.handle.abort();
    }

    /// Waits until the connection can be used, or has failed. A connection that the peer closed before the first look counts as open:
    /// reading reports the close.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn opened(&self) -> io::Result<()> {
        let Handle { shared, id } = &*self.read.handle;
        let mut wait = shared.wait_for(Awaited::Opening(*id));
        poll_fn(|context| {
            let mut state = shared.lock();
            let now = shared.clock.now();
            let is_open = state.endpoint.status(now, *id).is_some_and(|status| match status.negotiated {
                // With required paths, the connection is open after they have contributed to the keys.
                Negotiated::Multipath { .. } => !status.sealed.is_some_and(|sealed| sealed.waits_for_paths),
                Negotiated::Plain(_) => true,
                Negotiated::Opening => false,
            });
            if is_open && state.endpoint.end(*id) == Some(Err(ConnectionError::FastClose)) {
                return Poll::Ready(Ok(()));
            }
            match end_of(&state, now, *id) {
                Some(Err(error)) => Poll::Ready(Err(error)),
                Some(Ok(())) | None if is_open => Poll::Ready(Ok(())),
                Some(Ok(())) => Poll::Ready(Err(gone())),
                None => wait.pending(&mut state, context),
            }
        })
        .await
    }
}

impl Monitor {
    /// The same as [`Stream::status`].
    pub fn status(&self) -> Option<Status> {
        self.handle.status()
    }

    /// The same as [`Stream::abort`].
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Asks the peer of a sealed connection at once whether it still has our subflows. The answers are in the status of each subflow
    /// ([`SubflowStatus::verified`](plait_mptcp::SubflowStatus::verified)).
    pub fn ask_life(&self) {
        let Handle { shared, id } = &*self.handle;
        shared.change(|state, now| state.endpoint.ask_life(now, *id));
    }

    /// Asks the peer of a sealed connection how it sees our subflows, in a block filled to this many bytes, at most 32 KiB. The answer
    /// is as long, and in the status of each subflow. Returns `false` if the connection is not sealed, or the peer does not support the
    /// question.
    pub fn look(&self, bytes: usize) -> bool {
        let Handle { shared, id } = &*self.handle;
        shared.change(|state, now| state.endpoint.look(now, *id, bytes))
    }
}

impl ReadHalf {
    /// As [`Stream::read_chunk`].
    ///
    /// # Errors
    /// The connection failed.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|context| self.poll_pending(context)).await?;
        let chunk = std::mem::take(&mut self.pending);
        Ok(if chunk.is_empty() { None } else { Some(chunk) })
    }

    /// As [`Stream::status`].
    pub fn status(&self) -> Option<Status> {
        self.handle.status()
    }

    /// As [`Stream::closed`].
    ///
    /// # Errors
    /// As [`Stream::closed`].
    pub async fn closed(&self) -> io::Result<()> {
        self.handle.closed().await
    }

    /// Becomes ready when `pending` has bytes, or has none because the stream is at its end.
    fn poll_pending(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if !self.pending.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let Handle { shared, id } = &*self.handle;
        let mut state = shared.lock();
        let now = shared.clock.now();
        match state.endpoint.read(now, *id) {
            Ok(bytes) => {
                self.pending = bytes;
                drop(state);
                // Room was made: a window update may be due.
                shared.wake.ask();
                Poll::Ready(Ok(()))
            }
            Err(ReadError::End) => Poll::Ready(Ok(())),
            Err(ReadError::Failed(error)) => Poll::Ready(Err(error_of(&state, now, *id, error))),
            Err(ReadError::WouldBlock) if state.phase == Phase::Stopped => Poll::Ready(Err(gone())),
            Err(ReadError::WouldBlock) => state.wait(*id, Interest::Read, context),
        }
    }
}

impl WriteHalf {
    /// As [`Stream::write_chunk`].
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

    /// As [`Stream::status`].
    pub fn status(&self) -> Option<Status> {
        self.handle.status()
    }

    /// As [`Stream::closed`].
    ///
    /// # Errors
    /// As [`Stream::closed`].
    pub async fn closed(&self) -> io::Result<()> {
        self.handle.closed().await
    }

    /// Becomes ready with the number of bytes that the connection has taken, at least one. `cut` returns the data to write, and is
    /// called without the lock: as much as there is room for, or less, and at least one byte.
    fn poll_give(
        &self,
        context: &Context<'_>,
        mut cut: impl FnMut(usize) -> Bytes,
    ) -> Poll<io::Result<usize>> {
        loop {
            let room = ready!(self.poll_room(context))?;
            // The room may shrink meanwhile: the driver seals, which needs room of its own, and connections share the memory.
            let taken = self.give(cut(room));
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
    }

    /// Becomes ready with the available room, at least one byte. Without room, the task is woken when room is available.
    fn poll_room(&self, context: &Context<'_>) -> Poll<io::Result<usize>> {
        let Handle { shared, id } = &*self.handle;
        let mut state = shared.lock();
        if self.is_finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.is_closed(*id) {
            let broken = || Err(io::ErrorKind::BrokenPipe.into());
            return Poll::Ready(
                end_of(&state, shared.clock.now(), *id).and_then(Result::err).map_or_else(broken, Err),
            );
        }
        match state.endpoint.writable(*id) {
            0 => {
                // The endpoint reports new room to a writer that it has refused.
                state.endpoint.write(shared.clock.now(), *id, Bytes::new());
                state.wait(*id, Interest::Write, context)
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    fn give(&self, data: Bytes) -> usize {
        let Handle { shared, id } = &*self.handle;
        shared.change(|state, now| state.endpoint.write(now, *id, data))
    }

    fn finish(&mut self) {
        if !self.is_finished {
            self.is_finished = true;
            let Handle { shared, id } = &*self.handle;
            shared.change(|state, now| state.endpoint.finish(now, *id));
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

    /// The endpoint sends as soon as it may: there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().read).poll_fill_buf(context)
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        Pin::new(&mut self.read).consume(len);
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

/// Resets a connection when it is dropped, unless it is disarmed: a connection that is given up while it opens does not end in order without
/// a byte.
#[derive(Debug)]
#[must_use = "it resets the connection when it is dropped"]
pub struct AbortOnDrop(Option<Monitor>);

impl AbortOnDrop {
    /// For the connection of `stream`.
    pub fn of(stream: &Stream) -> Self {
        Self(Some(stream.monitor()))
    }

    /// Lets the connection live.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(monitor) = &self.0 {
            monitor.abort();
        }
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Handle {
    fn status(&self) -> Option<Status> {
        let state = self.shared.lock();
        state.endpoint.status(self.shared.clock.now(), self.id)
    }

    fn abort(&self) {
        self.shared.change(|state, now| state.endpoint.abort(now, self.id));
    }

    async fn closed(&self) -> io::Result<()> {
        let mut wait = self.shared.wait_for(Awaited::Closing(self.id));
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.is_closed(self.id) {
                Poll::Ready(end_of(&state, self.shared.clock.now(), self.id).unwrap_or(Ok(())))
            } else {
                wait.pending(&mut state, context)
            }
        })
        .await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.change(|state, now| {
            state.endpoint.release(now, self.id);
            state.remove_connection(self.id);
        });
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.id.0).finish()
    }
}

#[cfg(test)]
mod tests;
