//! Arriving segments: lookup of their connections, and answers to segments without one.

use plait_base::{Instant, SubflowId};
use plait_mptcp::{Association, Protect, Refused, SMALLEST_SHARE};
use plait_tcp::FourTuple;
use plait_wire::{Flags, IcmpError, MpJoin, MptcpOption, ResetReason, Segment, TcpOption, options};

use crate::demux::Owner;
use crate::entry::{Entry, Stage};
use crate::reset::reset_for;
use crate::time_wait::Verdict;
use crate::{Arrival, ConnectionId, Endpoint, log};

/// The next stage after a segment that validates the peer's address of a half-open connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Nothing: the address is already validated, or the connection is not half open.
    Nothing,
    /// The complete connection.
    Connection,
    /// A handshake, or what may be one.
    Handshake,
}

impl Endpoint {
    /// Handles one segment, which may be a super-segment.
    pub fn handle_segment(&mut self, arrival: Arrival, segment: &Segment) {
        let Arrival { at: now, path } = arrival;
        if path.is_some_and(|path| !self.around.is_of_path(segment.destination.ip(), path)) {
            self.note_stranger(
                now,
                segment.source,
                "segment dropped: not an address of the path that it came over",
            );
            self.counters.not_ours += 1;
            return;
        }
        if segment.is_datagram() {
            self.handle_datagram(arrival, segment);
            return;
        }
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        if self.deliver(now, segment) {
            return;
        }
        log::trace!(
            from = %segment.source,
            to = %segment.destination,
            flags = ?segment.flags,
            len = segment.payload.len(),
            "segment of no connection arrives"
        );
        if !self.around.is_ours(segment.destination.ip()) {
            self.note_stranger(now, segment.source, "segment dropped: not an address of ours");
            self.counters.not_ours += 1;
            return;
        }
        if segment.source == segment.destination {
            self.note_stranger(now, segment.source, "segment dropped: its source is its destination");
            self.counters.from_self += 1;
            return;
        }
        match self.around.time_waits.handle_segment(now, &tuple, segment) {
            Verdict::Ignore => self.counters.time_wait_segments += 1,
            Verdict::Answer(ack) => {
                self.counters.time_wait_segments += 1;
                self.reply(now, ack);
            }
            Verdict::NotHere | Verdict::Reused => self.handle_stranger(now, segment),
        }
    }

    /// Leaves segments of no connection to another endpoint at the same addresses, from which this one has taken the listening ports:
    /// joins with unknown tokens and segments of unknown subflows. Without another one, they are reset.
    pub fn leave_unknown(&mut self, leaves: bool) {
        self.leaves_unknown = leaves;
        self.left = None;
    }

    /// Returns the segment that was left to the other endpoint, if it was the last one handled.
    pub fn take_left(&mut self) -> Option<Segment> {
        self.left.take()
    }

    /// Passes a segment to its connection. Returns `false` if there is none.
    pub(crate) fn deliver(&mut self, now: Instant, segment: &Segment) -> bool {
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        let Some(Owner { connection: id, subflow: Some(subflow) }) = self.around.demux.owner(&tuple) else {
            return false;
        };
        let begins = self.begins_with_proof(id);
        let may_begin = |entry: &Entry| entry.connection.would_prove_address(segment);
        if begins == Begins::Handshake
            && self.connections.get(&id).is_some_and(may_begin)
            && self.is_held_back(now, id, segment)
        {
            return true;
        }
        self.hand_over(now, id, subflow, segment, begins)
    }

    /// Passes a segment that has waited to its connection, if that still owns the four-tuple.
    pub(crate) fn hand_over_held(&mut self, now: Instant, id: ConnectionId, segment: &Segment) {
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        let owner = self.around.demux.owner(&tuple).filter(|owner| owner.connection == id);
        let Some(Owner { connection: _, subflow: Some(subflow) }) = owner else { return };
        let begins = self.begins_with_proof(id);
        self.hand_over(now, id, subflow, segment, begins);
    }

    /// Passes a segment to this connection. Returns `false` if it is gone.
    fn hand_over(
        &mut self,
        now: Instant,
        id: ConnectionId,
        subflow: SubflowId,
        segment: &Segment,
        begins: Begins,
    ) -> bool {
        let Some(entry) = self.connections.get_mut(&id) else { return false };
        let is_more = entry.memory.is_some_and(|memory| memory.used > SMALLEST_SHARE);
        if self.around.memory.is_full() && is_more && !segment.payload.is_empty() {
            self.counters.memory_dropped += 1;
            return true;
        }
        let around = &mut self.around.lend_to(id);
        log::of(id, entry.is_quiet, || entry.connection.handle_segment(now, subflow, segment, around));
        let complete = entry.complete_handshake();
        if begins != Begins::Nothing && entry.connection.has_proved_address() && !entry.connection.is_done() {
            entry.is_quiet = false;
            // Other connections have no handshake, and are complete.
            if begins == Begins::Handshake {
                self.begin_handshake(now, id, segment.source);
            }
        }
        if let Some(client) = complete {
            self.half_open.complete(now, id, client);
        }
        self.on_progress(now, id);
        true
    }

    /// Returns what begins if the address of its peer is validated now.
    fn begins_with_proof(&mut self, id: ConnectionId) -> Begins {
        let Some(Entry { stage: Stage::HalfOpen(listener), .. }) = self.connections.get(&id) else {
            return Begins::Nothing;
        };
        if !self.half_open.is_unproved(id) {
            return Begins::Nothing;
        }
        let listener = self.listeners.get_mut(*listener);
        let seals = listener.is_some_and(|listener| matches!(listener.config.protect, Protect::Sealed(_)));
        if seals { Begins::Handshake } else { Begins::Connection }
    }

    /// Handles a segment without a connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    fn handle_stranger(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.contains(Flags::RST) {
            if self.leave(segment) {
                return;
            }
            self.note_stranger(now, segment.source, "reset dropped: no such connection");
            self.counters.stray_resets += 1;
            return;
        }
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
            match join_token(segment) {
                Some(token) => self.handle_join(now, segment, token),
                None => self.handle_syn(now, segment),
            }
            return;
        }
        if self.take_third_segment(now, segment) || self.leave(segment) {
            return;
        }
        self.note_stranger(now, segment.source, "reset: no such connection");
        self.counters.no_connection += 1;
        self.reset(now, segment, None);
    }

    /// Leaves a segment to the other endpoint, if there is one.
    fn leave(&mut self, segment: &Segment) -> bool {
        if self.leaves_unknown {
            self.left = Some(segment.clone());
        }
        self.leaves_unknown
    }

    /// Handles a SYN that opens a connection.
    fn handle_syn(&mut self, now: Instant, syn: &Segment) {
        let Some((listener_id, listener)) = self.listeners.on_port(syn.destination.port()) else {
            self.note_stranger(now, syn.source, "reset: no listener on the port");
            self.counters.no_connection += 1;
            self.reset(now, syn, None);
            return;
        };
        if listener.is_full() {
            self.note_stranger(now, syn.source, "SYN dropped: too many connections wait to be accepted");
            self.counters.syn_limited += 1;
            return;
        }
        let config = listener.config.clone();
        if self.connections.len() >= self.config.max_connections {
            self.note_stranger(now, syn.source, "SYN dropped: too many connections");
            self.counters.syn_limited += 1;
            return;
        }
        if !self.around.memory.takes_connections(1) {
            self.note_stranger(now, syn.source, "SYN dropped: no memory for one connection more");
            self.counters.memory_limited += 1;
            return;
        }
        let from = syn.source.ip();
        // If all half-open entries become connections, there must be memory for them.
        let has_memory = self.around.memory.takes_connections(1 + self.half_open.unproved());
        if !has_memory || !self.half_open.takes_syn(from, &self.config) {
            self.answer_statelessly(now, syn, listener_id);
            return;
        }
        let id = self.draw_id();
        let (time_wait, stage) = (config.tcp.time_wait, Stage::HalfOpen(listener_id));
        let is_quiet = !self.is_told(now, "SYN opens a connection");
        let around = &mut self.around.lend_to(id);
        let connection = log::of(id, is_quiet, || {
            log::debug!(from = %syn.source, to = %syn.destination, "SYN opens a connection");
            Association::accept(now, config, syn, around)
        });
        let mut entry = Entry::new(connection, stage, syn.source, time_wait);
        entry.is_quiet = is_quiet;
        self.connections.insert(id, entry);
        self.half_open.insert(id, from);
        self.on_progress(now, id);
    }

    /// Handles a SYN that joins a connection.
    fn handle_join(&mut self, now: Instant, syn: &Segment, token: u32) {
        let Some(id) = self.joinable(token) else {
            if self.leave(syn) {
                return;
            }
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.2
            //# If the token is unknown or the host wants to refuse subflow
            //# establishment [...], the receiver will send back a reset (RST) signal
            self.note_stranger(now, syn.source, "reset: no connection has the token of the join");
            self.counters.unknown_token += 1;
            self.reset(now, syn, Some(ResetReason::Mptcp));
            return;
        };
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let around = &mut self.around.lend_to(id);
        let result = log::within(id, || entry.connection.handle_join(now, syn, around));
        self.on_progress(now, id);
        let result = match result {
            Err(Refused::Crowded) => self.answer_join_statelessly(now, syn, id),
            result => result.map(drop),
        };
        if let Err(refused) = result {
            self.refuse_join(now, syn, refused);
        }
    }

    pub(crate) fn refuse_join(&mut self, now: Instant, segment: &Segment, refused: Refused) {
        let reason = match refused {
            Refused::TooMany | Refused::Crowded => ResetReason::LackOfResources,
            Refused::Prohibited => ResetReason::Prohibited,
            Refused::Malformed => ResetReason::Mptcp,
        };
        self.note_stranger(now, segment.source, "reset: the join is refused");
        self.counters.join_refused += 1;
        self.reset(now, segment, Some(reason));
    }

    /// Returns the connection that has `token` and confirms it. A token is reserved for a connection before it is known whether Multipath TCP
    /// is negotiated.
    pub(crate) fn joinable(&self, token: u32) -> Option<ConnectionId> {
        let id = self.around.demux.token_owner(token)?;
        let entry = self.connections.get(&id)?;
        entry.connection.has_token(token).then_some(id)
    }

    /// Handles an ICMP error about a segment of ours.
    pub fn handle_icmp(&mut self, arrival: Arrival, error: &IcmpError) {
        let Arrival { at: now, path } = arrival;
        if path.is_some_and(|path| !self.around.is_of_path(error.source.ip(), path)) {
            self.counters.stray_icmp += 1;
            return;
        }
        let tuple = FourTuple { local: error.source, remote: error.destination };
        if let Some(Owner { connection: id, subflow: Some(subflow) }) = self.around.demux.owner(&tuple)
            && let Some(entry) = self.connections.get_mut(&id)
        {
            let around = &mut self.around.lend_to(id);
            log::within(id, || entry.connection.handle_icmp(now, subflow, error, around));
            self.on_progress(now, id);
            return;
        }
        self.note_stranger(now, error.destination, "ICMP error dropped: no such connection");
        self.counters.stray_icmp += 1;
    }

    fn reset(&mut self, now: Instant, stray: &Segment, reason: Option<ResetReason>) {
        if let Some(reset) = reset_for(stray, reason) {
            self.reply(now, reset);
        }
    }

    /// Sends a SYN/ACK without state.
    pub(crate) fn answer_stranger(&mut self, answer: Segment) {
        if !self.replies.push_syn_ack(answer) {
            self.counters.replies_limited += 1;
        }
    }

    pub(crate) fn reply(&mut self, now: Instant, reply: Segment) {
        let to = reply.destination;
        if !self.replies.push(now, reply) {
            self.note_stranger(now, to, "answer not sent: there are too many");
            self.counters.replies_limited += 1;
        }
    }
}

/// Returns the token of a SYN with MP_JOIN.
fn join_token(syn: &Segment) -> Option<u32> {
    options(&syn.options).find_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. }))) => Some(token),
        Ok(_) | Err(_) => None,
    })
}
