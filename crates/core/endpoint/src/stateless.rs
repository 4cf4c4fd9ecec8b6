//! Answers with no or almost no state: SYN/ACKs to first SYNs when too many connections are half open, and to joins when too many joins of
//! a connection are.
//!
//! A connection, or a subflow of it, is made for the answer and dropped again. When the third segment arrives, it is made once more, from
//! the same SYN at the same moment, and continues from there. Therefore a SYN has only one answer, and a value that the answer did not
//! carry was not negotiated.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, PathId, Random, SeqNum};
use plait_mptcp::{
    Association, ConnectionError, Event, Host, Instance, Introduction, OpeningClaim, OpeningName, Paths,
    Protect, Refused,
};
use plait_tcp::{FourTuple, Isn};
use plait_wire::{Flags, OptionBytes, Segment, TcpOption, options};

use crate::cookies::{Cookie, Numbers};
use crate::entry::{Entry, Stage};
use crate::offer::{Offer, STAMP_MASK};
use crate::pending_joins::PendingJoin;
use crate::places::Room;
use crate::prefix::Prefix;
use crate::reset::bare_segment;
use crate::surroundings::{HostView, token_of};
use crate::{ConnectionId, Endpoint, ListenerId, log};

/// Assumed round trip of a handshake without timestamps, which cannot be measured.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(500);
/// Longer round trips are implausible: the answer would no longer be valid.
const LONGEST_ROUND_TRIP: u32 = 60_000;
/// The owner of a connection that exists for one answer only.
const NO_CONNECTION: ConnectionId = ConnectionId(u64::MAX);

/// Number of waiting handshakes that begin in one call.
const HANDSHAKES_AT_ONCE: usize = 8;

impl Endpoint {
    /// Answers a SYN to a listener without state.
    pub(crate) fn answer_statelessly(&mut self, now: Instant, syn: &Segment, listener: ListenerId) {
        let Some(config) = self.listeners.get_mut(listener).map(|listener| listener.config.clone()) else {
            return;
        };
        let seals = matches!(config.protect, Protect::Sealed(_));
        let Some(offer) = Offer::of(syn, seals, config.tcp.timestamps) else {
            self.note_stranger(
                now,
                syn.source,
                "SYN dropped: too many are half open, and what it offers fits into no stateless answer",
            );
            self.counters.syn_limited += 1;
            return;
        };
        let tuple = tuple_of(syn);
        let cookie = self.around.cookies.give(now, &tuple, syn.seq, offer);
        if self.around.demux.token_owner(token_of(&cookie.key)).is_some() {
            // This happens once in four thousand million connections. The next slot has another key.
            self.counters.syn_limited += 1;
            return;
        }
        // A request for ECN is not stored, so the connection could not continue with it.
        let (flags, options) = (Flags::SYN, offer.options(stamp_of(syn).unwrap_or(0)));
        let syn = Segment { flags, options, ..syn.clone() };
        let host = &mut Recalling { view: self.around.lend_to(NO_CONNECTION), tuple, cookie, claims: false };
        let mut made = log::unheard(|| Association::accept(now, config, &syn, host));
        let answer = log::unheard(|| made.poll_transmit(now));
        let Some(mut answer) = answer else { return };
        if answer.flags.contains(Flags::SYN) {
            if let Some(bits) = offer.stamp_bits {
                put_into_stamp(bits, &mut answer.options);
            }
            self.counters.syn_cookies_sent += 1;
            self.answer_stranger(answer);
            return;
        }
        while let Some(event) = made.poll_event() {
            if event == Event::Closed(Some(ConnectionError::NotSealed)) {
                let why = made.status(now).sealed.and_then(|sealed| sealed.failure).unwrap_or_default();
                self.note_unsealed_stranger(syn.source, why);
            }
        }
        self.reply(now, answer);
    }

    /// Handles a segment without a connection that may be the third of a handshake with a stateless second. If it is, the connection or the
    /// subflow is made and continues. Otherwise returns `false`.
    pub(crate) fn take_third_segment(&mut self, now: Instant, segment: &Segment) -> bool {
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::SYN) {
            return false;
        }
        self.take_third_of_join(now, segment) || self.take_cookie(now, segment)
    }

    fn take_cookie(&mut self, now: Instant, segment: &Segment) -> bool {
        if !self.around.cookies.may_come_back(now) {
            return false;
        }
        let Some((listener_id, listener)) = self.listeners.on_port(segment.destination.port()) else {
            return false;
        };
        let tuple = tuple_of(segment);
        let echo = echo_of(segment);
        let stamp_bits = echo.map(|echo| (echo & STAMP_MASK) as u8);
        let numbers = Numbers { ours: segment.ack - 1, theirs: segment.seq - 1 };
        let Some((cookie, offer)) = self.around.cookies.take(now, &tuple, numbers, stamp_bits) else {
            return false;
        };
        let config = listener.config.clone();
        if !self.around.memory.takes_connections(1) {
            self.counters.memory_limited += 1;
            return true;
        }
        if listener.is_full() || self.connections.len() >= self.config.max_connections {
            self.note_stranger(now, segment.source, "third segment dropped: too many connections");
            self.counters.syn_limited += 1;
            return true;
        }
        let from = segment.source.ip();
        let has_to_wait = matches!(config.protect, Protect::Sealed(_))
            && self.half_open.room(now, from, &self.config) == Room::Full;
        if has_to_wait && !self.half_open.may_wait(from, &self.config) {
            self.note_held_back(now, segment.source);
            return true;
        }
        if self.around.demux.token_owner(token_of(&cookie.key)).is_some() {
            return false;
        }
        self.counters.syn_cookies_taken += 1;
        let id = self.draw_id();
        let then = self.answered_at(now, &tuple, echo);
        let syn = Segment {
            flags: Flags::SYN,
            seq: numbers.theirs,
            ack: SeqNum::new(0),
            options: offer.options(stamp_of(segment).unwrap_or(0)),
            payload: bytes::Bytes::new(),
            segment_size: 1,
            ..segment.clone()
        };
        let (time_wait, stage) = (config.tcp.time_wait, Stage::HalfOpen(listener_id));
        let host = &mut Recalling { view: self.around.lend_to(id), tuple, cookie, claims: true };
        let mut connection = log::unheard(|| Association::accept(then, config, &syn, host));
        let _sent_already = log::unheard(|| connection.poll_transmit(then));
        self.connections.insert(id, Entry::new(connection, stage, syn.source, time_wait));
        self.half_open.insert(id, from);
        self.on_progress(now, id);
        self.deliver(now, segment);
        true
    }

    /// Returns when the SYN/ACK left that `echo` answers.
    fn answered_at(&mut self, now: Instant, tuple: &FourTuple, echo: Option<u32>) -> Instant {
        let offset = self.around.start_of(tuple, now).timestamp_offset;
        let clock = (now.as_millis() as u32).wrapping_add(offset);
        let elapsed =
            echo.map(|echo| clock.wrapping_sub(echo)).filter(|&elapsed| elapsed < LONGEST_ROUND_TRIP);
        let elapsed = elapsed.map_or(UNKNOWN_ROUND_TRIP, |millis| Duration::from_millis(millis.into()));
        now - elapsed
    }

    /// Answers the SYN of a join to the connection `id`, and stores its content.
    pub(crate) fn answer_join_statelessly(
        &mut self,
        now: Instant,
        syn: &Segment,
        id: ConnectionId,
    ) -> Result<(), Refused> {
        let join = PendingJoin::of(now, syn).ok_or(Refused::Malformed)?;
        let tuple = tuple_of(syn);
        let set = self.around.cookies.number_of_source(Prefix::of(tuple.remote.ip()).widest());
        let join = self.pending_joins.insert(set, &tuple, join);
        let nonce = self.around.cookies.join_nonce(join.then, &tuple, join.nonce);
        let syn = Segment { flags: Flags::SYN, options: join.options(), ..syn.clone() };
        let entry = self.connections.get_mut(&id).ok_or(Refused::Malformed)?;
        let around = &mut self.around.lend_to(id);
        let answer = log::unheard(|| entry.connection.answer_join(join.then, &syn, nonce, around))?;
        self.counters.join_cookies_sent += 1;
        if let Some(answer) = answer {
            self.answer_stranger(answer);
        }
        Ok(())
    }

    fn take_third_of_join(&mut self, now: Instant, segment: &Segment) -> bool {
        let tuple = tuple_of(segment);
        if self.pending_joins.len() == 0 {
            return false;
        }
        let set = self.around.cookies.number_of_source(Prefix::of(tuple.remote.ip()).widest());
        let Some(join) = self.pending_joins.find(set, &tuple) else { return false };
        let ours = self.around.start_of(&tuple, join.then).seq;
        if (segment.ack, segment.seq) != (ours + 1, join.seq + 1) {
            return false;
        }
        self.pending_joins.remove(set, &tuple);
        let Some(id) = self.joinable(join.token) else { return false };
        let nonce = self.around.cookies.join_nonce(join.then, &tuple, join.nonce);
        let syn = Segment {
            flags: Flags::SYN,
            seq: join.seq,
            ..bare_segment(segment, join.seq, SeqNum::new(0), Flags::SYN)
        };
        let syn = Segment {
            source: segment.source,
            destination: segment.destination,
            window: segment.window,
            options: join.options(),
            ..syn
        };
        let Some(entry) = self.connections.get_mut(&id) else { return false };
        let around = &mut self.around.lend_to(id);
        let recalled = log::within(id, || entry.connection.recall_join(join.then, &syn, nonce, around));
        self.on_progress(now, id);
        match recalled {
            Ok(_) => {
                self.counters.join_cookies_taken += 1;
                self.deliver(now, segment);
            }
            Err(refused) => self.refuse_join(now, segment, refused),
        }
        true
    }

    /// Whether the handshake that `segment` would begin has to wait for a place. If so, the segment is stored, or dropped if too many wait.
    /// The sender repeats a dropped segment.
    pub(crate) fn is_held_back(&mut self, now: Instant, id: ConnectionId, segment: &Segment) -> bool {
        let (from, limits) = (segment.source, &self.config);
        if self.half_open.room(now, from.ip(), limits) != Room::Full {
            return false;
        }
        if !self.half_open.hold(id, from.ip(), segment, limits) {
            self.note_held_back(now, from);
        }
        true
    }

    fn note_held_back(&mut self, now: Instant, from: SocketAddr) {
        self.note_stranger(now, from, "segment dropped: too many handshakes with its prefix, or in all");
        self.counters.handshakes_limited += 1;
    }

    /// Begins waiting handshakes for which there are places, a few at a time: each is computed here, and others want to send.
    pub(crate) fn begin_waiting_handshakes(&mut self, now: Instant) {
        for _ in 0..HANDSHAKES_AT_ONCE {
            let Some((id, segments)) = self.half_open.next_waiting(now, &self.config) else { return };
            for segment in segments {
                self.hand_over_held(now, id, &segment);
            }
        }
    }

    /// Begins the handshake of `id`, whose address is validated, in the place of another if there is no free one.
    pub(crate) fn begin_handshake(&mut self, now: Instant, id: ConnectionId, from: SocketAddr) {
        if let Room::InPlaceOf(other) = self.half_open.room_for_eldest(now, from.ip(), &self.config) {
            self.note_stranger(
                now,
                from,
                "handshake ended: its sender has the most of them, or took too long while others wait",
            );
            self.counters.handshakes_displaced += 1;
            self.half_open.displace(other);
            self.abort_any(now, other);
        }
        self.half_open.prove(now, id, from.ip());
    }
}

/// The host as it was when a stateless answer was sent, or as it is when one is sent.
struct Recalling<'a> {
    view: HostView<'a>,
    tuple: FourTuple,
    cookie: Cookie,
    /// Whether the token of the key belongs to the connection from now on.
    claims: bool,
}

impl Host for Recalling<'_> {
    fn paths(&self) -> &Paths {
        self.view.paths()
    }

    fn claim_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        self.view.claim_port(local, remote)
    }

    fn isn(&mut self, tuple: &FourTuple, now: Instant) -> Isn {
        let isn = self.view.isn(tuple, now);
        if *tuple == self.tuple { Isn { seq: self.cookie.seq, ..isn } } else { isn }
    }

    fn random(&mut self) -> &mut dyn Random {
        self.view.random()
    }

    fn draw_key(&mut self) -> [u8; 8] {
        if self.claims {
            let is_new = self.view.claim_token(token_of(&self.cookie.key));
            debug_assert!(is_new, "the endpoint has looked");
        }
        self.cookie.key
    }

    fn secrets(&mut self) -> &mut dyn Random {
        self.view.secrets()
    }

    fn claim_token(&mut self, token: u32) -> bool {
        self.view.claim_token(token)
    }

    fn claim_opening(&mut self, now: Instant, name: OpeningName, from: IpAddr, token: u32) -> OpeningClaim {
        self.view.claim_opening(now, name, from, token)
    }

    fn has_failed_lately(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.view.has_failed_lately(now, path, remote)
    }

    fn note_opening(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool) {
        self.view.note_opening(now, path, remote, got_through);
    }

    fn note_instance(&mut self, now: Instant, remote: SocketAddr, instance: Instance) {
        self.view.note_instance(now, remote, instance);
    }

    fn knows_several_instances(&self, now: Instant, remotes: &[SocketAddr]) -> bool {
        self.view.knows_several_instances(now, remotes)
    }

    fn drops_syn_data(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.view.drops_syn_data(now, path, remote)
    }

    fn note_syn_data_dropped(&mut self, now: Instant, path: PathId, remote: IpAddr) {
        self.view.note_syn_data_dropped(now, path, remote);
    }

    fn memory_share(&self) -> u64 {
        self.view.memory_share()
    }

    fn claim_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) -> Result<(), Instant> {
        self.view.claim_join(now, peer, remote)
    }

    fn return_join(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) {
        self.view.return_join(now, peer, remote);
    }

    fn unix_time(&self, now: Instant) -> u64 {
        self.view.unix_time(now)
    }

    fn introduction(&self) -> Introduction {
        self.view.introduction()
    }
}

fn tuple_of(segment: &Segment) -> FourTuple {
    FourTuple { local: segment.destination, remote: segment.source }
}

fn stamps(segment: &Segment) -> Option<(u32, u32)> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some((value, echo)),
        _ => None,
    })
}

fn stamp_of(segment: &Segment) -> Option<u32> {
    stamps(segment).map(|(value, _)| value)
}

fn echo_of(segment: &Segment) -> Option<u32> {
    stamps(segment).map(|(_, echo)| echo)
}

/// Sets the low bits of our timestamp, at most 31 ms back. It is never ahead of the clock, so that no later one is older.
fn put_into_stamp(bits: u8, field: &mut OptionBytes) {
    let mut at = 0;
    while let Some(&kind) = field.get(at) {
        match (kind, field.get(at + 1)) {
            (8, Some(10)) if field.len() >= at + 10 => {
                let value = &mut field[at + 2..at + 6];
                let clock = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
                let back = clock.wrapping_sub(u32::from(bits)) & STAMP_MASK;
                value.copy_from_slice(&clock.wrapping_sub(back).to_be_bytes());
                return;
            }
            (0, _) | (_, None | Some(0 | 1)) if kind != 1 => return,
            (1, _) => at += 1,
            (_, Some(&length)) => at += usize::from(length),
            (_, None) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_in_a_timestamp_set_it_back_by_less_than_32_milliseconds() {
        for clock in [0, 5, 31, 32, 1000, u32::MAX] {
            for bits in 0..32 {
                let mut field = OptionBytes::new();
                field.extend([1, 1, 8, 10]);
                field.extend(clock.to_be_bytes());
                field.extend([0; 4]);
                put_into_stamp(bits, &mut field);
                let value = u32::from_be_bytes([field[4], field[5], field[6], field[7]]);
                assert_eq!(value & STAMP_MASK, u32::from(bits));
                assert!(clock.wrapping_sub(value) <= 31, "{clock} {bits} {value}");
            }
        }
    }
}
