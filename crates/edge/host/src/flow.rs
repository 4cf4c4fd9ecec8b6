//! Flows of datagrams beside the stream of a connection.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use plait_mptcp::{Datagram, DatagramRefused, FlowEnded, FlowError, FlowId, FlowNews, PathChoice};

use crate::connection::{Connection, Handle};
use crate::shared::Awaited;

/// A flow of datagrams. Dropping it ends the flow in both directions. It keeps its connection alive.
#[derive(Debug)]
pub struct Flow {
    connection: Connection,
    id: FlowId,
}

impl Connection {
    /// Opens a flow to a destination of at most 255 bytes, which the application of the peer judges. Waits until the connection is open.
    /// Dropping the future opens none.
    ///
    /// # Errors
    /// [`FlowError`], except [`FlowError::NotYet`].
    pub async fn open_flow(&self, destination: Bytes, choice: PathChoice) -> Result<Flow, FlowError> {
        let Handle { shared, id } = &*self.0;
        let mut wait = shared.wait_for(Awaited::Flow(*id, FlowNews::Offered));
        let opened = poll_fn(|context| {
            let mut state = shared.lock();
            let now = shared.clock.now();
            match state.endpoint.open_flow(now, *id, destination.clone(), choice) {
                Err(FlowError::NotYet) if state.is_closed(*id) => Poll::Ready(Err(FlowError::Unsupported)),
                Err(FlowError::NotYet) => wait.pending(&mut state, context),
                opened => Poll::Ready(opened),
            }
        });
        let flow = opened.await?;
        // There is a record to send.
        shared.wake.ask();
        Ok(Flow { connection: self.clone(), id: flow })
    }

    /// Waits for the next flow that the peer opens, and returns it with its destination; `None` when the connection has ended. Dropping the
    /// future loses no flow: the next call returns it.
    pub async fn accept_flow(&self) -> Option<(Flow, Bytes)> {
        let Handle { shared, id } = &*self.0;
        let mut wait = shared.wait_for(Awaited::Flow(*id, FlowNews::Offered));
        let offered = poll_fn(|context| {
            let mut state = shared.lock();
            match state.endpoint.accept_flow(*id) {
                Some(offered) => Poll::Ready(Some(offered)),
                None if state.is_closed(*id) => Poll::Ready(None),
                None => wait.pending(&mut state, context),
            }
        });
        let (flow, destination) = offered.await?;
        Some((Flow { connection: self.clone(), id: flow }, destination))
    }
}

impl Flow {
    /// Sends a datagram with its ECN codepoint, or drops it: it is not repeated.
    ///
    /// # Errors
    /// The flow has ended, or the datagram is too long.
    pub fn send(&self, payload: Bytes, ecn: u8) -> Result<(), DatagramRefused> {
        let Handle { shared, id } = &*self.connection.0;
        shared.change(|state, now| state.endpoint.send_datagram(now, *id, self.id, ecn, payload))
    }

    /// Waits for the next datagram; `None` when the flow or the connection has ended and all that arrived before was read. Dropping the
    /// future loses no datagram.
    pub async fn receive(&self) -> Option<Datagram> {
        let Handle { shared, id } = &*self.connection.0;
        let mut wait = shared.wait_for(Awaited::Flow(*id, FlowNews::Flow(self.id)));
        poll_fn(|context| {
            let mut state = shared.lock();
            match state.endpoint.receive_datagram(*id, self.id) {
                Ok(Some(datagram)) => Poll::Ready(Some(datagram)),
                Err(FlowEnded) => Poll::Ready(None),
                Ok(None) if state.is_closed(*id) => Poll::Ready(None),
                Ok(None) => wait.pending(&mut state, context),
            }
        })
        .await
    }

    /// Its number on the connection, the same at both ends.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.id.0
    }

    /// The longest payload that is sent in one piece at present. Longer ones, up to four times that, are cut.
    #[must_use]
    pub fn longest(&self) -> usize {
        let Handle { shared, id } = &*self.connection.0;
        shared.lock().endpoint.longest_datagram(*id, self.id)
    }

    /// Changes the choice of paths.
    pub fn set_path_choice(&self, choice: PathChoice) {
        let Handle { shared, id } = &*self.connection.0;
        shared.lock().endpoint.set_path_choice(*id, self.id, choice);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let Handle { shared, id } = &*self.connection.0;
        shared.change(|state, now| {
            state.endpoint.close_flow(now, *id, self.id);
            state.remove_flow(*id, FlowNews::Flow(self.id));
        });
    }
}
