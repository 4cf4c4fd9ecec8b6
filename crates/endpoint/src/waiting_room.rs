//! Handshakes that wait for a place: what their openers have said is kept, and each network is served in the order in which they came.
//!
//! Left to TCP, each would try again later and later, and whoever comes new would take the place that has become free: some of a crowd
//! would not get one in the time of a handshake. Only who has answered our SYN/ACK waits here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use plait_wire::Segment;

use crate::prefix::Prefix;
use crate::{ConnectionId, EndpointConfig};

/// Prefixes that may wait at a time: a place that has become free is offered to each in turn.
const MAX_PREFIXES: usize = 64;
/// Of one connection, segments and bytes of payload: the third segment, and the first message of a handshake.
const MAX_SEGMENTS: usize = 4;
const MAX_BYTES: usize = 2048;
/// Of all that wait, one prefix may have this part, and of the prefixes one site.
const PREFIX_PART: usize = 4;

/// All that wait.
#[derive(Default)]
pub(crate) struct WaitingRoom {
    held: BTreeMap<ConnectionId, Held>,
    /// Who waits of each network, the eldest first, as ids count up; none of them is empty.
    queues: BTreeMap<Prefix, BTreeSet<ConnectionId>>,
    /// The prefix that was asked last.
    turn: Option<Prefix>,
}

/// What one has said.
struct Held {
    prefix: Prefix,
    segments: Vec<Segment>,
}

impl Held {
    fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.payload.len()).sum()
    }
}

impl WaitingRoom {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether somebody of the same network waits, behind whom others have to wait, too: its neighbours of the same site do not.
    pub(crate) fn is_waited_in(&self, prefix: Prefix) -> bool {
        self.queues.contains_key(&prefix)
    }

    /// Whether one more of `prefix` may wait.
    pub(crate) fn takes(&self, prefix: Prefix, limits: &EndpointConfig) -> bool {
        let most = (limits.max_half_open / PREFIX_PART).max(1);
        self.held.len() < limits.max_half_open
            && match self.queues.get(&prefix) {
                Some(queue) => queue.len() < most,
                None => self.queues.len() < MAX_PREFIXES && !self.is_site_full(prefix),
            }
    }

    /// Whether so many networks of the same site wait that no other of them may. An IPv4 network is a site of its own.
    fn is_site_full(&self, prefix: Prefix) -> bool {
        let of_site = self.queues.keys().filter(|other| other.widest() == prefix.widest());
        of_site.count() >= MAX_PREFIXES / PREFIX_PART
    }

    /// Keeps what `id` says until there is a place for it; `false` if there is no room to keep it.
    pub(crate) fn hold(
        &mut self,
        id: ConnectionId,
        prefix: Prefix,
        segment: &Segment,
        limits: &EndpointConfig,
    ) -> bool {
        if !self.held.contains_key(&id) {
            if !self.takes(prefix, limits) {
                return false;
            }
            self.held.insert(id, Held { prefix, segments: Vec::new() });
            self.queues.entry(prefix).or_default().insert(id);
        }
        let Some(held) = self.held.get_mut(&id) else { return false };
        let said = |kept: &Segment| kept.seq == segment.seq && kept.payload.len() >= segment.payload.len();
        if held.segments.iter().any(said) {
            return true;
        }
        let fits = held.segments.len() < MAX_SEGMENTS && held.bytes() + segment.payload.len() <= MAX_BYTES;
        if fits {
            held.segments.push(segment.clone());
        }
        fits
    }

    /// It waits no longer: what it has said.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Vec<Segment> {
        let Some(Held { prefix, segments }) = self.held.remove(&id) else { return Vec::new() };
        if let Some(queue) = self.queues.get_mut(&prefix) {
            queue.remove(&id);
            if queue.is_empty() {
                self.queues.remove(&prefix);
            }
        }
        segments
    }

    /// Who is to be served next: the eldest of a prefix for which there is room, each prefix in its turn, and `most` of them asked.
    pub(crate) fn next(
        &mut self,
        most: usize,
        mut has_room: impl FnMut(Prefix) -> bool,
    ) -> Option<(ConnectionId, Vec<Segment>)> {
        for _ in 0..most.min(self.queues.len()) {
            let behind = |turn| self.queues.range((Bound::Excluded(turn), Bound::Unbounded)).next();
            let (&prefix, queue) = self.turn.and_then(behind).or_else(|| self.queues.first_key_value())?;
            let &id = queue.first()?;
            self.turn = Some(prefix);
            if has_room(prefix) {
                return Some((id, self.remove(id)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes};

    use super::*;

    const LIMITS: EndpointConfig = EndpointConfig { max_half_open: 12, ..EndpointConfig::DEFAULT };

    fn prefix(number: u8) -> Prefix {
        Prefix::V4([10, 0, number])
    }

    fn segment(seq: u32, payload: &'static [u8]) -> Segment {
        Segment {
            source: ([10, 0, 0, 1], 1000).into(),
            destination: ([10, 9, 0, 1], 443).into(),
            seq: SeqNum::new(seq),
            ack: SeqNum::new(1),
            flags: Flags::ACK,
            window: 1000,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::from_static(payload),
            segment_size: 1400,
            ecn: 0,
            flow_label: 0,
        }
    }

    /// Who waits, each with one segment.
    fn room(waiting: &[(u64, u8)]) -> WaitingRoom {
        let mut room = WaitingRoom::default();
        for &(id, network) in waiting {
            assert!(room.hold(ConnectionId(id), prefix(network), &segment(1, b"hello"), &LIMITS));
        }
        room
    }

    fn served(room: &mut WaitingRoom, has_room: impl Fn(Prefix) -> bool) -> Vec<u64> {
        std::iter::from_fn(|| room.next(usize::MAX, &has_room)).map(|(id, _)| id.0).collect()
    }

    #[test]
    fn each_prefix_in_its_turn_and_of_each_who_came_first() {
        let mut room = room(&[(1, 1), (2, 1), (3, 2), (4, 1), (5, 2)]);
        assert_eq!(served(&mut room, |_| true), [1, 3, 2, 5, 4]);
        assert!(room.len() == 0 && room.queues.is_empty());
    }

    #[test]
    fn a_prefix_without_room_keeps_no_other_waiting() {
        let mut room = room(&[(1, 1), (2, 2)]);
        assert_eq!(served(&mut room, |network| network != prefix(1)), [2]);
        assert!(room.is_waited_in(prefix(1)) && !room.is_waited_in(prefix(2)));
        assert_eq!(served(&mut room, |_| true), [1]);
    }

    #[test]
    fn networks_of_one_site_do_not_wait_for_each_other() {
        let network = |number: u8| Prefix::V6([0x20, 1, 0xd, 0xb8, 0, 1, 0, number]);
        let mut room = WaitingRoom::default();
        for (id, number) in [(1, 1), (2, 2)] {
            assert!(room.hold(ConnectionId(id), network(number), &segment(1, b"hello"), &LIMITS));
        }
        assert!(!room.is_waited_in(network(3)));
        assert_eq!(served(&mut room, |prefix| prefix == network(2)), [2]);
    }

    #[test]
    fn a_site_with_all_of_its_networks_leaves_places_to_other_sites() {
        let network = |site: u8, number: u8| Prefix::V6([0x20, 1, 0xd, 0xb8, 0, site, 0, number]);
        let limits = EndpointConfig { max_half_open: 1000, ..LIMITS };
        let mut room = WaitingRoom::default();
        let mut hold = |site, number| {
            let id = ConnectionId(u64::from(site) << 8 | u64::from(number));
            room.hold(id, network(site, number), &segment(1, b"hello"), &limits)
        };
        let held = (0..=u8::MAX).filter(|number| hold(1, *number)).count();
        assert_eq!(held, MAX_PREFIXES / PREFIX_PART, "of one site");
        assert!(hold(2, 0) && !hold(1, 255) && hold(1, 0));
    }

    #[test]
    fn what_one_has_said_is_kept_once_and_up_to_a_limit() {
        let mut room = room(&[(1, 1)]);
        let mut hold = |seq, payload| room.hold(ConnectionId(1), prefix(1), &segment(seq, payload), &LIMITS);
        assert!(hold(1, b"hello") && hold(1, b""), "said again");
        assert!(hold(6, b"world"));
        assert!(!hold(11, &[0; MAX_BYTES]), "too long");
        assert!(hold(11, b"!") && hold(12, b"!"));
        assert!(!hold(13, b"!"), "too many");
        let (_, segments) = room.next(1, |_| true).expect("one waits");
        assert_eq!(segments.iter().map(|segment| segment.seq.bits()).collect::<Vec<_>>(), [1, 6, 11, 12]);
    }

    #[test]
    fn a_prefix_has_a_quarter_of_the_places_and_prefixes_are_counted() {
        let mut room = room(&[(1, 1), (2, 1), (3, 1), (4, 2)]);
        assert!(!room.takes(prefix(1), &LIMITS) && room.takes(prefix(2), &LIMITS));
        assert_eq!(room.remove(ConnectionId(1)).len(), 1);
        assert!(room.takes(prefix(1), &LIMITS));
        let limits = EndpointConfig { max_half_open: 1000, ..LIMITS };
        for number in 3..=MAX_PREFIXES as u8 {
            assert!(room.hold(
                ConnectionId(100 + u64::from(number)),
                prefix(number),
                &segment(1, b""),
                &limits
            ));
        }
        assert!(!room.takes(prefix(200), &limits), "one more prefix");
    }
}
