//! Arriving segments: whose they are, and what is said to those that are nobody's.

use plait_base::Instant;
use plait_mptcp::{Association, Refused};
use plait_tcp::FourTuple;
use plait_wire::{Flags, IcmpError, MpJoin, MptcpOption, ResetReason, Segment, TcpOption, options};

use crate::demux::Owner;
use crate::entry::{Entry, Stage};
use crate::reset::reset_for;
use crate::time_wait::Verdict;
use crate::{Arrival, ConnectionId, Endpoint, log};

impl Endpoint {
    /// Takes one segment, maybe a super-segment.
    pub fn handle_segment(&mut self, arrival: Arrival, segment: &Segment) {
        let Arrival { at: now, path } = arrival;
        if path.is_some_and(|path| !self.around.is_of_path(segment.destination.ip(), path)) {
            log::debug!(to = %segment.destination, "segment dropped: not an address of the path that it came over");
            self.counters.not_ours += 1;
            return;
        }
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        if let Some(Owner { connection: id, subflow: Some(subflow) }) = self.around.demux.owner(&tuple)
            && let Some(entry) = self.connections.get_mut(&id)
        {
            let around = &mut self.around.lend_to(id);
            log::within(id, || entry.connection.handle_segment(now, subflow, segment, around));
            self.on_progress(now, id);
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
            log::debug!(to = %segment.destination, "segment dropped: not an address of ours");
            self.counters.not_ours += 1;
            return;
        }
        if segment.source == segment.destination {
            log::debug!(from = %segment.source, "segment dropped: it names itself as its sender");
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

    /// A segment of no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2).
    fn handle_stranger(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.contains(Flags::RST) {
            log::debug!(from = %segment.source, to = %segment.destination, "reset dropped: no such connection");
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
        log::debug!(from = %segment.source, to = %segment.destination, "reset: no such connection");
        self.counters.no_connection += 1;
        self.reset(now, segment, None);
    }

    /// A SYN that opens a connection.
    fn handle_syn(&mut self, now: Instant, syn: &Segment) {
        let Some((listener_id, listener)) = self.listeners.on_port(syn.destination.port()) else {
            log::debug!(from = %syn.source, to = %syn.destination, "reset: nobody listens on the port");
            self.counters.no_connection += 1;
            self.reset(now, syn, None);
            return;
        };
        if listener.is_full() || self.config.max_half_open == 0 {
            log::debug!(from = %syn.source, "SYN dropped: too many connections wait to be accepted");
            self.counters.syn_limited += 1;
            return;
        }
        let config = listener.config.clone();
        if self.half_open.len() >= self.config.max_half_open
            && let Some(oldest) = self.half_open.oldest()
        {
            // Without a reset: in a flood nobody waits for it.
            log::debug!(connection = oldest.0, "half-open connection dropped: a younger one takes its place");
            self.counters.syn_limited += 1;
            self.forget(oldest);
        }
        if self.connections.len() >= self.config.max_connections {
            log::debug!(from = %syn.source, "SYN dropped: too many connections");
            self.counters.syn_limited += 1;
            return;
        }
        let id = self.draw_id();
        let (time_wait, stage) = (config.tcp.time_wait, Stage::HalfOpen(listener_id));
        let around = &mut self.around.lend_to(id);
        let connection = log::within(id, || {
            log::debug!(from = %syn.source, to = %syn.destination, "SYN opens a connection");
            Association::accept(now, config, syn, around)
        });
        self.connections.insert(id, Entry::new(connection, stage, syn.source, time_wait));
        self.half_open.insert(id);
        self.on_progress(now, id);
    }

    /// A SYN that joins a connection.
    fn handle_join(&mut self, now: Instant, syn: &Segment, token: u32) {
        let Some(id) = self.joinable(token) else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.2
            //# If the token is unknown or the host wants to refuse subflow
            //# establishment [...], the receiver will send back a reset (RST) signal
            log::debug!(from = %syn.source, "reset: no connection has the token of the join");
            self.counters.unknown_token += 1;
            self.reset(now, syn, Some(ResetReason::Mptcp));
            return;
        };
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let around = &mut self.around.lend_to(id);
        let result = log::within(id, || entry.connection.handle_join(now, syn, around));
        self.on_progress(now, id);
        let reason = match result {
            Ok(_) => return,
            Err(Refused::TooMany) => ResetReason::LackOfResources,
            Err(Refused::Prohibited) => ResetReason::Prohibited,
            Err(Refused::Malformed) => ResetReason::Mptcp,
        };
        log::debug!(from = %syn.source, ?reason, "reset: the join is refused");
        self.counters.join_refused += 1;
        self.reset(now, syn, Some(reason));
    }

    /// The connection that has `token` and says so itself: a token is kept for a connection before it is
    /// known whether there will be Multipath TCP.
    fn joinable(&self, token: u32) -> Option<ConnectionId> {
        let id = self.around.demux.token_owner(token)?;
        let entry = self.connections.get(&id)?;
        entry.connection.has_token(token).then_some(id)
    }

    /// Takes an ICMP error about a segment of ours.
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
        log::debug!(reason = ?error.reason, "ICMP error dropped: no such connection");
        self.counters.stray_icmp += 1;
    }

    fn reset(&mut self, now: Instant, stray: &Segment, reason: Option<ResetReason>) {
        if let Some(reset) = reset_for(stray, reason) {
            self.reply(now, reset);
        }
    }

    fn reply(&mut self, now: Instant, reply: Segment) {
        if !self.replies.push(now, reply) {
            log::debug!("answer not given: there are too many");
            self.counters.replies_limited += 1;
        }
    }
}

/// The token of a SYN with MP_JOIN.
fn join_token(syn: &Segment) -> Option<u32> {
    options(&syn.options).find_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. }))) => Some(token),
        Ok(_) | Err(_) => None,
    })
}
