//! What strangers can make a host keep.

use ::plait_host::EndpointConfig;

/// What unknown senders can make a host keep. What is beyond a limit is dropped, answered without keeping anything, or
/// makes room by the rules that each one names; [`Host::counters`](crate::Host::counters) tells how often.
///
/// ```
/// use plait::{Host, Limits};
///
/// let small = Limits::default().connections(1000).handshakes(64);
/// let builder = Host::builder().limits(small);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[must_use = "nothing happens before a host has them"]
pub struct Limits(pub(crate) EndpointConfig);

impl Limits {
    /// All connections at a time, over all listeners, those that we open included; 65,536 if nothing is said.
    pub fn connections(mut self, most: usize) -> Self {
        self.0.max_connections = most;
        self
    }

    /// Connections that wait for the third segment of TCP's handshake, some 6 KiB each; 4,096 if nothing is said. SYNs beyond are answered by
    /// SYN cookies (RFC 4987).
    pub fn half_open(mut self, most: usize) -> Self {
        self.0.max_half_open = most;
        self
    }

    /// Of these from one network, 24 bits of an IPv4 address and 64 bits of an IPv6 address; 256 if nothing is said. From a site of IPv6,
    /// 48 bits, four times as many.
    pub fn half_open_per_network(mut self, most: usize) -> Self {
        self.0.max_half_open_per_prefix = most;
        self
    }

    /// Handshakes of sealed connections that run at a time, 103 KiB each at worst; 1,024 if nothing is said. Then a network with fewer takes a
    /// place of the one with most, and so does an address within a network.
    pub fn handshakes(mut self, most: usize) -> Self {
        self.0.max_handshakes = most;
        self
    }

    /// Of these with one network; 128 if nothing is said. With a site of IPv6 four times as many.
    pub fn handshakes_per_network(mut self, most: usize) -> Self {
        self.0.max_handshakes_per_prefix = most;
        self
    }

    /// Complete connections that were not accepted yet, for each listener; 1,024 if nothing is said.
    pub fn backlog(mut self, most: usize) -> Self {
        self.0.backlog = most;
        self
    }

    /// Joins that were answered and have not proved themselves, 64 bytes each; 65,536 if nothing is said.
    pub fn pending_joins(mut self, most: usize) -> Self {
        self.0.max_pending_joins = most;
        self
    }

    /// Memory of all connections together, in bytes: their buffers on both sides, what waits out of order, and what peers may still send by
    /// the windows offered; 8 GiB if nothing is said. Half of it is for everybody alike, 128 KiB for each connection; those that want more
    /// share the rest, and offer smaller windows as it fills. Without room for 128 KiB a connection is not begun.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.0.memory = bytes;
        self
    }

    /// Four-tuples in TIME-WAIT (RFC 9293), some 100 bytes each; 32,768 if nothing is said.
    pub fn time_wait(mut self, most: usize) -> Self {
        self.0.max_time_wait = most;
        self
    }
}
