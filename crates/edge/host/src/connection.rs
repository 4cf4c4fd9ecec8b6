//! The buffers of a connection, which the driver and an application share.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use plait_endpoint::ConnectionId;
use plait_mptcp::{ConnectionError, Negotiated, ReadError, Status};

use crate::failure::{end_of, error_of, gone};
use crate::shared::{Awaited, Interest, Phase, Shared};

/// A handle of a connection; a clone is another one. Dropping the last handle releases the connection: written data is still delivered as
/// long as the [`crate::Host`] lives. If the peer has sent data that was not read, it gets a reset.
///
/// The connection wakes one task that reads and one that writes, which are the last that have polled. Any number of tasks may await the
/// opening and the end.
#[derive(Clone)]
pub struct Connection(pub(crate) Arc<Handle>);

/// Releases the connection with its last holder.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ConnectionId,
}

impl Connection {
    /// A connection that the endpoint has just created, with its waiters registered.
    pub(crate) fn new(shared: Arc<Shared>, id: ConnectionId) -> Self {
        Self(Arc::new(Handle { shared, id }))
    }

    /// The negotiated protocol, and the state of each subflow; `None` after the host has forgotten the connection.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let Handle { shared, id } = &*self.0;
        let state = shared.lock();
        state.endpoint.status(shared.clock.now(), *id)
    }

    /// Ends the connection at once, in both directions.
    pub fn abort(&self) {
        let Handle { shared, id } = &*self.0;
        shared.change(|state, now| state.endpoint.abort(now, *id));
    }

    /// Asks the peer of a sealed connection at once whether it still has our subflows. The answers are in the status of each subflow
    /// ([`SubflowStatus::verified`](plait_mptcp::SubflowStatus::verified)).
    pub fn ask_life(&self) {
        let Handle { shared, id } = &*self.0;
        shared.change(|state, now| state.endpoint.ask_life(now, *id));
    }

    /// Asks the peer of a sealed connection how it sees our subflows, in a block filled to this many bytes, at most 32 KiB. The answer
    /// is as long, and in the status of each subflow. Returns `false` if the connection is not sealed, or the peer does not support the
    /// question.
    #[must_use]
    pub fn look(&self, bytes: usize) -> bool {
        let Handle { shared, id } = &*self.0;
        shared.change(|state, now| state.endpoint.look(now, *id, bytes))
    }

    /// Becomes ready with the next bytes, which are not copied; with none at the end of the stream.
    ///
    /// # Errors
    /// The connection failed.
    pub fn poll_read(&self, context: &Context<'_>) -> Poll<io::Result<Bytes>> {
        let Handle { shared, id } = &*self.0;
        let mut state = shared.lock();
        let now = shared.clock.now();
        match state.endpoint.read(now, *id) {
            Ok(bytes) => {
                drop(state);
                // Room was made: a window update may be due.
                shared.wake.ask();
                Poll::Ready(Ok(bytes))
            }
            Err(ReadError::End) => Poll::Ready(Ok(Bytes::new())),
            Err(ReadError::Failed(error)) => Poll::Ready(Err(error_of(&state, now, *id, error))),
            Err(ReadError::WouldBlock) if state.phase == Phase::Stopped => Poll::Ready(Err(gone())),
            Err(ReadError::WouldBlock) => state.wait(*id, Interest::Read, context),
        }
    }

    /// Becomes ready with the number of bytes that the connection has taken, at least one. `cut` returns the data to write, and is
    /// called without the lock: as much as there is room for, or less, and at least one byte.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn poll_write(
        &self,
        context: &Context<'_>,
        mut cut: impl FnMut(usize) -> Bytes,
    ) -> Poll<io::Result<usize>> {
        let Handle { shared, id } = &*self.0;
        loop {
            let data = cut(ready!(self.poll_room(context))?);
            // The room may shrink meanwhile: the driver seals, which needs room of its own, and connections share the memory.
            let taken = shared.change(|state, now| state.endpoint.write(now, *id, data));
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
    }

    /// Becomes ready with the available room, at least one byte. Without room, the task is woken when room is available.
    fn poll_room(&self, context: &Context<'_>) -> Poll<io::Result<usize>> {
        let Handle { shared, id } = &*self.0;
        let mut state = shared.lock();
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

    /// Ends our direction, behind what was written.
    pub fn finish(&self) {
        let Handle { shared, id } = &*self.0;
        shared.change(|state, now| state.endpoint.finish(now, *id));
    }

    /// Waits until the connection can be used, or has failed. A connection that the peer closed before the first look counts as open:
    /// reading reports the close. Dropping the future changes nothing.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn opened(&self) -> io::Result<()> {
        let Handle { shared, id } = &*self.0;
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

    /// Waits until the connection has ended: both directions have ended and the peer knows, or it failed. Dropping the future changes
    /// nothing.
    ///
    /// # Errors
    /// The connection failed. Reading may have ended in order all the same. After a reset by a peer whose data was read to the end, only
    /// this error reports the loss of written data.
    pub async fn closed(&self) -> io::Result<()> {
        let Handle { shared, id } = &*self.0;
        let mut wait = shared.wait_for(Awaited::Closing(*id));
        poll_fn(|context| {
            let mut state = shared.lock();
            if state.is_closed(*id) {
                Poll::Ready(end_of(&state, shared.clock.now(), *id).unwrap_or(Ok(())))
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

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.0.id.0).finish()
    }
}

#[cfg(all(test, not(feature = "models")))]
mod tests;
