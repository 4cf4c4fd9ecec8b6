//! One connection in the endpoint, and the stages of its life.

use core::net::SocketAddr;
use plait_base::{Duration, Instant};
use plait_mptcp::{Association, ConnectionError, Memory};
use plait_tcp::FourTuple;

use crate::time_wait::TimeWait;
use crate::{Event, ListenerId};
use plait_wire::{Flags, Segment};

/// The present owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// None yet: a peer has begun to open it.
    HalfOpen(ListenerId),
    /// It is complete and waits for accept.
    Waiting(ListenerId),
    /// An application holds it.
    Held,
    /// No owner (any more): it is removed as soon as its last segments are sent.
    Orphan {
        /// When its progress is checked again.
        check: Instant,
        /// Bytes delivered at the last check.
        delivered: u64,
    },
}

/// A connection with its state in the endpoint.
pub(crate) struct Entry {
    pub(crate) connection: Association,
    pub(crate) stage: Stage,
    /// The peer that opened it, or to which it was opened.
    pub(crate) remote: SocketAddr,
    /// Its entry among the alarms.
    pub(crate) alarm: Option<Instant>,
    /// Whether it is not logged: an unknown peer has begun it, its address is not validated, and too many such were logged recently.
    pub(crate) is_quiet: bool,
    /// Its memory at the last check.
    pub(crate) memory: Option<Memory>,
    /// Whether every usable path concerns it, at the last check.
    pub(crate) wants_paths: bool,
    /// Whether the peer has opened it.
    pub(crate) is_theirs: bool,
    /// How it ended, once it is over.
    pub(crate) end: Option<Result<(), ConnectionError>>,
    /// How long TIME-WAIT lasts.
    time_wait: Duration,
    /// The last segment of each subflow since the connection is over.
    remnants: Vec<TimeWait>,
    /// Events for the application that will accept the connection.
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
            wants_paths: false,
            is_theirs: matches!(stage, Stage::HalfOpen(_)),
            end: None,
            time_wait,
            remnants: Vec::new(),
            held_events: Vec::new(),
        }
    }

    /// Returns the fingerprint of the client's key, if it has one, once the handshake of a half-open connection is complete.
    pub(crate) fn complete_handshake(&self) -> Option<Option<[u8; 32]>> {
        let is_complete = matches!(self.stage, Stage::HalfOpen(_)) && self.connection.is_authenticated();
        is_complete.then(|| self.connection.peer_key())
    }

    /// Stores the last segments: TIME-WAIT needs only these.
    pub(crate) fn note_last_words(&mut self, now: Instant, segment: &Segment) {
        if self.end.is_none() || !segment.payload.is_empty() || segment.flags.contains(Flags::RST) {
            return;
        }
        let remnant = TimeWait::after(now, segment, self.time_wait);
        self.remnants.retain(|older| older.tuple != remnant.tuple);
        self.remnants.push(remnant);
    }

    /// Returns the remains of the connection if it has no owner and only TIME-WAIT is left of its subflows, which have the four-tuples
    /// `bound`.
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

    /// Returns its next deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = self.connection.poll_timeout();
        match self.stage {
            Stage::HalfOpen(_) | Stage::Waiting(_) | Stage::Held => own,
            Stage::Orphan { check, delivered: _ } => Some(own.map_or(check, |at| at.min(check))),
        }
    }

    /// Whether it can be removed.
    pub(crate) fn is_over(&self) -> bool {
        match self.stage {
            Stage::HalfOpen(_) | Stage::Waiting(_) | Stage::Held => false,
            Stage::Orphan { check: _, delivered: _ } => self.connection.is_done(),
        }
    }
}
