//! The endpoint: all connections of a host.

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Instant, PathId, Random, SecretRandom, SeededRandom, WallClock};
use plait_mptcp::{
    Association, Config, ConnectionError, CryptoJob, CryptoResult, Path, PathClass, Paths, ReadError, Status,
};
use plait_tcp::FourTuple;
use plait_wire::{Segment, is_one_host};
use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{Entry, Stage};
use crate::half_open::HalfOpen;
use crate::lifecycle::PathChange;
use crate::limits::Replies;
use crate::listener::Listeners;
use crate::notices::{Notices, Unsealed};
use crate::pending_joins::PendingJoins;
use crate::ready::{Alarms, ReadyQueue};
use crate::surroundings::Surroundings;
use crate::{Counters, EndpointConfig, Event, log};

/// The id of a connection; never reused in the life of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// The id of a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// Time and path of the arrival of a segment or an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it was read from the device or other carrier.
    pub at: Instant,
    /// The path over which it came, if the carrier knows it. A segment for the address of another path is then refused.
    pub path: Option<PathId>,
}

impl Arrival {
    /// Returns an arrival whose path follows from the destination address alone.
    pub const fn at(at: Instant) -> Self {
        Self { at, path: None }
    }
}

/// A segment, or a super-segment, to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The segment.
    pub segment: Segment,
    /// The path that has its source address.
    pub path: Option<PathId>,
}

/// The reason for which a connection cannot be attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// No path that is up has an address of the family.
    NoPath,
    /// [`EndpointConfig::max_connections`] or [`EndpointConfig::memory`] is reached.
    TooMany,
    /// No remote address was given, or none that can be that of one host.
    NoAddress,
}

/// The reason for which a port cannot be listened on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenError {
    /// Another listener has the port.
    InUse,
}

/// All connections of a host.
///
/// After each `handle_*` and each call for an application, drain [`Endpoint::poll_transmit`], then [`Endpoint::poll_event`], then call
/// [`Endpoint::poll_timeout`]. If connections have crypto jobs ([`Config::crypto_jobs`]), drain [`Endpoint::poll_crypto`] too.
pub struct Endpoint {
    pub(crate) config: EndpointConfig,
    pub(crate) connections: BTreeMap<ConnectionId, Entry>,
    next_id: u64,
    pub(crate) around: Surroundings,
    pub(crate) listeners: Listeners,
    pub(crate) half_open: HalfOpen,
    pub(crate) pending_joins: PendingJoins,
    pub(crate) ready: ReadyQueue,
    /// Connections changed since the alarms were last updated. Some are listed more than once.
    pub(crate) changed: Vec<ConnectionId>,
    /// Connections that every usable path concerns.
    pub(crate) path_seekers: BTreeSet<ConnectionId>,
    /// Connections with blocks for jobs.
    pub(crate) crypto_ready: ReadyQueue,
    /// Jobs that are handed out and not returned yet.
    pub(crate) jobs_out: usize,
    pub(crate) alarms: Alarms,
    pub(crate) notices: Notices,
    /// Whether segments without a connection are left to another endpoint, and the one that was left last.
    pub(crate) leaves_unknown: bool,
    pub(crate) left: Option<Segment>,
    /// The first refused peer since the driver last asked. The others are only counted.
    pub(crate) unsealed: Option<Unsealed>,
    pub(crate) replies: Replies,
    /// Whether the last turn was that of answers to unknown peers rather than of connections.
    pub(crate) replies_first: bool,
    /// Log lines caused by unknown peers.
    #[cfg(feature = "tracing")]
    pub(crate) repetitions: plait_base::LogLimits,
    /// All totals except those that can be computed on demand.
    pub(crate) counters: Counters,
}

impl Endpoint {
    /// Returns an endpoint without paths and with deterministic randomness from two independent seeds. Values that are visible on the wire
    /// come from the first, keys from the second. Same seeds, same bytes: a real host uses [`Endpoint::with_random`].
    pub fn new(config: EndpointConfig, wire_seed: [u8; 32], secret_seed: [u8; 32]) -> Self {
        let wire = Box::new(SeededRandom::new(wire_seed));
        Self::with_random(config, wire, Box::new(SecretRandom::new(secret_seed)))
    }

    /// Returns an endpoint without paths. Values that are visible on the wire come from `wire`, keys from `secret`. Each value is drawn
    /// when it is needed, and none is drawn ahead.
    pub fn with_random(
        config: EndpointConfig,
        wire: Box<dyn Random + Send>,
        secret: Box<dyn Random + Send>,
    ) -> Self {
        Self {
            config,
            connections: BTreeMap::new(),
            next_id: 0,
            around: Surroundings::new(&config, wire, secret),
            listeners: Listeners::default(),
            half_open: HalfOpen::default(),
            pending_joins: PendingJoins::new(config.max_pending_joins),
            ready: ReadyQueue::default(),
            changed: Vec::new(),
            path_seekers: BTreeSet::new(),
            crypto_ready: ReadyQueue::default(),
            jobs_out: 0,
            alarms: Alarms::default(),
            notices: Notices::default(),
            leaves_unknown: false,
            left: None,
            unsealed: None,
            replies: Replies::default(),
            replies_first: false,
            #[cfg(feature = "tracing")]
            repetitions: plait_base::LogLimits::default(),
            counters: Counters::default(),
        }
    }

    /// Adds a path or replaces the one with its id. Running connections use it.
    pub fn set_path(&mut self, now: Instant, path: Path) {
        if self.around.paths.get(path.id) == Some(&path) {
            return;
        }
        // The driver, which knows the carrier, informs the user: a device may be several paths.
        log::debug!(path = path.name, id = ?path.id, up = path.up, v4 = ?path.v4, v6 = ?path.v6, mtu = path.mtu, "path changes");
        self.around.closed_ways.forget(path.id);
        let before = self.around.paths.get(path.id).cloned();
        if before.as_ref().is_none_or(|before| (before.v4, before.v6) != (path.v4, path.v6)) {
            // The path may lead into another network.
            self.around.syn_data_ways.forget(path.id);
        }
        self.around.paths.insert(path.clone());
        self.on_path_changed(now, PathChange { before, after: Some(path) });
    }

    /// Removes a path. Running connections leave it.
    pub fn remove_path(&mut self, now: Instant, id: PathId) {
        if let Some(before) = self.around.paths.remove(id) {
            log::info!(path_number = id.0, "path is gone");
            self.around.closed_ways.forget(id);
            self.around.syn_data_ways.forget(id);
            self.on_path_changed(now, PathChange { before: Some(before), after: None });
        }
    }

    /// Sets the source of the date. It is read once for each handshake, for certificates and tickets. Without it the year is 1970, and all
    /// certificates are from the future.
    pub fn set_wall_clock(&mut self, clock: Box<dyn WallClock + Send>) {
        self.around.wall_clock = clock;
    }

    /// Returns the paths.
    pub fn paths(&self) -> &Paths {
        &self.around.paths
    }

    /// Opens a connection to a host with these addresses, best first.
    pub fn connect(
        &mut self,
        now: Instant,
        config: Config,
        remotes: &[SocketAddr],
    ) -> Result<ConnectionId, ConnectError> {
        let remotes: Vec<_> = remotes.iter().copied().filter(|remote| is_one_host(&remote.ip())).collect();
        let best = *remotes.first().ok_or(ConnectError::NoAddress)?;
        if !remotes.iter().any(|remote| self.can_reach(*remote)) {
            return Err(ConnectError::NoPath);
        }
        if self.connections.len() >= self.config.max_connections {
            return Err(ConnectError::TooMany);
        }
        if !self.around.memory.takes_connections(1) {
            self.counters.memory_limited += 1;
            return Err(ConnectError::TooMany);
        }
        let id = self.draw_id();
        let time_wait = config.tcp.time_wait;
        let around = &mut self.around.lend_to(id);
        let connection = log::within(id, || {
            log::debug!(?remotes, "connection opens");
            Association::connect(now, config, &remotes, around)
        });
        self.connections.insert(id, Entry::new(connection, Stage::Held, best, time_wait));
        self.on_progress(now, id);
        Ok(id)
    }

    /// Accepts connections to `port` on all paths, each with `config`.
    pub fn listen(&mut self, port: u16, config: Config) -> Result<ListenerId, ListenError> {
        self.listeners.open(port, config, self.config.backlog)
    }

    /// Stops listening. Accepted connections go on, the others are reset.
    pub fn stop_listening(&mut self, now: Instant, id: ListenerId) {
        let mut left = self.listeners.close(id);
        left.extend(self.half_open.iter().filter(|connection| {
            self.connections.get(connection).is_some_and(|entry| entry.stage == Stage::HalfOpen(id))
        }));
        for connection in left {
            self.disown(now, connection);
            self.abort_any(now, connection);
        }
    }

    /// Returns the next connection that a peer has opened, and the address of the peer.
    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnectionId, SocketAddr)> {
        let (connection, remote) = self.listeners.dequeue(id)?;
        if self.listeners.has_waiting(id) {
            self.notices.push(Event::Incoming(id));
        }
        let entry = self.connections.get_mut(&connection)?;
        entry.stage = Stage::Held;
        for event in entry.held_events.drain(..) {
            self.notices.push(event);
        }
        Some((connection, remote))
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.around.time_waits.handle_timeout(now);
        while let Some(id) = self.alarms.pop_due(now) {
            let Some(entry) = self.connections.get_mut(&id) else { continue };
            entry.alarm = None;
            if entry.deadline().is_none_or(|deadline| deadline > now) {
                self.set_alarm(id);
                continue;
            }
            let around = &mut self.around.lend_to(id);
            log::of(id, entry.is_quiet, || entry.connection.handle_timeout(now, around));
            self.check_orphan(now, id);
            self.on_progress(now, id);
        }
        self.begin_waiting_handshakes(now);
    }

    /// Returns the next block to be sealed or opened, with its connection. Returns `None` also while [`EndpointConfig::max_crypto_jobs`]
    /// are in progress. The runner of a job passes the result to [`Endpoint::handle_crypto`], in any order. There are jobs if
    /// [`Config::crypto_jobs`] allows them. Then the driver drains this after [`Endpoint::poll_transmit`].
    pub fn poll_crypto(&mut self) -> Option<(ConnectionId, CryptoJob)> {
        if self.jobs_out >= self.config.max_crypto_jobs {
            return None;
        }
        while let Some(id) = self.crypto_ready.next() {
            let entry = self.connections.get_mut(&id);
            if let Some(job) = entry.and_then(|entry| entry.connection.poll_crypto()) {
                self.crypto_ready.rotate();
                self.jobs_out += 1;
                return Some((id, job));
            }
            self.crypto_ready.retire();
        }
        None
    }

    /// Handles the result of a job. It has no effect if the connection is gone.
    pub fn handle_crypto(&mut self, now: Instant, id: ConnectionId, result: CryptoResult) {
        self.jobs_out = self.jobs_out.saturating_sub(1);
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.connection.handle_crypto(now, result, &mut self.around.lend_to(id));
            self.on_progress(now, id);
        }
    }

    /// Returns the earliest deadline.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let mut changed = core::mem::take(&mut self.changed);
        for id in changed.drain(..) {
            // The other connections have had nothing more to send, and their alarms are set.
            if self.ready.contains(id) {
                self.set_alarm(id);
            }
        }
        self.changed = changed;
        let time_wait = self.around.time_waits.next_end();
        [self.alarms.next(), time_wait, self.half_open.next_vacancy()].into_iter().flatten().min()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let event = self.notices.pop()?;
            let is_wanted = match event {
                Event::Incoming(id) => self.listeners.has_waiting(id),
                Event::Connected(id)
                | Event::Readable(id)
                | Event::Writable(id)
                | Event::Datagrams(id)
                | Event::Closed(id) => self.held(id).is_some(),
            };
            if is_wanted {
                return Some(event);
            }
        }
    }

    /// Returns the room in the send buffer of a connection; 0 if it cannot be written to (any more).
    pub fn writable(&self, id: ConnectionId) -> usize {
        self.held(id).map_or(0, |entry| entry.connection.writable())
    }

    /// Gives bytes to a connection and returns how many it took. After 0, wait for [`Event::Writable`].
    pub fn write(&mut self, now: Instant, id: ConnectionId, data: Bytes) -> usize {
        let Some(entry) = self.held_mut(id) else { return 0 };
        let taken = entry.connection.write(now, data);
        self.on_progress(now, id);
        taken
    }

    /// Returns the next bytes in order. [`ReadError::WouldBlock`] for a connection that does not exist.
    pub fn read(&mut self, now: Instant, id: ConnectionId) -> Result<Bytes, ReadError> {
        let entry = self.held_mut(id).ok_or(ReadError::WouldBlock)?;
        let read = entry.connection.read(now);
        // Room was made: a window update may be due.
        if read.is_ok() {
            self.on_progress(now, id);
        }
        read
    }

    /// Ends writing on a connection.
    pub fn finish(&mut self, now: Instant, id: ConnectionId) {
        if let Some(entry) = self.held_mut(id) {
            entry.connection.finish(now);
            self.on_progress(now, id);
        }
    }

    /// Asks the peer of a sealed connection for the state of our subflows there, in a block of this many bytes. The answer appears in the
    /// status. Returns `false` if the connection is not sealed, is not open yet, or the peer does not support the question.
    pub fn look(&mut self, now: Instant, id: ConnectionId, bytes: usize) -> bool {
        let Some(entry) = self.held_mut(id) else { return false };
        let asks = entry.connection.look(bytes);
        self.on_progress(now, id);
        asks
    }

    /// Asks the peer of a sealed connection at once whether it still has our subflows. The answer appears in the status.
    pub fn ask_life(&mut self, now: Instant, id: ConnectionId) {
        if let Some(entry) = self.held_mut(id) {
            entry.connection.ask_life();
            self.on_progress(now, id);
        }
    }

    /// Aborts a connection at once.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        if let Some(entry) = self.held_mut(id) {
            entry.connection.abort(now);
            self.on_progress(now, id);
        }
    }

    /// Aborts all connections at once, including those without an owner, because the host stops.
    pub fn abort_all(&mut self, now: Instant) {
        let all: Vec<_> = self.connections.keys().copied().collect();
        for id in all {
            self.abort_any(now, id);
        }
    }

    /// Releases a connection of an application. Written bytes are still delivered, then the connection is closed and removed. The id is no
    /// longer valid.
    ///
    /// Bytes that the application has not read are lost. The peer learns this by a reset or MP_FASTCLOSE in place of an orderly end (RFC
    /// 9293, section 3.6.1).
    pub fn release(&mut self, now: Instant, id: ConnectionId) {
        let Some(entry) = self.held_mut(id) else { return };
        match entry.connection.read(now) {
            Ok(_) => entry.connection.abort(now),
            Err(ReadError::WouldBlock | ReadError::End | ReadError::Failed(_)) => {
                entry.connection.finish(now);
                entry.connection.stop_reading(now);
            }
        }
        self.disown(now, id);
        self.on_progress(now, id);
    }

    /// Returns how a connection ended, once it is over: after [`Event::Closed`].
    ///
    /// This differs from the end of reading: an application that has read the peer's stream to its end, and is reset then, still has to
    /// learn that the bytes it wrote were lost.
    pub fn end(&self, id: ConnectionId) -> Option<Result<(), ConnectionError>> {
        self.held(id)?.end
    }

    /// Returns the status of a connection.
    pub fn status(&self, now: Instant, id: ConnectionId) -> Option<Status> {
        self.held(id).map(|entry| entry.connection.status(now))
    }

    /// Returns an unknown peer that was refused because its connection could not be sealed, and the total number of these. Of several since
    /// the last call it is the first: unknown peers cannot occupy memory here.
    pub fn take_unsealed(&mut self) -> Option<(Unsealed, u64)> {
        Some((self.unsealed.take()?, self.counters.unsealed_refused))
    }

    /// Returns the four-tuples of all subflows.
    pub fn tuples(&self) -> impl Iterator<Item = &FourTuple> {
        self.around.demux.tuples()
    }

    /// Whether these addresses belong to a subflow, to one that is about to be opened, or to one in TIME-WAIT.
    pub fn has_tuple(&self, tuple: &FourTuple) -> bool {
        self.around.demux.owner(tuple).is_some() || self.around.time_waits.contains(tuple)
    }

    /// Whether only TIME-WAIT is left of a subflow with these addresses.
    pub fn is_in_time_wait(&self, tuple: &FourTuple) -> bool {
        self.around.demux.owner(tuple).is_none() && self.around.time_waits.contains(tuple)
    }

    /// Returns the ports of this host that subflows use, or are about to use.
    pub fn local_ports(&self) -> BTreeSet<u16> {
        self.around.demux.tuples().map(|tuple| tuple.local.port()).collect()
    }

    /// Returns the totals.
    pub fn counters(&self) -> Counters {
        Counters {
            connections: self.connections.len(),
            half_open: self.half_open.len(),
            handshakes: self.half_open.handshakes(),
            handshakes_waiting: self.half_open.waiting(),
            pending_joins: self.pending_joins.len(),
            openings_limited: self.around.claims.refused(),
            time_wait: self.around.time_waits.len(),
            names: self.around.demux.len(),
            crypto_jobs: self.jobs_out,
            memory_used: self.around.memory.used(),
            memory_set_aside: self.around.memory.set_aside(),
            ..self.counters.clone()
        }
    }

    pub(crate) fn draw_id(&mut self) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        id
    }

    fn can_reach(&self, remote: SocketAddr) -> bool {
        self.around
            .paths
            .iter()
            .any(|path| path.up && path.class != PathClass::Never && path.local_for(remote.ip()).is_some())
    }

    /// Returns the connection, if an application holds it.
    pub(crate) fn held(&self, id: ConnectionId) -> Option<&Entry> {
        self.connections.get(&id).filter(|entry| entry.stage == Stage::Held)
    }

    pub(crate) fn held_mut(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        self.connections.get_mut(&id).filter(|entry| entry.stage == Stage::Held)
    }

    pub(crate) fn on_its_path(&self, segment: Segment) -> Transmit {
        let path = self.around.paths.with_address(segment.source.ip()).map(|path| path.id);
        Transmit { segment, path }
    }
}
