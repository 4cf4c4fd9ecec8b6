//! An endpoint's entry: a connection, or the opening of one.

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Duration, Instant, SubflowId};
use plait_wire::{IcmpError, Segment};

use super::active_open::ActiveOpen;
use super::ways::no_way;
use crate::{Config, Connection, CryptoJob, CryptoResult, Event, Host, Memory, ReadError, Refused, Status};

/// A connection as its owner sees it, from the first SYN on. The methods are those of [`Connection`].
pub enum Association {
    /// This host is opening it.
    Opening(Box<ActiveOpen>),
    /// It is open, is being opened by the peer, or is over.
    Connection(Box<Connection>),
}

/// Calls the method of the same name on either variant.
macro_rules! pass {
    ($self:ident.$verb:ident($($argument:expr),*)) => {
        match $self {
            Association::Opening(open) => open.$verb($($argument),*),
            Association::Connection(connection) => connection.$verb($($argument),*),
        }
    };
}

impl Association {
    /// Opens actively towards `remotes`, which are addresses of one host, best first.
    pub fn connect(now: Instant, config: Config, remotes: &[SocketAddr], host: &mut dyn Host) -> Self {
        match ActiveOpen::start(now, config.clone(), remotes, host) {
            Some(open) => Self::Opening(Box::new(open)),
            None => Self::Connection(Box::new(Connection::failed(now, config, no_way(remotes, host)))),
        }
    }

    /// Opens passively, in answer to a SYN without MP_JOIN.
    pub fn accept(now: Instant, config: Config, syn: &Segment, host: &mut dyn Host) -> Self {
        Self::Connection(Box::new(Connection::accept(now, config, syn, host)))
    }

    /// As [`Connection::handle_segment`].
    pub fn handle_segment(&mut self, now: Instant, id: SubflowId, segment: &Segment, host: &mut dyn Host) {
        pass!(self.handle_segment(now, id, segment, host));
    }

    /// As [`Connection::handle_join`].
    pub fn handle_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        pass!(self.handle_join(now, syn, host))
    }

    /// As [`Connection::answer_join`].
    pub fn answer_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<Option<Segment>, Refused> {
        pass!(self.answer_join(now, syn, nonce, host))
    }

    /// As [`Connection::recall_join`].
    pub fn recall_join(
        &mut self,
        then: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        pass!(self.recall_join(then, syn, nonce, host))
    }

    /// As [`Connection::has_proved_address`]; `true` for an opening of our own.
    pub fn has_proved_address(&self) -> bool {
        match self {
            Self::Opening(_) => true,
            Self::Connection(connection) => connection.has_proved_address(),
        }
    }

    /// As [`Connection::would_prove_address`]; `false` for an opening of our own.
    pub fn would_prove_address(&self, segment: &Segment) -> bool {
        match self {
            Self::Opening(_) => false,
            Self::Connection(connection) => connection.would_prove_address(segment),
        }
    }

    /// As [`Connection::is_authenticated`]; `false` for an opening of our own, which does not wait for the peer's OPENING.
    pub fn is_authenticated(&self) -> bool {
        match self {
            Self::Opening(_) => false,
            Self::Connection(connection) => connection.is_authenticated(),
        }
    }

    /// As [`Connection::peer_key`].
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        match self {
            Self::Opening(_) => None,
            Self::Connection(connection) => connection.peer_key(),
        }
    }

    /// As [`Connection::handle_icmp`].
    pub fn handle_icmp(&mut self, now: Instant, id: SubflowId, error: &IcmpError, host: &mut dyn Host) {
        pass!(self.handle_icmp(now, id, error, host));
    }

    /// As [`Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        pass!(self.handle_timeout(now, host));
    }

    /// As [`Connection::handle_absence`]. The attempts of an opening of our own have limits of their own.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration, host: &mut dyn Host) {
        match self {
            Self::Opening(_) => {}
            Self::Connection(connection) => connection.handle_absence(now, absence, host),
        }
    }

    /// As [`Connection::wants_paths`]; `true` for an opening of our own.
    pub fn wants_paths(&self) -> bool {
        match self {
            Self::Opening(_) => true,
            Self::Connection(connection) => connection.wants_paths(),
        }
    }

    /// As [`Connection::has_announced`]; `false` for an opening of our own, which announces nothing yet.
    pub fn has_announced(&self, own: core::net::IpAddr) -> bool {
        match self {
            Self::Opening(_) => false,
            Self::Connection(connection) => connection.has_announced(own),
        }
    }

    /// As [`Connection::handle_paths`].
    pub fn handle_paths(&mut self, now: Instant, host: &mut dyn Host) {
        pass!(self.handle_paths(now, host));
    }

    /// As [`Connection::handle_crypto`].
    pub fn handle_crypto(&mut self, now: Instant, result: CryptoResult, host: &mut dyn Host) {
        pass!(self.handle_crypto(now, result, host));
    }

    /// As [`Connection::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let segment = pass!(self.poll_transmit(now));
        if segment.is_none()
            && let Self::Opening(open) = self
            && let Some(connection) = open.turn(now)
        {
            *self = Self::Connection(connection);
        }
        segment
    }

    /// As [`Connection::poll_crypto`].
    pub fn poll_crypto(&mut self) -> Option<CryptoJob> {
        pass!(self.poll_crypto())
    }

    /// As [`Connection::has_crypto`].
    pub fn has_crypto(&self) -> bool {
        pass!(self.has_crypto())
    }

    /// As [`Connection::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        pass!(self.poll_timeout())
    }

    /// As [`Connection::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        pass!(self.poll_event())
    }

    /// Whether joins with this token belong to it.
    pub fn has_token(&self, token: u32) -> bool {
        match self {
            Self::Opening(open) => open.has_token(token),
            Self::Connection(connection) => connection.token() == Some(token),
        }
    }

    /// As [`Connection::token`].
    pub fn token(&self) -> Option<u32> {
        pass!(self.token())
    }

    /// As [`Connection::writable`].
    pub fn writable(&self) -> usize {
        pass!(self.writable())
    }

    /// As [`Connection::write`].
    pub fn write(&mut self, now: Instant, data: Bytes) -> usize {
        pass!(self.write(now, data))
    }

    /// As [`Connection::read`].
    pub fn read(&mut self, now: Instant) -> Result<Bytes, ReadError> {
        pass!(self.read(now))
    }

    /// As [`Connection::look`].
    pub fn look(&mut self, bytes: usize) -> bool {
        pass!(self.look(bytes))
    }

    /// As [`Connection::ask_life`].
    pub fn ask_life(&mut self) {
        pass!(self.ask_life());
    }

    /// The connection, for its datagrams; `None` while this host is opening it and no attempt is chosen.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Opening(open) => open.chosen_mut(),
            Self::Connection(connection) => Some(connection),
        }
    }

    /// The same to look at.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Opening(open) => open.chosen(),
            Self::Connection(connection) => Some(connection),
        }
    }

    /// As [`Connection::finish`].
    pub fn finish(&mut self, now: Instant) {
        pass!(self.finish(now));
    }

    /// As [`Connection::discard`].
    pub fn discard(&mut self, now: Instant) {
        pass!(self.discard(now));
    }

    /// As [`Connection::abort`].
    pub fn abort(&mut self, now: Instant) {
        pass!(self.abort(now));
    }

    /// As [`Connection::stop_reading`].
    pub fn stop_reading(&mut self, now: Instant) {
        pass!(self.stop_reading(now));
    }

    /// As [`Connection::is_done`].
    pub fn is_done(&self) -> bool {
        pass!(self.is_done())
    }

    /// As [`Connection::is_time_wait`].
    pub fn is_time_wait(&self) -> bool {
        pass!(self.is_time_wait())
    }

    /// As [`Connection::status`].
    pub fn status(&self, now: Instant) -> Status {
        pass!(self.status(now))
    }

    /// Returns the memory of the connection.
    pub fn memory(&self) -> Memory {
        pass!(self.memory())
    }
}
