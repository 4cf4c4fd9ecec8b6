//! Datagrams beside the stream: the flows of the application, and which subflow carries a datagram. [`super::datagram_arrivals`] takes
//! what comes in.

use arrayvec::ArrayVec;
use bytes::Bytes;
use plait_base::{Duration, Instant, SubflowId};
use plait_protect::handshake::Capability;
use plait_protect::sealed::{
    BLOCK_OVERHEAD, DATAGRAM_OVERHEAD, DatagramHead, MAX_PIECES, Piece, Record, SubflowTag,
};
use plait_wire::Segment;

use crate::datagrams::{Datagrams, Lane, Queued};
use crate::protection::Mode;
use crate::protection::sealed::{Established, MAX_STREAM_DATAGRAMS};
use crate::role::Role;
use crate::subflows::Subflow;
use crate::subflows::life::Standing;
use crate::{
    Connection, Datagram, DatagramRefused, DatagramStatus, DatagramsOnSubflow, FlowEnded, FlowError, FlowId,
    FlowNews, PathChoice,
};

/// Subflows that are looked at for a datagram.
const MAX_LANES: usize = 16;
/// Bytes of the headers of IPv4 and UDP, which count as in flight.
const PACKET_HEADER: u32 = 28;
/// What a datagram of UDP shows is so much longer than the segment that fits into the same packet.
const BEYOND_SEGMENT: usize = 12;
/// How long a datagram waits at most for a block of the stream.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Records about flows that are passed on at once.
const MAX_RECORDS_AT_ONCE: usize = 32;

/// A subflow that may carry datagrams now.
#[derive(Clone, Copy, Debug)]
struct Way {
    index: usize,
    id: SubflowId,
    tag: SubflowTag,
    round_trip: Duration,
    /// The window of the congestion control, what the stream has of it in flight, and the smallest window.
    window: u32,
    stream: u32,
    least: u32,
    /// The longest payload.
    payload: usize,
}

type Ways = ArrayVec<Way, MAX_LANES>;

impl Connection {
    /// Opens a flow of datagrams to a destination of at most 255 bytes, which the application of the peer judges.
    ///
    /// # Errors
    /// [`FlowError`]. Nothing is sent to a peer that does not take datagrams.
    pub fn open_flow(&mut self, destination: Bytes, choice: PathChoice) -> Result<FlowId, FlowError> {
        let takes = self.protection.established().map(|sealed| sealed.peer_can(Capability::Datagrams));
        if self.closing.is_over() || takes == Some(false) {
            return Err(FlowError::Unsupported);
        }
        if takes.is_none() {
            let is_opening = self.mode() == Mode::Opening;
            return Err(if is_opening { FlowError::NotYet } else { FlowError::Unsupported });
        }
        self.timers.set(None);
        self.begin_datagrams().flows.open(destination, choice)
    }

    /// Returns the next flow that the peer has opened, and its destination.
    pub fn accept_flow(&mut self) -> Option<(FlowId, Bytes)> {
        self.datagrams.as_mut()?.flows.accept()
    }

    /// Returns the next flow in which something has arrived since it was last returned.
    pub fn poll_flow_news(&mut self) -> Option<FlowNews> {
        self.datagrams.as_mut()?.flows.poll_news()
    }

    /// Ends a flow in both directions. Datagrams that wait or were not read are dropped.
    pub fn close_flow(&mut self, id: FlowId) {
        self.timers.set(None);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flows.close(id);
            datagrams.queue.forget(id);
        }
    }

    /// Changes the choice of paths of a flow.
    pub fn set_path_choice(&mut self, id: FlowId, choice: PathChoice) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flows.set_choice(id, choice);
        }
    }

    /// Sends a datagram in a flow, or drops it: it is not repeated. `ecn` is the codepoint that it had, two bits.
    ///
    /// # Errors
    /// The flow has ended, or the datagram is too long.
    pub fn send_datagram(
        &mut self,
        now: Instant,
        id: FlowId,
        ecn: u8,
        payload: Bytes,
    ) -> Result<(), DatagramRefused> {
        let choice = self.datagrams.as_ref().and_then(|datagrams| datagrams.flows.choice(id));
        let choice = choice.filter(|_| !self.closing.is_over()).ok_or(DatagramRefused::Ended)?;
        let longest = self.longest_in_pieces(choice);
        if payload.len() > longest {
            return Err(DatagramRefused::TooLong { longest });
        }
        self.timers.set(None);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flows.on_sent(id);
            let queued = Queued { flow: id, choice, ecn, payload, since: now };
            datagrams.counters.dropped_full += datagrams.queue.push(queued);
        }
        Ok(())
    }

    /// Returns the next datagram of a flow, if one has arrived.
    ///
    /// # Errors
    /// The flow has ended, and all that arrived before was read.
    pub fn receive_datagram(&mut self, id: FlowId) -> Result<Option<Datagram>, FlowEnded> {
        let received = self.datagrams.as_mut().ok_or(FlowEnded)?.flows.receive(id)?;
        if received.is_none() && self.closing.is_over() { Err(FlowEnded) } else { Ok(received) }
    }

    /// Returns the longest payload that a flow carries in one piece at present: it follows the path MTU of the subflows that carry it.
    pub fn longest_datagram(&self, id: FlowId) -> usize {
        let choice = self.datagrams.as_ref().and_then(|datagrams| datagrams.flows.choice(id));
        choice.map_or(0, |choice| self.longest_in_one(choice).unwrap_or(longest_in_stream()))
    }

    fn longest_in_one(&self, choice: PathChoice) -> Option<usize> {
        let ways = self.ways();
        match choice {
            PathChoice::Fastest => self.fastest(&ways).map(|way| way.payload),
            PathChoice::Duplicate | PathChoice::Spread => ways.iter().map(|way| way.payload).min(),
        }
    }

    fn longest_in_pieces(&self, choice: PathChoice) -> usize {
        let in_pieces = |one: usize| (one * usize::from(MAX_PIECES)).min(u16::MAX.into());
        self.longest_in_one(choice).map_or(longest_in_stream(), in_pieces)
    }

    fn may_send_datagrams(&self) -> bool {
        self.mode() == Mode::Multipath
            && self.protection.established().is_some_and(Established::may_send_datagrams)
    }

    pub(super) fn begin_datagrams(&mut self) -> &mut Datagrams {
        let is_a = self.role == Role::Active;
        self.datagrams.get_or_insert_with(|| Box::new(Datagrams::new(is_a)))
    }

    /// Returns the subflows that may carry datagrams: verified ones over UDP, backups only if there is nothing else.
    fn ways(&self) -> Ways {
        let carries = |subflow: &Subflow| {
            subflow.is_open()
                && subflow.state.carries_datagrams()
                && subflow.state.life().standing() == Standing::Verified
        };
        let all = || self.subflows.iter().enumerate().filter(|(_, subflow)| carries(subflow));
        let has_good = all().any(|(_, subflow)| subflow.is_good());
        let has_regular = all().any(|(_, subflow)| subflow.is_good() && !subflow.state.is_backup());
        let is_chosen = |subflow: &Subflow| {
            let is_regular = subflow.is_good() && !subflow.state.is_backup();
            is_regular || !has_regular && (subflow.is_good() || !has_good)
        };
        let chosen = all().filter(|(_, subflow)| is_chosen(subflow)).take(MAX_LANES);
        chosen.filter_map(|(index, subflow)| way(index, subflow)).collect()
    }

    /// Whether no report has come from a subflow, and nothing has verified it since.
    fn is_silent(&self, way: &Way) -> bool {
        let lane = self.datagrams.as_ref().and_then(|datagrams| datagrams.lane_of(way.id));
        let since = lane.and_then(Lane::silent_since);
        let verified = self.subflows[way.index].state.life().verified_at();
        since.is_some_and(|since| verified.is_none_or(|at| at < since))
    }

    /// Returns the way with the shortest delay; the last one, unless another is shorter by a quarter.
    fn fastest(&self, ways: &[Way]) -> Option<Way> {
        let has_heard = ways.iter().any(|way| !self.is_silent(way));
        let heard = || ways.iter().filter(|way| !has_heard || !self.is_silent(way));
        let best = heard().min_by_key(|way| (way.round_trip, way.id))?;
        let last = self.datagrams.as_ref().and_then(|datagrams| datagrams.fastest);
        let last = heard().find(|way| Some(way.id) == last);
        Some(*last.filter(|last| best.round_trip >= last.round_trip.mul_f64(0.75)).unwrap_or(best))
    }

    /// Returns the next datagram to send.
    pub(crate) fn next_datagram(&mut self, now: Instant) -> Option<Segment> {
        let datagrams = self.datagrams.as_mut().filter(|_| !self.closing.is_over())?;
        if let Some(ready) = datagrams.ready.pop_front() {
            return Some(ready);
        }
        if datagrams.queue.is_empty() || !self.may_send_datagrams() {
            return None;
        }
        let ways = self.ways();
        loop {
            let first = self.datagrams.as_ref()?.queue.first()?;
            let (choice, length) = (first.choice, first.payload.len());
            let chosen = self.choose(now, &ways, choice, length);
            if chosen.is_empty() {
                return None;
            }
            let datagrams = self.datagrams.as_mut()?;
            if datagrams.queue.drops_first(now) {
                datagrams.queue.pop();
                datagrams.counters.dropped_waiting += 1;
                continue;
            }
            let queued = datagrams.queue.pop()?;
            self.seal_on(now, &chosen, queued);
            if let Some(ready) = self.datagrams.as_mut()?.ready.pop_front() {
                return Some(ready);
            }
        }
    }

    /// Returns the ways that have room for a datagram of this length, all its pieces included.
    fn choose(&mut self, now: Instant, ways: &Ways, choice: PathChoice, length: usize) -> Ways {
        let wanted: Ways = match choice {
            PathChoice::Fastest => self.fastest(ways).into_iter().collect(),
            PathChoice::Duplicate | PathChoice::Spread => ways.clone(),
        };
        let stream_waits = self.outgoing.queued() > 0 || self.outgoing.first_again().is_some();
        let Some(datagrams) = &mut self.datagrams else { return Ways::new() };
        let mut fitting = Ways::new();
        let mut used = Vec::new();
        for way in wanted {
            let pieces = length.div_ceil(way.payload.max(1)).max(1);
            let bytes = length as u32 + pieces as u32 * (PACKET_HEADER + DATAGRAM_OVERHEAD as u32);
            let waits = stream_waits || self.subflows[way.index].tcp.unsent() > 0;
            let lane = datagrams.lane(now, way.id);
            if lane.has_room(bytes, way.window, way.stream, waits, way.least) {
                used.push((u64::from(lane.bytes() + way.stream) << 16) / u64::from(way.window.max(1)));
                fitting.push(way);
            } else {
                lane.on_limited();
            }
        }
        if choice == PathChoice::Spread {
            let least = (0..fitting.len()).min_by_key(|&index| used[index]);
            fitting = least.map(|index| fitting[index]).into_iter().collect();
        }
        if let (PathChoice::Fastest, Some(way)) = (choice, fitting.first()) {
            datagrams.fastest = Some(way.id);
        }
        fitting
    }

    /// Seals a datagram for each of these ways, whole or in pieces.
    fn seal_on(&mut self, now: Instant, ways: &Ways, queued: Queued) {
        let Queued { flow, choice: _, ecn, payload, since: _ } = queued;
        let longest = ways.iter().map(|way| way.payload).min().unwrap_or(0).max(1);
        let pieces = payload.len().div_ceil(longest).max(1);
        let Some(datagrams) = &mut self.datagrams else { return };
        if pieces > usize::from(MAX_PIECES) {
            datagrams.counters.dropped_long += 1;
            return;
        }
        let number = (pieces > 1 || ways.len() > 1).then(|| datagrams.draw_number());
        let size = payload.len().div_ceil(pieces).max(1);
        for way in ways {
            for index in 0..pieces {
                let part =
                    &payload[(index * size).min(payload.len())..((index + 1) * size).min(payload.len())];
                let piece = (pieces > 1).then_some(Piece { index: index as u8, of: pieces as u8 });
                let head = DatagramHead { flow: flow.0, ecn, number, piece };
                if !self.seal_piece(now, way, &head, part) {
                    return;
                }
            }
        }
    }

    fn seal_piece(&mut self, now: Instant, way: &Way, head: &DatagramHead, part: &[u8]) -> bool {
        let (Some(datagrams), Some(established)) = (&mut self.datagrams, self.protection.established_mut())
        else {
            return false;
        };
        let mut out = datagrams.buffer(DATAGRAM_OVERHEAD + part.len());
        let Ok(counter) = established.seal_datagram(way.tag, head, part, &mut out) else {
            self.on_keys_used_up();
            return false;
        };
        let bytes = datagrams.written(out);
        let lane = datagrams.lane(now, way.id);
        lane.on_sent(now, counter, bytes.len() as u32 + PACKET_HEADER);
        let in_flight = lane.bytes();
        datagrams.counters.sent += 1;
        let subflow = self.subflows.touch(way.index);
        subflow.tcp.set_beside(in_flight);
        let tuple = subflow.state.tuple();
        // Marks of the path are not read, so the packet does not ask for them (RFC 6040).
        datagrams.ready.push_back(Segment::datagram(tuple.local, tuple.remote, 0, bytes));
        true
    }

    /// Whether records about flows wait, or datagrams that only the stream can carry.
    pub(super) fn has_flow_records(&self) -> bool {
        let Some(datagrams) = &self.datagrams else { return false };
        let has_some = datagrams.flows.has_records() || !datagrams.queue.is_empty();
        has_some && self.may_send_datagrams() && (datagrams.flows.has_records() || self.ways().is_empty())
    }

    /// Passes them on to the next control block.
    pub(super) fn pass_flow_records(&mut self, now: Instant) {
        if !self.has_flow_records() {
            return;
        }
        let has_way = !self.ways().is_empty();
        let left = self.outgoing.window_left();
        let (Some(datagrams), Some(established)) = (&mut self.datagrams, self.protection.established_mut())
        else {
            return;
        };
        if established.has_beside() {
            return;
        }
        for _ in 0..MAX_RECORDS_AT_ONCE {
            let Some(record) = datagrams.flows.records().pop_front() else { break };
            established.say_beside(record);
        }
        if has_way || established.has_beside() {
            return;
        }
        let left = left.saturating_sub(established.numbers_ahead());
        let mut room = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_STREAM_DATAGRAMS);
        room = room.saturating_sub(BLOCK_OVERHEAD);
        while let Some(first) = datagrams.queue.first() {
            let length = Record::DATAGRAM_HEAD + first.payload.len();
            let is_late = now.saturating_since(first.since) > LONGEST_WAIT;
            if !is_late && length > room {
                break;
            }
            let Some(Queued { flow, ecn, payload, .. }) = datagrams.queue.pop() else { break };
            if is_late {
                datagrams.counters.dropped_waiting += 1;
                continue;
            }
            room -= length;
            datagrams.counters.sent_in_stream += 1;
            established.say_beside(Record::Datagram { flow: flow.0, ecn, payload });
        }
    }

    /// Returns the state of datagrams for display.
    pub(crate) fn datagram_status(&self) -> Option<DatagramStatus> {
        let datagrams = self.datagrams.as_ref()?;
        let of_lane = |lane: &Lane| {
            let subflow = self.subflows.with_id(lane.id())?;
            Some(DatagramsOnSubflow {
                id: lane.id(),
                path: subflow.state.path(),
                sent: lane.next(),
                arrived: lane.arrived(),
                lost: lane.lost(),
                in_flight: lane.bytes(),
            })
        };
        let subflows = datagrams.lanes().filter_map(of_lane).collect();
        Some(DatagramStatus { flows: datagrams.flows.count(), counters: datagrams.counters, subflows })
    }
}

fn way(index: usize, subflow: &Subflow) -> Option<Way> {
    let stats = subflow.tcp.stats();
    let segment = subflow.tcp.segment_payload(0);
    Some(Way {
        index,
        id: subflow.state.id(),
        tag: subflow.state.sealed().tag()?,
        round_trip: subflow.round_trip(&stats),
        window: stats.congestion_window,
        stream: stats.in_flight,
        least: 2 * u32::from(segment),
        payload: (usize::from(segment) + BEYOND_SEGMENT).saturating_sub(DATAGRAM_OVERHEAD),
    })
}

const fn longest_in_stream() -> usize {
    MAX_STREAM_DATAGRAMS - Record::DATAGRAM_HEAD - BLOCK_OVERHEAD
}
