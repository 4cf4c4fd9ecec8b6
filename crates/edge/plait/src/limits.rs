//! Limits on what unknown peers can make a host keep.

use ::plait_host::EndpointConfig;

/// The limits on what unknown peers can make a host keep. Beyond a limit, a packet is dropped, answered without state, or makes room by the
/// rule of that limit. [`Host::totals`](crate::Host::totals) counts these cases.
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
    /// Sets the most connections at a time, over all listeners and including those that we open. Default: 65,536.
    pub fn connections(mut self, most: usize) -> Self {
        self.0.max_connections = most;
        self
    }

    /// Sets the most connections that wait for the third segment of TCP's handshake, about 6 KiB each. Default: 4,096. Further SYNs are
    /// answered with SYN cookies (RFC 4987).
    pub fn half_open(mut self, most: usize) -> Self {
        self.0.max_half_open = most;
        self
    }

    /// Sets the most half-open connections from one network, 24 bits of an IPv4 address and 64 bits of an IPv6 address. Default: 256. The
    /// limit of an IPv6 site, 48 bits, is four times as many.
    pub fn half_open_per_network(mut self, most: usize) -> Self {
        self.0.max_half_open_per_prefix = most;
        self
    }

    /// Sets the most handshakes of sealed connections at a time, at most 103 KiB each. Default: 1,024. At the limit, a network with fewer
    /// handshakes replaces one of the network with the most; the same rule applies to addresses within a network.
    pub fn handshakes(mut self, most: usize) -> Self {
        self.0.max_handshakes = most;
        self
    }

    /// Sets the most of these handshakes with one network. Default: 128. The limit of an IPv6 site is four times as many.
    pub fn handshakes_per_network(mut self, most: usize) -> Self {
        self.0.max_handshakes_per_prefix = most;
        self
    }

    /// Sets the most complete connections that are not accepted yet, for each listener. Default: 1,024.
    pub fn backlog(mut self, most: usize) -> Self {
        self.0.backlog = most;
        self
    }

    /// Sets the most answered joins that are not authenticated yet, 64 bytes each. Default: 65,536.
    pub fn pending_joins(mut self, most: usize) -> Self {
        self.0.max_pending_joins = most;
        self
    }

    /// Sets the memory of all connections together, in bytes: their buffers on both sides, out-of-order data, and what peers may still send
    /// in the offered windows. Default: 8 GiB. Half of it is divided equally, 128 KiB for each connection. Connections that want more share
    /// the rest, and offer smaller windows as it fills. Without room for 128 KiB, no connection begins.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.0.memory = bytes;
        self
    }

    /// Sets the most four-tuples in TIME-WAIT (RFC 9293), about 100 bytes each. Default: 32,768.
    pub fn time_wait(mut self, most: usize) -> Self {
        self.0.max_time_wait = most;
        self
    }
}
