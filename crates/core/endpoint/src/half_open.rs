//! Connections that a client has begun to open, in two pools. The first pool waits for the third segment of TCP's handshake; any sender can
//! begin one with any source address. The second pool has validated addresses, and runs the handshake of TLS or tcpcrypt. None of the first
//! pool can take a place of the second, and none of either gives way to a SYN. A connection without a place in the second pool ([`Places`])
//! waits for one ([`WaitingRoom`]).

use core::net::IpAddr;
use plait_base::Instant;
use std::collections::BTreeMap;

use plait_wire::Segment;

use crate::places::{Places, Room};
use crate::prefix::Prefix;
use crate::waiting_room::WaitingRoom;
use crate::{ConnectionId, EndpointConfig};

/// Both pools.
#[derive(Default)]
pub(crate) struct HalfOpen {
    unproved: BTreeMap<ConnectionId, Prefix>,
    /// Number of entries of each network in the first pool, and of each site for all its networks.
    unproved_of: BTreeMap<Prefix, usize>,
    handshakes: Places,
    /// Entries of the first pool with a validated address.
    waiting: WaitingRoom,
    /// Since when a place is free that was not offered to any waiting entry.
    vacant: Option<Instant>,
    /// The time up to which expired loans of places were offered to waiting entries.
    offered: Instant,
}

impl HalfOpen {
    /// Adds an entry after a SYN.
    pub(crate) fn insert(&mut self, id: ConnectionId, from: IpAddr) {
        let prefix = Prefix::of(from);
        self.unproved.insert(id, prefix);
        for (prefix, _) in prefix.levels() {
            *self.unproved_of.entry(prefix).or_default() += 1;
        }
    }

    /// Begins the handshake of `id`: its address `from` is validated.
    pub(crate) fn prove(&mut self, now: Instant, id: ConnectionId, from: IpAddr) {
        if self.remove_unproved(id) {
            self.handshakes.take(now, id, from);
        }
    }

    /// Notes that the handshake of `id` is complete, with a key of this fingerprint or none.
    pub(crate) fn complete(&mut self, now: Instant, id: ConnectionId, client: Option<[u8; 32]>) {
        self.handshakes.complete(now, id, client);
    }

    /// Removes an entry that is no longer half open.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.waiting.remove(id);
        self.remove_unproved(id);
        self.handshakes.leave(id);
    }

    /// Removes it from the first pool. Returns `false` if it is not there.
    fn remove_unproved(&mut self, id: ConnectionId) -> bool {
        let Some(prefix) = self.unproved.remove(&id) else { return false };
        for (prefix, _) in prefix.levels() {
            let Some(count) = self.unproved_of.get_mut(&prefix) else { continue };
            *count -= 1;
            if *count == 0 {
                self.unproved_of.remove(&prefix);
            }
        }
        true
    }

    /// Whether one more SYN can be kept.
    pub(crate) fn takes_syn(&self, from: IpAddr, limits: &EndpointConfig) -> bool {
        let is_below = |(prefix, networks)| {
            let count = self.unproved_of.get(&prefix).copied().unwrap_or(0);
            count < networks * limits.max_half_open_per_prefix
        };
        self.unproved.len() < limits.max_half_open && Prefix::of(from).levels().all(is_below)
    }

    /// Whether a handshake with `from`, which answers now, may begin. Those that wait for the same place come first.
    pub(crate) fn room(&mut self, now: Instant, from: IpAddr, limits: &EndpointConfig) -> Room {
        self.vacate(now);
        let room = self.room_for_eldest(now, from, limits);
        // A free place is offered at once to those that wait.
        let is_promised = room == Room::Free && self.waiting.is_waited_in(Prefix::of(from));
        if is_promised || self.waiting.is_waited_at(from) { Room::Full } else { room }
    }

    /// The same for the entry that has waited longest.
    pub(crate) fn room_for_eldest(&self, now: Instant, from: IpAddr, limits: &EndpointConfig) -> Room {
        self.handshakes.room(now, from, limits)
    }

    /// Frees the places of handshakes that ended quickly.
    fn vacate(&mut self, now: Instant) {
        self.vacant = self.vacant.or(self.handshakes.vacate(now));
    }

    /// Stores the segment of `id` until there is a place for it. Returns `false` if there is no room for it.
    pub(crate) fn hold(
        &mut self,
        id: ConnectionId,
        from: IpAddr,
        segment: &Segment,
        limits: &EndpointConfig,
    ) -> bool {
        self.waiting.hold(id, from, segment, limits)
    }

    /// Whether one more with `from`, which has no state yet, may wait for a place.
    pub(crate) fn may_wait(&self, from: IpAddr, limits: &EndpointConfig) -> bool {
        self.unproved.len() < limits.max_half_open && self.waiting.takes(from, limits)
    }

    /// Returns how many wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns when there is a place for a waiting entry.
    pub(crate) fn next_vacancy(&self) -> Option<Instant> {
        if self.waiting.len() == 0 {
            return None;
        }
        self.vacant.or_else(|| self.handshakes.next_change(self.offered))
    }

    /// Returns one that has waited long enough, and its segments.
    pub(crate) fn next_waiting(
        &mut self,
        now: Instant,
        limits: &EndpointConfig,
    ) -> Option<(ConnectionId, Vec<Segment>)> {
        self.vacate(now);
        let handshakes = &self.handshakes;
        // If no place is free, the search for one to take inspects all prefixes. It is made for only one of those that wait.
        let most = if handshakes.are_left(limits) { usize::MAX } else { 1 };
        let has_room = |from| handshakes.room(now, from, limits) != Room::Full;
        let next = self.waiting.next(most, |from| handshakes.of(from), has_room);
        // The caller asks for the next one until there is none.
        self.vacant = next.is_some().then_some(now);
        self.offered = now;
        next
    }

    /// Gives its place to another.
    pub(crate) fn displace(&mut self, id: ConnectionId) {
        self.handshakes.displace(id);
    }

    /// Whether it waits for the third segment.
    pub(crate) fn is_unproved(&self, id: ConnectionId) -> bool {
        self.unproved.contains_key(&id)
    }

    /// Returns the number of those that wait for the third segment.
    pub(crate) fn unproved(&self) -> usize {
        self.unproved.len()
    }

    /// Returns the size of both pools together.
    pub(crate) fn len(&self) -> usize {
        self.unproved.len() + self.handshakes.len()
    }

    /// Returns the number of running handshakes.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Returns all ids of both pools.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> {
        self.unproved.keys().copied().chain(self.handshakes.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::NETWORKS_PER_SITE;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use plait_base::Duration;

    const NOW: Instant = Instant::from_millis(1000);
    const LIMITS: EndpointConfig = EndpointConfig {
        max_half_open: 4,
        max_half_open_per_prefix: 2,
        max_handshakes: 4,
        max_handshakes_per_prefix: 3,
        ..EndpointConfig::DEFAULT
    };

    /// A host of a network of IPv4.
    fn host(network: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, network, 1).into()
    }

    /// A host of a network of a site of IPv6.
    fn host_of(site: u16, network: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, site, network, 0, 0, 0, 1).into()
    }

    /// Begins a handshake if it may.
    fn begin(pools: &mut HalfOpen, now: Instant, id: u64, from: u8) -> Room {
        let room = pools.room(now, host(from), &LIMITS);
        if let Room::InPlaceOf(other) = room {
            pools.displace(other);
        }
        if room != Room::Full {
            pools.insert(ConnectionId(id), host(from));
            pools.prove(now, ConnectionId(id), host(from));
        }
        room
    }

    #[test]
    fn syns_are_limited_by_prefix_and_in_total() {
        let mut pools = HalfOpen::default();
        for id in 0..2 {
            assert!(pools.takes_syn(host(1), &LIMITS));
            pools.insert(ConnectionId(id), host(1));
        }
        assert!(!pools.takes_syn(host(1), &LIMITS) && pools.takes_syn(host(2), &LIMITS));
        for id in 2..4 {
            pools.insert(ConnectionId(id), host(2));
        }
        assert!(!pools.takes_syn(host(3), &LIMITS));
        pools.remove(ConnectionId(0));
        assert!(pools.takes_syn(host(1), &LIMITS));
    }

    #[test]
    fn a_full_pool_gives_a_place_to_a_prefix_with_less_than_its_share() {
        let mut pools = HalfOpen::default();
        for id in 0..3 {
            assert_eq!(begin(&mut pools, NOW, id, 1), Room::Free);
        }
        assert_eq!(begin(&mut pools, NOW, 3, 1), Room::Full, "its prefix has enough");
        assert_eq!(begin(&mut pools, NOW, 4, 2), Room::Free);
        assert_eq!(begin(&mut pools, NOW, 5, 3), Room::InPlaceOf(ConnectionId(0)));
        assert_eq!(begin(&mut pools, NOW, 6, 3), Room::Full, "no holder has more than both would have");
        assert_eq!((pools.len(), pools.handshakes()), (4, 4));
    }

    #[test]
    fn a_site_of_ipv6_has_no_more_than_four_of_its_networks() {
        let limits = EndpointConfig { max_half_open: 100, max_handshakes: 100, ..LIMITS };
        let mut pools = HalfOpen::default();
        let mut kept = 0;
        for number in 0..100 {
            if pools.takes_syn(host_of(1, number), &limits) {
                pools.insert(ConnectionId(number.into()), host_of(1, number));
                kept += 1;
            }
        }
        assert_eq!(kept, NETWORKS_PER_SITE * limits.max_half_open_per_prefix);
        assert!(pools.takes_syn(host_of(2, 0), &limits), "the next site");
        for id in 0..kept as u64 {
            pools.prove(NOW, ConnectionId(id), host_of(1, id as u16));
            pools.insert(ConnectionId(100 + id), host_of(1, id as u16));
            pools.prove(NOW, ConnectionId(100 + id), host_of(1, id as u16));
        }
        // The site is full: one of its own networks gives way.
        assert_eq!(pools.room(NOW, host_of(1, 50), &limits), Room::InPlaceOf(ConnectionId(7)));
        assert_eq!(pools.room(NOW, host_of(1, 7), &limits), Room::Full);
        (0..200).for_each(|id| pools.displace(ConnectionId(id)));
        assert!(pools.handshakes.counts_nothing() && pools.unproved_of.is_empty());
    }

    #[test]
    fn a_full_pool_takes_a_place_from_the_site_that_has_most_in_all_its_networks() {
        let mut pools = HalfOpen::default();
        for (id, (site, network)) in [(0, (1, 0)), (1, (1, 1)), (2, (1, 2)), (3, (2, 0))] {
            pools.insert(ConnectionId(id), host_of(site, network));
            pools.prove(NOW, ConnectionId(id), host_of(site, network));
        }
        assert_eq!(pools.room(NOW, host_of(3, 0), &LIMITS), Room::InPlaceOf(ConnectionId(0)));
        assert_eq!(pools.room(NOW, host_of(1, 3), &LIMITS), Room::Full);
    }

    #[test]
    fn a_handshake_that_is_quickly_over_keeps_its_place_for_a_quarter_of_a_second() {
        let mut pools = HalfOpen::default();
        for id in 0..3 {
            begin(&mut pools, NOW, id, 1);
            pools.remove(ConnectionId(id));
        }
        assert_eq!(begin(&mut pools, NOW, 3, 1), Room::Full);
        let later = NOW + Duration::from_millis(250);
        assert_eq!(begin(&mut pools, later, 4, 1), Room::Free);
        pools.remove(ConnectionId(4));
        assert_eq!(pools.room(later + Duration::from_millis(250), host(1), &LIMITS), Room::Free);
        assert!(pools.handshakes.counts_nothing(), "nothing is kept of those that have gone");
    }
}
