//! Handshakes that wait for a place. The segments of their openers are stored, and each network is served in turn. Within a network the
//! address with the fewest handshakes is served first, and within an address the connection that came first.
//!
//! With TCP's retries alone, each would try again later and later, and a new connection would take a place that becomes free. Some of a
//! large group would not get one in the time of a handshake. Only an address that has answered our SYN/ACK waits here.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use plait_wire::Segment;

use crate::prefix::Prefix;
use crate::{ConnectionId, EndpointConfig};

/// Largest number of waiting prefixes: a free place is offered to each in turn.
const MAX_PREFIXES: usize = 64;
/// Largest number of waiting addresses of a network. The one with the fewest handshakes is searched among them.
const MAX_ADDRESSES: usize = 64;
/// Segments and payload bytes stored for one connection: the third segment, and the first message of a handshake.
const MAX_SEGMENTS: usize = 4;
const MAX_BYTES: usize = 2048;
/// Of all waiting connections one prefix may have this part, and of the prefixes one site.
const PREFIX_PART: usize = 4;

/// All waiting connections.
#[derive(Default)]
pub(crate) struct WaitingRoom {
    held: BTreeMap<ConnectionId, Held>,
    /// Waiting connections of each network; none is empty.
    queues: BTreeMap<Prefix, Queue>,
    /// The prefix that was asked last.
    turn: Option<Prefix>,
}

/// Waiting connections of one network.
#[derive(Default)]
struct Queue {
    len: usize,
    /// Of each address the oldest first, as ids ascend; none is empty.
    addresses: BTreeMap<IpAddr, BTreeSet<ConnectionId>>,
}

impl Queue {
    fn insert(&mut self, id: ConnectionId, from: IpAddr) {
        self.len += usize::from(self.addresses.entry(from).or_default().insert(id));
    }

    fn remove(&mut self, id: ConnectionId, from: IpAddr) {
        let Some(ids) = self.addresses.get_mut(&from) else { return };
        self.len -= usize::from(ids.remove(&id));
        if ids.is_empty() {
            self.addresses.remove(&from);
        }
    }

    /// Whether one more with `from` may wait if `most` of the network may. An address leaves a quarter of that to its neighbours.
    fn takes(&self, from: IpAddr, most: usize) -> bool {
        self.len < most
            && match self.addresses.get(&from) {
                Some(ids) => ids.len() < (most * 3 / 4).max(1),
                None => self.addresses.len() < MAX_ADDRESSES,
            }
    }

    /// Returns the oldest connection of the address with the fewest `handshakes`; of equal addresses the one that has waited longest.
    fn first(&self, handshakes: impl Fn(IpAddr) -> usize) -> Option<(IpAddr, ConnectionId)> {
        let eldest = self.addresses.iter().filter_map(|(from, ids)| Some((*from, *ids.first()?)));
        eldest.min_by_key(|(from, id)| (handshakes(*from), *id))
    }
}

/// The segments of one connection.
struct Held {
    from: IpAddr,
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

    /// Whether a connection of the same network waits. It does not delay other networks of the same site.
    pub(crate) fn is_waited_in(&self, prefix: Prefix) -> bool {
        self.queues.contains_key(&prefix)
    }

    /// Whether a connection with the same address waits. Others of that address have to wait after it.
    pub(crate) fn is_waited_at(&self, from: IpAddr) -> bool {
        self.queues.get(&Prefix::of(from)).is_some_and(|queue| queue.addresses.contains_key(&from))
    }

    /// Whether one more with `from` may wait.
    pub(crate) fn takes(&self, from: IpAddr, limits: &EndpointConfig) -> bool {
        let most = (limits.max_half_open / PREFIX_PART).max(1);
        let prefix = Prefix::of(from);
        self.held.len() < limits.max_half_open
            && match self.queues.get(&prefix) {
                Some(queue) => queue.takes(from, most),
                None => self.queues.len() < MAX_PREFIXES && !self.is_site_full(prefix),
            }
    }

    /// Whether the site has the largest number of waiting networks, so that no other of them may wait. An IPv4 network is a site of its
    /// own.
    fn is_site_full(&self, prefix: Prefix) -> bool {
        let of_site = self.queues.keys().filter(|other| other.widest() == prefix.widest());
        of_site.count() >= MAX_PREFIXES / PREFIX_PART
    }

    /// Stores the segment of `id` until there is a place for it. Returns `false` if there is no room for it.
    pub(crate) fn hold(
        &mut self,
        id: ConnectionId,
        from: IpAddr,
        segment: &Segment,
        limits: &EndpointConfig,
    ) -> bool {
        if !self.held.contains_key(&id) {
            if !self.takes(from, limits) {
                return false;
            }
            self.held.insert(id, Held { from, segments: Vec::new() });
            self.queues.entry(Prefix::of(from)).or_default().insert(id, from);
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

    /// Removes a connection that no longer waits, and returns its segments.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Vec<Segment> {
        let Some(Held { from, segments }) = self.held.remove(&id) else { return Vec::new() };
        let prefix = Prefix::of(from);
        if let Some(queue) = self.queues.get_mut(&prefix) {
            queue.remove(id, from);
            if queue.addresses.is_empty() {
                self.queues.remove(&prefix);
            }
        }
        segments
    }

    /// Returns the connection to serve next: each prefix in turn, with at most `most` asked. Within a prefix it is the one of the address
    /// with the fewest `handshakes`.
    pub(crate) fn next(
        &mut self,
        most: usize,
        handshakes: impl Fn(IpAddr) -> usize,
        has_room: impl Fn(IpAddr) -> bool,
    ) -> Option<(ConnectionId, Vec<Segment>)> {
        for _ in 0..most.min(self.queues.len()) {
            let behind = |turn| self.queues.range((Bound::Excluded(turn), Bound::Unbounded)).next();
            let (&prefix, queue) = self.turn.and_then(behind).or_else(|| self.queues.first_key_value())?;
            let (from, id) = queue.first(&handshakes)?;
            self.turn = Some(prefix);
            if has_room(from) {
                return Some((id, self.remove(id)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes};

    use super::*;

    const LIMITS: EndpointConfig = EndpointConfig { max_half_open: 16, ..EndpointConfig::DEFAULT };

    /// A host of a network of IPv4.
    fn host(network: u8) -> IpAddr {
        neighbour(network, 1)
    }

    fn neighbour(network: u8, host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, network, host).into()
    }

    /// A host of a network of a site of IPv6.
    fn host_of(site: u16, network: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, site, network, 0, 0, 0, 1).into()
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

    /// Returns a room with these connections, each with one segment.
    fn room(waiting: &[(u64, u8)]) -> WaitingRoom {
        let mut room = WaitingRoom::default();
        for &(id, network) in waiting {
            assert!(room.hold(ConnectionId(id), host(network), &segment(1, b"hello"), &LIMITS));
        }
        room
    }

    fn served(room: &mut WaitingRoom, has_room: impl Fn(IpAddr) -> bool) -> Vec<u64> {
        std::iter::from_fn(|| room.next(usize::MAX, |_| 0, &has_room)).map(|(id, _)| id.0).collect()
    }

    #[test]
    fn of_a_network_the_address_with_the_fewest_handshakes_is_served_first() {
        let mut room = WaitingRoom::default();
        for (id, host) in [(1, 1), (2, 1), (3, 2)] {
            assert!(room.hold(ConnectionId(id), neighbour(1, host), &segment(1, b"hello"), &LIMITS));
        }
        let handshakes = |from| if from == neighbour(1, 1) { 5 } else { 4 };
        assert_eq!(room.next(1, handshakes, |_| true).map(|(id, _)| id), Some(ConnectionId(3)));
        assert_eq!(room.next(1, handshakes, |_| true).map(|(id, _)| id), Some(ConnectionId(1)));
        assert!(room.is_waited_at(neighbour(1, 1)) && !room.is_waited_at(neighbour(1, 2)));
        assert!(room.is_waited_in(Prefix::of(neighbour(1, 2))));
    }

    #[test]
    fn an_address_leaves_a_quarter_of_its_network_to_its_neighbours() {
        let limits = EndpointConfig { max_half_open: 64, ..LIMITS };
        let mut room = WaitingRoom::default();
        let mut hold = |id, host| room.hold(ConnectionId(id), neighbour(1, host), &segment(1, b""), &limits);
        assert_eq!((0..20).filter(|id| hold(*id, 1)).count(), 12, "of 16");
        assert_eq!((20..40).filter(|id| hold(*id, 2)).count(), 4);
    }

    #[test]
    fn each_prefix_is_served_in_turn_and_within_it_the_first_to_come() {
        let mut room = room(&[(1, 1), (2, 1), (3, 2), (4, 1), (5, 2)]);
        assert_eq!(served(&mut room, |_| true), [1, 3, 2, 5, 4]);
        assert!(room.len() == 0 && room.queues.is_empty());
    }

    #[test]
    fn a_prefix_without_room_keeps_no_other_waiting() {
        let mut room = room(&[(1, 1), (2, 2)]);
        assert_eq!(served(&mut room, |network| network != host(1)), [2]);
        assert!(room.is_waited_in(Prefix::of(host(1))) && !room.is_waited_in(Prefix::of(host(2))));
        assert_eq!(served(&mut room, |_| true), [1]);
    }

    #[test]
    fn networks_of_one_site_do_not_wait_for_each_other() {
        let mut room = WaitingRoom::default();
        for (id, number) in [(1, 1), (2, 2)] {
            assert!(room.hold(ConnectionId(id), host_of(1, number), &segment(1, b"hello"), &LIMITS));
        }
        assert!(!room.is_waited_in(Prefix::of(host_of(1, 3))));
        assert_eq!(served(&mut room, |from| from == host_of(1, 2)), [2]);
    }

    #[test]
    fn a_site_with_all_of_its_networks_leaves_places_to_other_sites() {
        let limits = EndpointConfig { max_half_open: 1000, ..LIMITS };
        let mut room = WaitingRoom::default();
        let mut hold = |site: u16, number: u16| {
            let id = ConnectionId(u64::from(site) << 16 | u64::from(number));
            room.hold(id, host_of(site, number), &segment(1, b"hello"), &limits)
        };
        let held = (0..=255).filter(|number| hold(1, *number)).count();
        assert_eq!(held, MAX_PREFIXES / PREFIX_PART, "of one site");
        assert!(hold(2, 0) && !hold(1, 255) && hold(1, 0));
    }

    #[test]
    fn what_one_has_said_is_kept_once_and_up_to_a_limit() {
        let mut room = room(&[(1, 1)]);
        let mut hold = |seq, payload| room.hold(ConnectionId(1), host(1), &segment(seq, payload), &LIMITS);
        assert!(hold(1, b"hello") && hold(1, b""), "said again");
        assert!(hold(6, b"world"));
        assert!(!hold(11, &[0; MAX_BYTES]), "too long");
        assert!(hold(11, b"!") && hold(12, b"!"));
        assert!(!hold(13, b"!"), "too many");
        let (_, segments) = room.next(1, |_| 0, |_| true).expect("one waits");
        assert_eq!(segments.iter().map(|segment| segment.seq.bits()).collect::<Vec<_>>(), [1, 6, 11, 12]);
    }

    #[test]
    fn a_prefix_has_a_quarter_of_the_places_and_prefixes_are_counted() {
        let mut room = room(&[(1, 1), (2, 1), (3, 1), (4, 2)]);
        assert!(!room.takes(host(1), &LIMITS) && room.takes(host(2), &LIMITS));
        assert_eq!(room.remove(ConnectionId(1)).len(), 1);
        assert!(room.takes(host(1), &LIMITS));
        let limits = EndpointConfig { max_half_open: 1000, ..LIMITS };
        for number in 3..=MAX_PREFIXES as u8 {
            assert!(room.hold(
                ConnectionId(100 + u64::from(number)),
                host(number),
                &segment(1, b""),
                &limits
            ));
        }
        assert!(!room.takes(host(200), &limits), "one more prefix");
    }
}
