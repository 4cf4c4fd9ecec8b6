//! Places of handshakes with validated addresses: their number, and the one that gives way to a newcomer.
//!
//! There are limits for a network, for a site of IPv6, and for all together. If a limit is reached, a place is taken from the holder with
//! most places within it: a site among all, a network of the site, an address of the network, a client of the address. Between equal
//! holders a place is lent for some seconds: after that time another handshake may take it.

use core::net::IpAddr;
use plait_base::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};

use crate::prefix::Prefix;
use crate::{ConnectionId, EndpointConfig};

/// Least time for which a place is taken: most of the cost of a handshake arises in its first moment.
const SHORTEST: Duration = Duration::from_millis(250);

/// Loan time of a place while a handshake runs and others want the place. A path with a round trip of a second and one loss in each
/// direction needs less: a round trip to the end of the handshake, and a retransmission timeout of three seconds (RFC 6298) for each loss.
const LENT: Duration = Duration::from_secs(8);

/// The same once the handshake is complete. An honest opener sends OPENING in the flight that completes the handshake, or a round trip
/// later (tcpcrypt). In this time TCP has sent it three times, with timeouts of one and then two seconds (RFC 6298).
const LENT_COMPLETE: Duration = Duration::from_secs(3);

/// Running handshakes, and those that ended quickly.
#[derive(Default)]
pub(crate) struct Places {
    taken: BTreeMap<ConnectionId, Taken>,
    /// Ends of the loan times.
    ends: BTreeSet<(Instant, ConnectionId)>,
    /// Places of ended handshakes that stay taken up to this moment.
    lingering: BTreeMap<(Instant, ConnectionId), IpAddr>,
    prefixes: BTreeMap<Prefix, usize>,
    addresses: BTreeMap<IpAddr, usize>,
}

/// A place in use.
struct Taken {
    from: IpAddr,
    /// When the address was validated.
    since: Instant,
    lent_until: Instant,
    /// Set once the handshake is complete.
    client: Option<Client>,
}

/// The client of a complete handshake: the fingerprint of its key, if it has one.
type Client = Option<[u8; 32]>;

/// Whether a handshake may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Free,
    /// It may, in the place of this one. The holder of that place has more than its share, or the loan time is over.
    InPlaceOf(ConnectionId),
    /// Not now.
    Full,
}

/// Places that are counted together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Prefix(Prefix),
    Address(IpAddr),
}

impl Scope {
    fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => prefix.contains(address),
            Self::Address(only) => only == address,
        }
    }

    /// Returns the next narrower scope that includes `from`.
    fn part_with(self, from: IpAddr) -> Option<Self> {
        let network = Prefix::of(from);
        match self {
            Self::All => Some(Self::Prefix(network.widest())),
            Self::Prefix(prefix) if prefix != network => Some(Self::Prefix(network)),
            Self::Prefix(_) => Some(Self::Address(from)),
            Self::Address(_) => None,
        }
    }
}

impl Places {
    /// Takes a place for `id`, whose address has been validated.
    pub(crate) fn take(&mut self, now: Instant, id: ConnectionId, from: IpAddr) {
        let lent_until = now + LENT;
        let taken = Taken { from, since: now, lent_until, client: None };
        if self.taken.insert(id, taken).is_none() {
            self.ends.insert((lent_until, id));
            *self.addresses.entry(from).or_default() += 1;
            for (prefix, _) in Prefix::of(from).levels() {
                *self.prefixes.entry(prefix).or_default() += 1;
            }
        }
    }

    /// Notes that the handshake of `id` is complete and has shown this client. OPENING is still missing.
    pub(crate) fn complete(&mut self, now: Instant, id: ConnectionId, client: Client) {
        if let Some(taken) = self.taken.get_mut(&id).filter(|taken| taken.client.is_none()) {
            self.ends.remove(&(taken.lent_until, id));
            taken.client = Some(client);
            taken.lent_until = now + LENT_COMPLETE;
            self.ends.insert((taken.lent_until, id));
        }
    }

    /// Releases the place of a handshake that is over.
    pub(crate) fn leave(&mut self, id: ConnectionId) {
        if let Some(Taken { from, since, lent_until, client: _ }) = self.taken.remove(&id) {
            self.ends.remove(&(lent_until, id));
            self.lingering.insert((since + SHORTEST, id), from);
        }
    }

    /// Releases its place to another at once.
    pub(crate) fn displace(&mut self, id: ConnectionId) {
        if let Some(Taken { from, since: _, lent_until, client: _ }) = self.taken.remove(&id) {
            self.ends.remove(&(lent_until, id));
            self.release(from);
        }
    }

    /// Frees the places of handshakes that ended quickly. Returns since when the first of them is free.
    pub(crate) fn vacate(&mut self, now: Instant) -> Option<Instant> {
        let mut first = None;
        while let Some(entry) = self.lingering.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((since, _), from) = entry.remove_entry();
            self.release(from);
            first.get_or_insert(since);
        }
        first
    }

    /// Returns when a place is free again, or its loan time ends, later than `after`.
    pub(crate) fn next_change(&self, after: Instant) -> Option<Instant> {
        let lingering = self.lingering.first_key_value().map(|((at, _), _)| *at);
        let lent = self.ends.range((after, ConnectionId(u64::MAX))..).next().map(|(at, _)| *at);
        lingering.into_iter().chain(lent).min()
    }

    /// Whether a handshake with `from` may begin.
    pub(crate) fn room(&self, now: Instant, from: IpAddr, limits: &EndpointConfig) -> Room {
        match self.crowded(from, limits) {
            None => Room::Free,
            Some(scope) => self.displaced_by(now, from, scope).map_or(Room::Full, Room::InPlaceOf),
        }
    }

    /// Whether there are free places, apart from the limits of prefixes.
    pub(crate) fn are_left(&self, limits: &EndpointConfig) -> bool {
        self.taken.len() + self.lingering.len() < limits.max_handshakes
    }

    /// Returns the number of places of this address.
    pub(crate) fn of(&self, from: IpAddr) -> usize {
        self.count(Scope::Address(from))
    }

    /// Returns the number of running handshakes.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Returns all ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> {
        self.taken.keys().copied()
    }

    #[cfg(test)]
    pub(crate) fn counts_nothing(&self) -> bool {
        self.prefixes.is_empty() && self.addresses.is_empty() && self.ends.is_empty()
    }

    /// Returns the narrowest scope that includes `from` and is at its limit.
    fn crowded(&self, from: IpAddr, limits: &EndpointConfig) -> Option<Scope> {
        let is_full = |&(prefix, networks): &(Prefix, usize)| {
            self.count(Scope::Prefix(prefix)) >= networks * limits.max_handshakes_per_prefix
        };
        let prefix = Prefix::of(from).levels().find(is_full).map(|(prefix, _)| Scope::Prefix(prefix));
        prefix.or_else(|| (!self.are_left(limits)).then_some(Scope::All))
    }

    /// Returns the place in `scope` that a newcomer takes: one of the holder with most, if that has more than the newcomer's holder would
    /// then have.
    fn displaced_by(&self, now: Instant, from: IpAddr, scope: Scope) -> Option<ConnectionId> {
        let mut within = Some(scope);
        while let Some(whole) = within {
            let own = whole.part_with(from);
            let held = own.map_or(0, |own| self.count(own));
            let largest = self.largest_part(whole).filter(|(_, count)| *count > held + 1);
            let oldest = largest.and_then(|(part, _)| self.oldest(|taken| part.contains(taken.from)));
            if oldest.is_some() {
                return oldest;
            }
            within = own;
        }
        self.of_largest_client(from).or_else(|| self.lent_longest(now, from, scope))
    }

    fn count(&self, scope: Scope) -> usize {
        match scope {
            Scope::All => self.taken.len() + self.lingering.len(),
            Scope::Prefix(prefix) => self.prefixes.get(&prefix).copied().unwrap_or(0),
            Scope::Address(address) => self.addresses.get(&address).copied().unwrap_or(0),
        }
    }

    /// Returns the part of a scope with the most places, and their number.
    fn largest_part(&self, scope: Scope) -> Option<(Scope, usize)> {
        let prefixes = self.prefixes.iter().map(|(prefix, count)| (*prefix, *count));
        let prefix = |(prefix, count)| (Scope::Prefix(prefix), count);
        match scope {
            Scope::All => {
                let widest = prefixes.filter(|(prefix, _)| prefix.widest() == *prefix);
                widest.max_by_key(|(_, count)| *count).map(prefix)
            }
            Scope::Prefix(site @ Prefix::Site(_)) => {
                let networks = prefixes.filter(|(prefix, _)| *prefix != site && prefix.widest() == site);
                networks.max_by_key(|(_, count)| *count).map(prefix)
            }
            Scope::Prefix(network @ (Prefix::V4(_) | Prefix::V6(_))) => {
                let addresses = self.addresses.iter().filter(|(address, _)| network.contains(**address));
                let largest = addresses.max_by_key(|(_, count)| **count);
                largest.map(|(address, count)| (Scope::Address(*address), *count))
            }
            Scope::Address(_) => None,
        }
    }

    /// Ids count up: the first is the oldest.
    fn oldest(&self, is_meant: impl Fn(&Taken) -> bool) -> Option<ConnectionId> {
        self.taken.iter().find(|(_, taken)| is_meant(taken)).map(|(id, _)| *id)
    }

    /// Returns the oldest place of the client whose key was shown most often, behind the address of a newcomer. The newcomer has not shown
    /// a key yet.
    fn of_largest_client(&self, from: IpAddr) -> Option<ConnectionId> {
        let (mut clients, mut nameless) = (BTreeMap::<[u8; 32], usize>::new(), 0);
        for taken in self.taken.values().filter(|taken| taken.from == from) {
            match taken.client.flatten() {
                Some(key) => *clients.entry(key).or_default() += 1,
                None => nameless += 1,
            }
        }
        let largest = clients.into_iter().max_by_key(|(_, count)| *count);
        let (key, _) = largest.filter(|(_, count)| *count > nameless + 1)?;
        self.oldest(|taken| taken.from == from && taken.client == Some(Some(key)))
    }

    /// Returns the place with the longest loan, if its time is over. It is never one of a holder with fewer places than the newcomer's.
    fn lent_longest(&self, now: Instant, from: IpAddr, scope: Scope) -> Option<ConnectionId> {
        let over = self.ends.range(..=(now, ConnectionId(u64::MAX)));
        let may_go = |id: &ConnectionId| {
            let taken = self.taken.get(id).filter(|taken| scope.contains(taken.from));
            taken.is_some_and(|taken| self.has_no_fewer(scope, taken.from, from))
        };
        over.map(|(_, id)| *id).find(may_go)
    }

    /// Whether the part of `scope` with `holder` has at least as many places as that with `newcomer`, for the widest parts that differ.
    fn has_no_fewer(&self, scope: Scope, holder: IpAddr, newcomer: IpAddr) -> bool {
        let (mut parts, mut whole) = (None, Some(scope));
        while let Some(within) = whole
            && let (Some(theirs), Some(own)) = (within.part_with(holder), within.part_with(newcomer))
        {
            parts = Some((theirs, own)).filter(|(theirs, own)| theirs != own);
            whole = parts.is_none().then_some(own);
        }
        parts.is_none_or(|(theirs, own)| self.count(theirs) >= self.count(own))
    }

    fn release(&mut self, from: IpAddr) {
        count_down(&mut self.addresses, from);
        for (prefix, _) in Prefix::of(from).levels() {
            count_down(&mut self.prefixes, prefix);
        }
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const NOW: Instant = Instant::from_millis(1000);
    const LIMITS: EndpointConfig =
        EndpointConfig { max_handshakes: 8, max_handshakes_per_prefix: 4, ..EndpointConfig::DEFAULT };

    fn address(network: u8, host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, network, host).into()
    }

    /// Takes places for these addresses now, with ascending ids.
    fn taken(addresses: &[IpAddr]) -> Places {
        let mut places = Places::default();
        for (id, from) in addresses.iter().enumerate() {
            places.take(NOW, ConnectionId(id as u64), *from);
        }
        places
    }

    fn in_place_of(id: u64) -> Room {
        Room::InPlaceOf(ConnectionId(id))
    }

    #[test]
    fn in_a_full_network_the_address_with_most_gives_way_to_one_with_less_than_its_share() {
        let places = taken(&[address(1, 1), address(1, 2), address(1, 1), address(1, 1)]);
        assert_eq!(places.room(NOW, address(1, 3), &LIMITS), in_place_of(0));
        assert_eq!(places.room(NOW, address(1, 2), &LIMITS), in_place_of(0));
        assert_eq!(places.room(NOW, address(1, 1), &LIMITS), Room::Full);
        let alike = taken(&[address(1, 1), address(1, 2), address(1, 1), address(1, 2)]);
        assert_eq!(alike.room(NOW, address(1, 1), &LIMITS), Room::Full);
        assert_eq!(alike.room(NOW, address(1, 3), &LIMITS), in_place_of(1));
    }

    #[test]
    fn where_all_are_taken_by_networks_alike_an_address_still_gives_way_to_its_neighbour() {
        let limits = EndpointConfig { max_handshakes_per_prefix: 8, ..LIMITS };
        let mut places = taken(&[address(1, 1); 4]);
        (4..8).for_each(|id| places.take(NOW, ConnectionId(id), address(2, 1)));
        assert_eq!(places.room(NOW, address(1, 2), &limits), in_place_of(0));
        assert_eq!(places.room(NOW, address(2, 1), &limits), Room::Full);
    }

    #[test]
    fn behind_one_address_the_client_whose_key_was_shown_most_often_gives_way() {
        let mut places = taken(&[address(1, 1); 4]);
        places.complete(NOW, ConnectionId(0), Some([1; 32]));
        for id in 1..4 {
            places.complete(NOW, ConnectionId(id), Some([2; 32]));
        }
        assert_eq!(places.room(NOW, address(1, 1), &LIMITS), in_place_of(1));
        places.displace(ConnectionId(1));
        places.take(NOW, ConnectionId(4), address(1, 1));
        assert_eq!(places.room(NOW, address(1, 1), &LIMITS), Room::Full, "one nameless, two of a client");
    }

    #[test]
    fn among_those_alike_a_place_is_lent_for_seconds_and_for_fewer_once_the_handshake_is_complete() {
        let mut places = taken(&[address(1, 1); 4]);
        places.complete(NOW, ConnectionId(2), None);
        let last = NOW + LENT_COMPLETE - Duration::from_millis(1);
        assert_eq!(places.room(last, address(1, 1), &LIMITS), Room::Full);
        assert_eq!(places.next_change(NOW), Some(NOW + LENT_COMPLETE));
        assert_eq!(places.room(NOW + LENT_COMPLETE, address(1, 1), &LIMITS), in_place_of(2));
        places.complete(last, ConnectionId(2), None);
        assert_eq!(places.next_change(NOW), Some(NOW + LENT_COMPLETE), "it is completed once");
        places.displace(ConnectionId(2));
        places.take(NOW + LENT_COMPLETE, ConnectionId(4), address(1, 1));
        assert_eq!(places.next_change(NOW + LENT_COMPLETE), Some(NOW + LENT));
        assert_eq!(places.room(NOW + LENT, address(1, 1), &LIMITS), in_place_of(0));
        assert_eq!(places.room(NOW + LENT, address(2, 1), &LIMITS), Room::Free, "none is wanted");
    }

    #[test]
    fn a_place_that_was_lent_long_enough_is_not_taken_from_a_holder_with_fewer() {
        let limits = EndpointConfig { max_handshakes: 4, ..LIMITS };
        let neighbours = taken(&[address(1, 1), address(1, 2), address(1, 2), address(1, 2)]);
        assert_eq!(neighbours.room(NOW + LENT, address(1, 2), &limits), in_place_of(1));
        let networks = taken(&[address(1, 1), address(2, 1), address(2, 2), address(2, 3)]);
        assert_eq!(networks.room(NOW + LENT, address(2, 4), &limits), in_place_of(1));
        let alike = taken(&[address(1, 1), address(2, 1), address(3, 1), address(4, 1)]);
        assert_eq!(alike.room(NOW + LENT, address(4, 1), &limits), in_place_of(0));
    }

    #[test]
    fn a_place_elsewhere_that_was_lent_long_enough_does_not_help() {
        let mut places = Places::default();
        places.take(NOW, ConnectionId(0), address(2, 1));
        let later = NOW + LENT;
        (1..5).for_each(|id| places.take(later, ConnectionId(id), address(1, 1)));
        assert_eq!(places.room(later, address(1, 1), &LIMITS), Room::Full);
        assert_eq!(places.next_change(later), Some(later + LENT));
    }

    #[test]
    fn nothing_is_counted_of_those_that_have_gone() {
        let mut places = taken(&[address(1, 1), address(1, 2), address(2, 1)]);
        places.complete(NOW, ConnectionId(1), Some([1; 32]));
        (0..2).for_each(|id| places.leave(ConnectionId(id)));
        places.displace(ConnectionId(2));
        assert_eq!(places.next_change(NOW), Some(NOW + SHORTEST));
        assert_eq!(places.vacate(NOW + SHORTEST), Some(NOW + SHORTEST));
        assert!(places.counts_nothing() && places.len() == 0);
    }
}
