//! Connections that somebody has begun to open to us, in two pools: those that wait for the third segment of TCP's handshake,
//! which anybody can begin in anybody's name, and those of addresses that have answered, whose handshake of TLS or tcpcrypt runs.
//! None of the first pool can take a place of the second, and none of either gives way to a SYN. Who finds no place in the second
//! waits for one ([`WaitingRoom`]).

use plait_base::{Duration, Instant};
use std::collections::BTreeMap;

use plait_wire::Segment;

use crate::prefix::Prefix;
use crate::waiting_room::WaitingRoom;
use crate::{ConnectionId, EndpointConfig};

/// A place in the second pool is taken for so long at least: what a handshake costs is mostly spent in its first moment.
const SHORTEST_HANDSHAKE: Duration = Duration::from_millis(250);

/// Both pools.
#[derive(Default)]
pub(crate) struct HalfOpen {
    unproved: BTreeMap<ConnectionId, Prefix>,
    /// With the moment at which the address was proved.
    handshakes: BTreeMap<ConnectionId, (Prefix, Instant)>,
    /// Places of handshakes that are over, up to this moment.
    lingering: BTreeMap<(Instant, ConnectionId), Prefix>,
    shares: BTreeMap<Prefix, Share>,
    /// Those of the first pool whose address has answered.
    waiting: WaitingRoom,
    /// Since when there is a place again that nobody who waits was offered.
    vacant: Option<Instant>,
}

/// What one prefix has: a network, and a site all its networks together.
#[derive(Clone, Copy, Default)]
struct Share {
    unproved: usize,
    handshakes: usize,
}

/// Whether a handshake may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Free,
    /// In the place of this one, whose prefix has more than its share.
    InPlaceOf(ConnectionId),
    /// Not now.
    Full,
}

impl HalfOpen {
    /// A SYN has come.
    pub(crate) fn insert(&mut self, id: ConnectionId, prefix: Prefix) {
        self.unproved.insert(id, prefix);
        for (prefix, _) in prefix.levels() {
            self.shares.entry(prefix).or_default().unproved += 1;
        }
    }

    /// The address of `id` has answered, and its handshake begins.
    pub(crate) fn prove(&mut self, now: Instant, id: ConnectionId) {
        let Some(prefix) = self.unproved.remove(&id) else { return };
        self.handshakes.insert(id, (prefix, now));
        for (prefix, _) in prefix.levels() {
            let share = self.shares.entry(prefix).or_default();
            share.unproved -= 1;
            share.handshakes += 1;
        }
    }

    /// It is half open no longer, in one way or the other.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.waiting.remove(id);
        if let Some(prefix) = self.unproved.remove(&id) {
            self.release(prefix, |share| &mut share.unproved);
        }
        if let Some((prefix, since)) = self.handshakes.remove(&id) {
            self.lingering.insert((since + SHORTEST_HANDSHAKE, id), prefix);
        }
    }

    /// Whether one more SYN can be kept.
    pub(crate) fn takes_syn(&self, prefix: Prefix, limits: &EndpointConfig) -> bool {
        let is_below =
            |(prefix, networks)| self.share(prefix).unproved < networks * limits.max_half_open_per_prefix;
        self.unproved.len() < limits.max_half_open && prefix.levels().all(is_below)
    }

    /// Whether a handshake with somebody of `prefix`, who answers now, may begin: not before those of the same prefix that wait.
    pub(crate) fn room(&mut self, now: Instant, prefix: Prefix, limits: &EndpointConfig) -> Room {
        self.vacate(now);
        if self.waiting.is_waited_in(prefix) { Room::Full } else { self.room_for_eldest(prefix, limits) }
    }

    /// The same for who has waited longest.
    pub(crate) fn room_for_eldest(&self, prefix: Prefix, limits: &EndpointConfig) -> Room {
        let is_below =
            |(prefix, networks)| self.share(prefix).handshakes < networks * limits.max_handshakes_per_prefix;
        if !prefix.levels().all(is_below) {
            return Room::Full;
        }
        if self.has_places(limits) {
            return Room::Free;
        }
        let own = self.share(prefix.widest()).handshakes;
        let widest = self.shares.iter().filter(|(prefix, _)| prefix.widest() == **prefix);
        let largest = widest.max_by_key(|(_, share)| share.handshakes);
        let Some((&largest, _)) = largest.filter(|(_, share)| share.handshakes > own + 1) else {
            return Room::Full;
        };
        // Ids count up: the first is the oldest.
        let oldest = self.handshakes.iter().find(|(_, (prefix, _))| prefix.widest() == largest);
        oldest.map_or(Room::Full, |(id, _)| Room::InPlaceOf(*id))
    }

    /// Whether there are places but for the limits of prefixes.
    fn has_places(&self, limits: &EndpointConfig) -> bool {
        self.handshakes.len() + self.lingering.len() < limits.max_handshakes
    }

    /// The places of handshakes that were quickly over are free again.
    fn vacate(&mut self, now: Instant) {
        while let Some(entry) = self.lingering.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((since, _), prefix) = entry.remove_entry();
            self.release(prefix, |share| &mut share.handshakes);
            self.vacant.get_or_insert(since);
        }
    }

    /// Keeps what `id` says until there is a place for it; `false` if there is no room to keep it.
    pub(crate) fn hold(
        &mut self,
        id: ConnectionId,
        prefix: Prefix,
        segment: &Segment,
        limits: &EndpointConfig,
    ) -> bool {
        self.waiting.hold(id, prefix, segment, limits)
    }

    /// Whether one more of `prefix`, of whom nothing is kept yet, may wait for a place.
    pub(crate) fn may_wait(&self, prefix: Prefix, limits: &EndpointConfig) -> bool {
        self.unproved.len() < limits.max_half_open && self.waiting.takes(prefix, limits)
    }

    /// How many wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When there is a place for somebody who waits.
    pub(crate) fn next_vacancy(&self) -> Option<Instant> {
        let next = || self.lingering.first_key_value().map(|((at, _), _)| *at);
        if self.waiting.len() == 0 { None } else { self.vacant.or_else(next) }
    }

    /// Somebody who has waited long enough, and what it has said.
    pub(crate) fn next_waiting(
        &mut self,
        now: Instant,
        limits: &EndpointConfig,
    ) -> Option<(ConnectionId, Vec<Segment>)> {
        self.vacate(now);
        // Where no place is free, all prefixes are looked at to find whose could be taken: for one of those who wait.
        let most = if self.has_places(limits) { usize::MAX } else { 1 };
        let mut waiting = core::mem::take(&mut self.waiting);
        let next = waiting.next(most, |prefix| self.room_for_eldest(prefix, limits) != Room::Full);
        self.waiting = waiting;
        // Whoever has found one asks for the next.
        self.vacant = next.is_some().then_some(now);
        next
    }

    /// It gives its place to another.
    pub(crate) fn displace(&mut self, id: ConnectionId) {
        if let Some((prefix, _)) = self.handshakes.remove(&id) {
            self.release(prefix, |share| &mut share.handshakes);
        }
    }

    /// Whether it waits for the third segment.
    pub(crate) fn is_unproved(&self, id: ConnectionId) -> bool {
        self.unproved.contains_key(&id)
    }

    /// Those that wait for the third segment.
    pub(crate) fn unproved(&self) -> usize {
        self.unproved.len()
    }

    /// Both pools together.
    pub(crate) fn len(&self) -> usize {
        self.unproved.len() + self.handshakes.len()
    }

    /// Handshakes that run.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// All of both pools.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> {
        self.unproved.keys().chain(self.handshakes.keys()).copied()
    }

    fn share(&self, prefix: Prefix) -> Share {
        self.shares.get(&prefix).copied().unwrap_or_default()
    }

    fn release(&mut self, prefix: Prefix, which: impl Fn(&mut Share) -> &mut usize) {
        for (prefix, _) in prefix.levels() {
            let Some(share) = self.shares.get_mut(&prefix) else { continue };
            *which(share) -= 1;
            if (share.unproved, share.handshakes) == (0, 0) {
                self.shares.remove(&prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::NETWORKS_PER_SITE;

    const NOW: Instant = Instant::from_millis(1000);
    const LIMITS: EndpointConfig = EndpointConfig {
        max_half_open: 4,
        max_half_open_per_prefix: 2,
        max_handshakes: 4,
        max_handshakes_per_prefix: 3,
        ..EndpointConfig::DEFAULT
    };

    fn prefix(number: u8) -> Prefix {
        Prefix::V4([10, 0, number])
    }

    /// A handshake begins if it may.
    fn begin(pools: &mut HalfOpen, now: Instant, id: u64, from: u8) -> Room {
        let room = pools.room(now, prefix(from), &LIMITS);
        if let Room::InPlaceOf(other) = room {
            pools.displace(other);
        }
        if room != Room::Full {
            pools.insert(ConnectionId(id), prefix(from));
            pools.prove(now, ConnectionId(id));
        }
        room
    }

    #[test]
    fn syns_are_limited_by_prefix_and_in_total() {
        let mut pools = HalfOpen::default();
        for id in 0..2 {
            assert!(pools.takes_syn(prefix(1), &LIMITS));
            pools.insert(ConnectionId(id), prefix(1));
        }
        assert!(!pools.takes_syn(prefix(1), &LIMITS) && pools.takes_syn(prefix(2), &LIMITS));
        for id in 2..4 {
            pools.insert(ConnectionId(id), prefix(2));
        }
        assert!(!pools.takes_syn(prefix(3), &LIMITS));
        pools.remove(ConnectionId(0));
        assert!(pools.takes_syn(prefix(1), &LIMITS));
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
        assert_eq!(begin(&mut pools, NOW, 6, 3), Room::Full, "nobody has more than both would have");
        assert_eq!((pools.len(), pools.handshakes()), (4, 4));
    }

    #[test]
    fn a_site_of_ipv6_has_no_more_than_four_of_its_networks() {
        let network = |number: u8| Prefix::V6([0x20, 1, 0xd, 0xb8, 0, 1, 0, number]);
        let limits = EndpointConfig { max_half_open: 100, max_handshakes: 100, ..LIMITS };
        let mut pools = HalfOpen::default();
        let mut kept = 0;
        for number in 0..100 {
            if pools.takes_syn(network(number), &limits) {
                pools.insert(ConnectionId(number.into()), network(number));
                kept += 1;
            }
        }
        assert_eq!(kept, NETWORKS_PER_SITE * limits.max_half_open_per_prefix);
        assert!(pools.takes_syn(Prefix::V6([0x20, 1, 0xd, 0xb8, 0, 2, 0, 0]), &limits), "the next site");
        for id in 0..kept as u64 {
            pools.prove(NOW, ConnectionId(id));
            pools.insert(ConnectionId(100 + id), network(id as u8));
            pools.prove(NOW, ConnectionId(100 + id));
        }
        assert_eq!(pools.room(NOW, network(50), &limits), Room::Full);
        (0..200).for_each(|id| pools.displace(ConnectionId(id)));
        assert!(pools.shares.is_empty(), "{:?}", pools.shares.len());
    }

    #[test]
    fn a_full_pool_takes_a_place_from_the_site_that_has_most_in_all_its_networks() {
        let network = |site: u8, number: u8| Prefix::V6([0x20, 1, 0xd, 0xb8, 0, site, 0, number]);
        let mut pools = HalfOpen::default();
        for (id, prefix) in [(0, network(1, 0)), (1, network(1, 1)), (2, network(1, 2)), (3, network(2, 0))] {
            pools.insert(ConnectionId(id), prefix);
            pools.prove(NOW, ConnectionId(id));
        }
        assert_eq!(pools.room(NOW, network(3, 0), &LIMITS), Room::InPlaceOf(ConnectionId(0)));
        assert_eq!(pools.room(NOW, network(1, 3), &LIMITS), Room::Full);
    }

    #[test]
    fn a_handshake_that_is_quickly_over_keeps_its_place_for_a_quarter_of_a_second() {
        let mut pools = HalfOpen::default();
        for id in 0..3 {
            begin(&mut pools, NOW, id, 1);
            pools.remove(ConnectionId(id));
        }
        assert_eq!(begin(&mut pools, NOW, 3, 1), Room::Full);
        let later = NOW + SHORTEST_HANDSHAKE;
        assert_eq!(begin(&mut pools, later, 4, 1), Room::Free);
        pools.remove(ConnectionId(4));
        assert_eq!(pools.room(later + SHORTEST_HANDSHAKE, prefix(1), &LIMITS), Room::Free);
        assert!(pools.shares.is_empty(), "nothing is kept of those who have gone");
    }
}
