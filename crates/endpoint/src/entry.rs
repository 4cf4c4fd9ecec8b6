//! One connection as the endpoint keeps it, and the stages of its life.

use base::Instant;
use core::net::SocketAddr;
use mptcp::{Connection, ConnectionError};

use crate::{Event, ListenerId};

/// Who a connection belongs to at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Somebody has begun to open it to us.
    HalfOpen(ListenerId),
    /// It is complete and waits to be accepted.
    Waiting(ListenerId),
    /// An application holds it.
    Held,
    /// Nobody holds it (any more): it is forgotten as soon as its last words are said.
    Orphan {
        /// When it is looked at again.
        check: Instant,
        /// Bytes delivered when it was last looked at.
        delivered: u64,
    },
}

/// A connection with what the endpoint knows about it.
pub(crate) struct Entry {
    /// Boxed: the map of connections moves its entries about.
    pub(crate) connection: Box<Connection>,
    pub(crate) stage: Stage,
    /// Who opened it, or whom it was opened to.
    pub(crate) remote: SocketAddr,
    /// Its entry among the alarms.
    pub(crate) alarm: Option<Instant>,
    /// How it ended, once it is over.
    pub(crate) end: Option<Result<(), ConnectionError>>,
    /// What an application is told when it accepts the connection.
    pub(crate) held_events: Vec<Event>,
}

impl Entry {
    pub(crate) fn new(connection: Connection, stage: Stage, remote: SocketAddr) -> Self {
        let connection = Box::new(connection);
        Self { connection, stage, remote, alarm: None, end: None, held_events: Vec::new() }
    }

    /// When it wants to be woken.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = self.connection.poll_timeout();
        match self.stage {
            Stage::HalfOpen(_) | Stage::Waiting(_) | Stage::Held => own,
            Stage::Orphan { check, delivered: _ } => Some(own.map_or(check, |at| at.min(check))),
        }
    }

    /// Whether it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        match self.stage {
            Stage::HalfOpen(_) | Stage::Waiting(_) | Stage::Held => false,
            Stage::Orphan { check: _, delivered: _ } => self.connection.is_done(),
        }
    }
}
