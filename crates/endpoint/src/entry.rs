//! One connection as the endpoint keeps it, and the stages of its life.

use core::net::SocketAddr;
use plait_base::{Duration, Instant};
use plait_mptcp::{Association, ConnectionError, Memory};
use plait_tcp::FourTuple;

use crate::time_wait::TimeWait;
use crate::{Event, ListenerId};
use plait_wire::{Flags, Segment};

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
    pub(crate) connection: Association,
    pub(crate) stage: Stage,
    /// Who opened it, or whom it was opened to.
    pub(crate) remote: SocketAddr,
    /// Its entry among the alarms.
    pub(crate) alarm: Option<Instant>,
    /// A stranger has begun it, and so many of them have lately been told of that it is not, before it has proved its address.
    pub(crate) is_quiet: bool,
    /// What it had in memory when it was looked at last.
    pub(crate) memory: Option<Memory>,
    /// The peer has opened it.
    pub(crate) is_theirs: bool,
    /// How it ended, once it is over.
    pub(crate) end: Option<Result<(), ConnectionError>>,
    /// How long TIME-WAIT lasts.
    time_wait: Duration,
    /// What each subflow has said last since the connection is over.
    remnants: Vec<TimeWait>,
    /// What an application is told when it accepts the connection.
    pub(crate) held_events: Vec<Event>,
}

impl Entry {
    pub(crate) fn new(
        connection: Association,
        stage: Stage,
        remote: SocketAddr,
        time_wait: Duration,
    ) -> Self {
        Self {
            connection,
            stage,
            remote,
            alarm: None,
            is_quiet: false,
            memory: None,
            is_theirs: matches!(stage, Stage::HalfOpen(_)),
            end: None,
            time_wait,
            remnants: Vec::new(),
            held_events: Vec::new(),
        }
    }

    /// Where the handshake of a half-open connection is complete: the fingerprint of the key that the client has shown, if it has.
    pub(crate) fn complete_handshake(&self) -> Option<Option<[u8; 32]>> {
        let is_complete = matches!(self.stage, Stage::HalfOpen(_)) && self.connection.is_authenticated();
        is_complete.then(|| self.connection.peer_key())
    }

    /// Remembers what goes out at the very end: it is all that TIME-WAIT needs.
    pub(crate) fn note_last_words(&mut self, now: Instant, segment: &Segment) {
        if self.end.is_none() || !segment.payload.is_empty() || segment.flags.contains(Flags::RST) {
            return;
        }
        let remnant = TimeWait::after(now, segment, self.time_wait);
        self.remnants.retain(|older| older.tuple != remnant.tuple);
        self.remnants.push(remnant);
    }

    /// What is left of the connection, if nobody holds it and nothing but TIME-WAIT is left of its subflows,
    /// which have the four-tuples `bound`.
    pub(crate) fn remains(&self, bound: &[FourTuple]) -> Option<Vec<TimeWait>> {
        match self.stage {
            Stage::Orphan { check: _, delivered: _ } if self.connection.is_time_wait() => {}
            Stage::HalfOpen(_) | Stage::Waiting(_) | Stage::Held | Stage::Orphan { .. } => return None,
        }
        bound
            .iter()
            .map(|tuple| self.remnants.iter().find(|remnant| remnant.tuple == *tuple).copied())
            .collect()
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
