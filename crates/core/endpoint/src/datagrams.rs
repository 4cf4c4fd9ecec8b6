//! Datagrams beside the streams of connections.

use bytes::Bytes;
use plait_base::Instant;
use plait_mptcp::{
    Datagram, DatagramRefused, FlowEnded, FlowError, FlowId, FlowNews, PathChoice, SMALLEST_SHARE,
};
use plait_tcp::FourTuple;
use plait_wire::Segment;

use crate::demux::Owner;
use crate::{Arrival, ConnectionId, Endpoint, log};

impl Endpoint {
    /// Passes a datagram to the connection of its subflow. A datagram of no subflow is dropped: it draws no answer and leaves no state.
    pub(crate) fn handle_datagram(&mut self, arrival: Arrival, datagram: &Segment) {
        let tuple = FourTuple { local: datagram.destination, remote: datagram.source };
        let owner = self.around.demux.owner(&tuple);
        let Some(Owner { connection: id, subflow: Some(subflow) }) = owner else {
            self.counters.stray_datagrams += 1;
            return;
        };
        let Some(entry) = self.connections.get_mut(&id) else { return };
        if self.around.memory.is_full() && entry.memory.is_some_and(|memory| memory.used > SMALLEST_SHARE) {
            self.counters.memory_dropped += 1;
            return;
        }
        let around = &mut self.around.lend_to(id);
        log::of(id, entry.is_quiet, || {
            entry.connection.handle_segment(arrival.at, subflow, datagram, around);
        });
        self.on_progress(arrival.at, id);
    }

    /// Opens a flow of datagrams to a destination, which the application of the peer judges.
    ///
    /// # Errors
    /// [`FlowError`].
    pub fn open_flow(
        &mut self,
        now: Instant,
        id: ConnectionId,
        destination: Bytes,
        choice: PathChoice,
    ) -> Result<FlowId, FlowError> {
        let entry = self.held_mut(id).ok_or(FlowError::Unsupported)?;
        let connection = entry.connection.connection_mut().ok_or(FlowError::NotYet)?;
        let flow = connection.open_flow(destination, choice)?;
        self.on_progress(now, id);
        Ok(flow)
    }

    /// Returns the next flow that the peer has opened, and its destination.
    pub fn accept_flow(&mut self, id: ConnectionId) -> Option<(FlowId, Bytes)> {
        self.held_mut(id)?.connection.connection_mut()?.accept_flow()
    }

    /// Returns the next flow in which something has arrived since it was last returned.
    pub fn poll_flow_news(&mut self, id: ConnectionId) -> Option<FlowNews> {
        self.held_mut(id)?.connection.connection_mut()?.poll_flow_news()
    }

    /// Ends a flow in both directions.
    pub fn close_flow(&mut self, now: Instant, id: ConnectionId, flow: FlowId) {
        if let Some(connection) = self.held_mut(id).and_then(|entry| entry.connection.connection_mut()) {
            connection.close_flow(flow);
            self.on_progress(now, id);
        }
    }

    /// Changes the choice of paths of a flow.
    pub fn set_path_choice(&mut self, id: ConnectionId, flow: FlowId, choice: PathChoice) {
        if let Some(connection) = self.held_mut(id).and_then(|entry| entry.connection.connection_mut()) {
            connection.set_path_choice(flow, choice);
        }
    }

    /// Sends a datagram in a flow, with its ECN codepoint, or drops it.
    ///
    /// # Errors
    /// The flow has ended, or the datagram is too long.
    pub fn send_datagram(
        &mut self,
        now: Instant,
        id: ConnectionId,
        flow: FlowId,
        ecn: u8,
        payload: Bytes,
    ) -> Result<(), DatagramRefused> {
        let connection = self.held_mut(id).and_then(|entry| entry.connection.connection_mut());
        connection.ok_or(DatagramRefused::Ended)?.send_datagram(now, flow, ecn, payload)?;
        self.on_progress(now, id);
        Ok(())
    }

    /// Returns the next datagram of a flow, if one has arrived.
    ///
    /// # Errors
    /// The flow, or the connection, has ended.
    pub fn receive_datagram(
        &mut self,
        id: ConnectionId,
        flow: FlowId,
    ) -> Result<Option<Datagram>, FlowEnded> {
        let connection = self.held_mut(id).and_then(|entry| entry.connection.connection_mut());
        connection.ok_or(FlowEnded)?.receive_datagram(flow)
    }

    /// Returns the longest payload that a flow carries in one piece at present; 0 once it has ended.
    pub fn longest_datagram(&self, id: ConnectionId, flow: FlowId) -> usize {
        let connection = self.held(id).and_then(|entry| entry.connection.connection());
        connection.map_or(0, |connection| connection.longest_datagram(flow))
    }
}
