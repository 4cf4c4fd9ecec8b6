//! Incoming connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use plait_endpoint::ListenerId;

use crate::connection::Connection;
use crate::failure::gone;
use crate::network_monitor::OpenPort;
use crate::shared::{Awaited, Phase, Shared, Wait};

/// A port that accepts connections, over all paths. Dropping it returns the port to the kernel; accepted
/// connections continue.
pub struct Listener {
    shared: Arc<Shared>,
    id: ListenerId,
    port: u16,
    _open_port: OpenPort,
}

impl Listener {
    pub(crate) fn new(shared: Arc<Shared>, id: ListenerId, port: u16, open_port: OpenPort) -> Self {
        shared.lock().add_listener(id);
        Self { shared, id, port, _open_port: open_port }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the next connection; returns it with its source address. Dropping the future loses none.
    ///
    /// # Errors
    /// The host has ended.
    pub async fn accept(&self) -> io::Result<(Connection, SocketAddr)> {
        let mut wait = self.shared.wait_for(Awaited::Incoming(self.id));
        poll_fn(|context| self.poll_accept(&mut wait, context)).await
    }

    fn poll_accept(
        &self,
        wait: &mut Wait<'_>,
        context: &Context<'_>,
    ) -> Poll<io::Result<(Connection, SocketAddr)>> {
        let mut state = self.shared.lock();
        if let Some((id, from)) = state.endpoint.accept(self.id) {
            state.add_connection(id);
            drop(state);
            // Earlier changes of the connection are reported as events now.
            self.shared.wake.ask();
            return Poll::Ready(Ok((Connection::new(self.shared.clone(), id), from)));
        }
        if state.phase == Phase::Stopped {
            return Poll::Ready(Err(gone()));
        }
        wait.pending(&mut state, context)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.change(|state, now| {
            state.remove_listener(self.id);
            state.endpoint.stop_listening(now, self.id);
        });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("port", &self.port).finish_non_exhaustive()
    }
}
