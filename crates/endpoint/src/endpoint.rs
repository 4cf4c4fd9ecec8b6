//! The endpoint.

use base::{Instant, PathId};
use bytes::Bytes;
use core::net::SocketAddr;
use mptcp::{Config, Path, Paths, ReadError, Status};
use wire::Trust;

/// Names a connection; never used twice in the life of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Names a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// Limits of an endpoint: what strangers can make it keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Connections whose handshake is not complete, over all listeners.
    pub max_half_open: usize,
    /// Complete connections that nobody has accepted yet, per listener.
    pub backlog: usize,
    /// All connections.
    pub max_connections: usize,
    /// Four-tuples in TIME-WAIT.
    pub max_time_wait: usize,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self { max_half_open: 4096, backlog: 1024, max_connections: 65_536, max_time_wait: 32_768 }
    }
}

/// A packet to be sent: headers here, payload where it is kept. Reused from call to call.
#[derive(Default, Debug)]
pub struct Transmit {
    /// IP and TCP header; the TCP checksum is the pseudo-header sum only ([`wire::TcpEmit::Partial`]).
    pub head: Vec<u8>,
    /// The bytes behind it.
    pub payload: Bytes,
    /// Payload bytes per wire segment; at least `payload.len()` if it is a single segment.
    pub segment_size: u16,
    /// Offset of the TCP header in `head`, for the checksum offload.
    pub transport_offset: u16,
    /// The path it belongs to (by its source address), for captures.
    pub path: Option<PathId>,
}

/// What the driver tells applications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection opened by [`Endpoint::connect`] is ready.
    Connected(ConnectionId),
    /// [`Endpoint::accept`] has something.
    Incoming(ListenerId),
    /// [`Endpoint::read`] has something (data, end, error).
    Readable(ConnectionId),
    /// [`Endpoint::write`] takes bytes again.
    Writable(ConnectionId),
    /// Over, in order or not; [`Endpoint::read`] says which.
    Closed(ConnectionId),
}

/// Why a connection cannot even be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// No path that is up has an address of the family.
    NoPath,
    /// [`EndpointConfig::max_connections`] is reached.
    TooMany,
    /// No remote address was given.
    NoAddress,
}

/// Why a port cannot be listened on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenError {
    /// Somebody does already.
    InUse,
}

/// Packets that went nowhere, by reason, and other totals.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes that were no packet of ours, by what was wrong.
    pub malformed: Vec<(wire::Malformed, u64)>,
    /// Segments for nobody (answered by a RST).
    pub no_connection: u64,
    /// MP_JOIN with a token that nobody has (answered by a RST).
    pub unknown_token: u64,
    /// SYNs refused for a limit.
    pub syn_limited: u64,
    /// Connections that exist.
    pub connections: usize,
    /// Four-tuples in TIME-WAIT.
    pub time_wait: usize,
}

/// All connections of a host.
pub struct Endpoint {}

impl Endpoint {
    /// An endpoint without paths. `wire_seed` and `secret_seed` are independent random bytes: what everybody
    /// may see is drawn from the first, keys from the second.
    pub fn new(config: EndpointConfig, wire_seed: [u8; 32], secret_seed: [u8; 32]) -> Self {
        let _ = (config, wire_seed, secret_seed);
        unimplemented!()
    }

    /// Adds a path or replaces the one with its id; running connections use it.
    pub fn set_path(&mut self, now: Instant, path: Path) {
        let _ = (now, path);
    }

    /// Takes a path away; running connections leave it.
    pub fn remove_path(&mut self, now: Instant, id: PathId) {
        let _ = (now, id);
    }

    /// The paths.
    pub fn paths(&self) -> &Paths {
        unimplemented!()
    }

    /// Opens a connection to a host known by these addresses, best first.
    pub fn connect(
        &mut self,
        now: Instant,
        config: Config,
        remotes: &[SocketAddr],
    ) -> Result<ConnectionId, ConnectError> {
        let _ = (now, config, remotes);
        unimplemented!()
    }

    /// Accepts connections to `port` on all paths, each with `config`.
    pub fn listen(&mut self, port: u16, config: Config) -> Result<ListenerId, ListenError> {
        let _ = (port, config);
        unimplemented!()
    }

    /// Stops listening; connections that were accepted go on, the others are reset.
    pub fn stop_listening(&mut self, now: Instant, id: ListenerId) {
        let _ = (now, id);
    }

    /// The next connection that somebody opened to us, and where from.
    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnectionId, SocketAddr)> {
        let _ = id;
        unimplemented!()
    }

    /// Takes one packet, maybe a super-segment (`segment_size` 0 if not).
    pub fn handle_packet(&mut self, now: Instant, packet: &Bytes, segment_size: u16, trust: Trust) {
        let _ = (now, packet, segment_size, trust);
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// Writes the next packet into `out`; `false` if there is none.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Transmit) -> bool {
        let _ = (now, out);
        unimplemented!()
    }

    /// The earliest deadline.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        unimplemented!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }

    /// Room in the send buffer of a connection; 0 if it cannot be written to (any more).
    pub fn writable(&self, id: ConnectionId) -> usize {
        let _ = id;
        unimplemented!()
    }

    /// Gives bytes to a connection and returns how many it took. 0: wait for [`Event::Writable`].
    pub fn write(&mut self, now: Instant, id: ConnectionId, data: Bytes) -> usize {
        let _ = (now, id, data);
        unimplemented!()
    }

    /// The next bytes in order.
    pub fn read(&mut self, now: Instant, id: ConnectionId) -> Result<Bytes, ReadError> {
        let _ = (now, id);
        unimplemented!()
    }

    /// No more writes on a connection.
    pub fn finish(&mut self, now: Instant, id: ConnectionId) {
        let _ = (now, id);
    }

    /// Ends a connection at once.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        let _ = (now, id);
    }

    /// The application has let go of it: what was written is still delivered, then it is closed and
    /// forgotten; the id is no longer valid.
    pub fn release(&mut self, now: Instant, id: ConnectionId) {
        let _ = (now, id);
    }

    /// Whether it is connected (or fell back), for a connection just opened; the error if it failed.
    pub fn status(&self, now: Instant, id: ConnectionId) -> Option<Status> {
        let _ = (now, id);
        unimplemented!()
    }

    /// Totals.
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
}
