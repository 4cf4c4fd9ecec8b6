//! Datagrams beside the stream of a sealed connection: unreliable, unordered, in flows.
//!
//! The values here decide and hold state. Sealing and opening is the protection's, and only the connection connects the two.
//!
//! ```text
//! application ─► Flows ─► Queue ─► Lane (window of a subflow) ─► sealed          reports ─► Lane
//!                  ▲                                                opened ─► Lane (report due) ─► Repeats ─► Pieces ─► Flows
//! ```
//!
//! Everything has a limit: flows, datagrams and bytes of both queues, datagrams in flight, pieces, numbers remembered.

mod flows;
mod lane;
mod pieces;
mod queue;
mod repeats;

use bytes::{Bytes, BytesMut};
use core::fmt;
use plait_base::{Duration, Instant, SubflowId};
use plait_protect::sealed::{DatagramHead, Record};
use plait_wire::Segment;
use std::collections::VecDeque;

pub(crate) use crate::status::DatagramCounters;
pub use flows::{Datagram, FlowEnded, FlowError, FlowId, FlowNews};
pub(crate) use flows::{Flows, Misused};
pub(crate) use lane::Lane;
pub(crate) use pieces::Pieces;
pub(crate) use queue::{Queue, Queued};
pub(crate) use repeats::Repeats;

/// The paths of the datagrams of a flow. The classes of paths bind in any case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PathChoice {
    /// The path with the shortest delay. It is left for another one that is shorter by a quarter.
    #[default]
    Fastest,
    /// Every path that has room: the receiver takes the copy that arrives first. No datagram is lost where one path loses it.
    Duplicate,
    /// The path that has used the smallest part of its window.
    Spread,
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fastest => "fastest",
            Self::Duplicate => "duplicate",
            Self::Spread => "spread",
        })
    }
}

/// Why a datagram cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramRefused {
    /// The flow has ended.
    Ended,
    /// It is longer than four pieces of this many bytes.
    TooLong {
        /// The longest datagram that can be sent at present.
        longest: usize,
    },
}

/// The state of datagrams of a connection, from the first flow on.
pub(crate) struct Datagrams {
    pub(crate) flows: Flows,
    pub(crate) queue: Queue,
    lanes: Vec<Lane>,
    /// Sealed, and not sent yet: the pieces and copies of one datagram.
    pub(crate) ready: VecDeque<Segment>,
    pub(crate) repeats: Repeats,
    pub(crate) pieces: Pieces,
    pub(crate) counters: DatagramCounters,
    /// The subflow of the last datagram over the fastest path.
    pub(crate) fastest: Option<SubflowId>,
    /// The number of the next datagram that has one.
    next_number: u32,
    /// Memory of sealed datagrams: it is used again when they have left.
    arena: BytesMut,
}

/// Bytes that the arena asks for at once.
const ARENA: usize = 64 << 10;

impl Datagrams {
    /// No flow yet. Host A has even numbers.
    pub(crate) fn new(is_a: bool) -> Self {
        Self {
            flows: Flows::new(is_a),
            queue: Queue::default(),
            lanes: Vec::new(),
            ready: VecDeque::new(),
            repeats: Repeats::default(),
            pieces: Pieces::default(),
            counters: DatagramCounters::default(),
            fastest: None,
            next_number: 0,
            arena: BytesMut::new(),
        }
    }

    /// Returns the state of a subflow, which begins at its first use.
    pub(crate) fn lane(&mut self, now: Instant, id: SubflowId) -> &mut Lane {
        let known = self.lanes.iter().position(|lane| lane.id() == id);
        let index = known.unwrap_or_else(|| {
            self.lanes.push(Lane::new(now, id));
            self.lanes.len() - 1
        });
        &mut self.lanes[index]
    }

    /// Returns the state of a subflow that has carried a datagram.
    pub(crate) fn lane_of(&self, id: SubflowId) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.id() == id)
    }

    /// Returns the subflows that have carried datagrams.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// Forgets a subflow that is gone.
    pub(crate) fn forget(&mut self, id: SubflowId) {
        if let Some(lane) = self.lane_of(id) {
            self.counters.unreported += lane.in_flight();
        }
        self.lanes.retain(|lane| lane.id() != id);
    }

    /// Draws the number of a datagram that is sent in copies or pieces.
    pub(crate) fn draw_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        number
    }

    /// Returns an empty buffer with this much room.
    pub(crate) fn buffer(&mut self, len: usize) -> BytesMut {
        if self.arena.capacity() < len {
            self.arena.reserve(ARENA.max(len));
        }
        self.arena.split()
    }

    /// Gives back the room behind what was written to a buffer, and returns what was written.
    pub(crate) fn written(&mut self, mut buffer: BytesMut) -> Bytes {
        let written = buffer.split();
        self.arena = buffer;
        written.freeze()
    }

    /// Returns when a report is due, or datagrams in flight are given up. `times_of` returns the round trip and the retransmission timeout of
    /// a subflow.
    pub(crate) fn deadline(
        &self,
        times_of: impl Fn(SubflowId) -> Option<(Duration, Duration)>,
    ) -> Option<Instant> {
        let of =
            |lane: &Lane| times_of(lane.id()).and_then(|(round_trip, rto)| lane.deadline(round_trip, rto));
        self.lanes.iter().filter_map(of).min()
    }

    /// Takes a verified datagram, or a piece of one, that arrived for the first time on its subflow.
    pub(crate) fn take(&mut self, head: &DatagramHead, payload: BytesMut) {
        let Some(number) = head.number else { return self.deliver(head.flow, head.ecn, payload.freeze()) };
        if !self.repeats.is_new(number) {
            self.counters.repeated += 1;
            return;
        }
        let whole = match head.piece {
            None => Some(payload.freeze()),
            Some(piece) => {
                let (whole, dropped) = self.pieces.take(head.flow, number, piece, payload.freeze());
                self.counters.dropped_waiting_in += u64::from(dropped);
                whole
            }
        };
        if let Some(payload) = whole {
            self.repeats.accept(number);
            self.deliver(head.flow, head.ecn, payload);
        }
    }

    /// Takes a record of the peer about flows.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub(crate) fn take_record(&mut self, record: Record) -> Result<(), Misused> {
        match record {
            Record::OpenFlow { flow, destination } => {
                for (ecn, payload) in self.flows.on_open(flow, destination)? {
                    self.deliver(flow, ecn, payload);
                }
            }
            Record::CloseFlow { flow, sent: _ } => self.flows.on_close(flow)?,
            Record::Datagram { flow, ecn, payload } => self.deliver(flow, ecn, payload),
            _ => {}
        }
        Ok(())
    }

    fn deliver(&mut self, flow: u32, ecn: u8, payload: Bytes) {
        self.flows.deliver(FlowId(flow), ecn, payload, &mut self.counters);
    }

    /// Bytes that wait, in both directions.
    pub(crate) fn memory(&self) -> usize {
        self.queue.bytes() + self.flows.bytes() + self.pieces.bytes()
    }
}
