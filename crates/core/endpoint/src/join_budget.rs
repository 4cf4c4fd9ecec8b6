//! Budget for joins of this host that were begun and not answered. At an address that a peer announces there may be no host, or one that
//! has not asked for anything.
//!
//! Joins that are cancelled because another was faster, or because their connection has ended, count as well. A host with many short
//! connections would soon have no second path for its long ones. Therefore an address is validated once for all connections with the peer.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant};
use std::collections::BTreeMap;

use crate::prefix::Prefix;

/// Unanswered joins towards one peer at a time, and the rate of further ones.
const PEER: Rate = Rate { burst: 256, interval: Duration::from_secs(1) };
/// The same towards all peers.
const HOST: Rate = Rate { burst: 2048, interval: Duration::from_nanos(62_500_000) };
/// Largest number of peers counted separately. A peer with an unused budget needs no entry.
const MOST_PEERS: usize = 4096;
/// How long joins to a validated address cost nothing.
const PROVED: Duration = Duration::from_secs(600);
/// Largest number of validated addresses. Joins to others have their normal cost.
const MOST_PROVED: usize = 4096;

#[derive(Clone, Copy)]
struct Rate {
    burst: u32,
    /// Time after which one more is allowed.
    interval: Duration,
}

/// The state of one budget: the number used, counted from `since`.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    joins: u32,
    since: Instant,
}

/// The budgets for joins.
#[derive(Default)]
pub(crate) struct JoinBudget {
    host: Used,
    peers: BTreeMap<Prefix, Used>,
    /// Addresses at which these peers have answered, with the last time. The entry does not count for other peers: a neighbour of the peer
    /// could otherwise send us there as often as it likes.
    proved: BTreeMap<(IpAddr, SocketAddr), Instant>,
}

impl JoinBudget {
    /// Takes one for a join to `remote` on a connection with `peer`. If none is left, returns when there is one.
    pub(crate) fn claim(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) -> Result<(), Instant> {
        let prefix = Prefix::of(peer).widest();
        if self.is_proved(now, &(peer, remote)) {
            return Ok(());
        }
        self.host.refill(now, HOST);
        if !self.peers.contains_key(&prefix) && self.peers.len() >= MOST_PEERS {
            self.peers.retain(|_, used| {
                used.refill(now, PEER);
                used.joins > 0
            });
            if self.peers.len() >= MOST_PEERS {
                return Err(now + PEER.interval);
            }
        }
        let used = self.peers.entry(prefix).or_default();
        used.refill(now, PEER);
        let next = [used.next(PEER), self.host.next(HOST)].into_iter().flatten().max();
        if let Some(at) = next {
            return Err(at);
        }
        used.joins += 1;
        self.host.joins += 1;
        Ok(())
    }

    /// Returns one to the budget, because the peer itself has answered at `remote`. Further joins there cost nothing for a while.
    pub(crate) fn give_back(&mut self, now: Instant, peer: IpAddr, remote: SocketAddr) {
        let place = (peer, remote);
        // It has cost nothing, so nothing is returned for joins elsewhere.
        if self.is_proved(now, &place) {
            self.proved.insert(place, now);
            return;
        }
        self.host.joins = self.host.joins.saturating_sub(1);
        if let Some(used) = self.peers.get_mut(&Prefix::of(peer).widest()) {
            used.joins = used.joins.saturating_sub(1);
        }
        if self.proved.len() >= MOST_PROVED {
            self.proved.retain(|_, last| now < *last + PROVED);
        }
        if self.proved.len() < MOST_PROVED {
            self.proved.insert(place, now);
        }
    }

    fn is_proved(&self, now: Instant, place: &(IpAddr, SocketAddr)) -> bool {
        self.proved.get(place).is_some_and(|last| now < *last + PROVED)
    }
}

impl Used {
    fn refill(&mut self, now: Instant, rate: Rate) {
        let passed = now.saturating_since(self.since).as_nanos() / rate.interval.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed >= self.joins {
            *self = Self { joins: 0, since: now };
        } else {
            self.joins -= passed;
            self.since += rate.interval * passed;
        }
    }

    /// Returns when there is one again, if there is none.
    fn next(self, rate: Rate) -> Option<Instant> {
        (self.joins >= rate.burst).then(|| self.since + rate.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const NOW: Instant = Instant::from_millis(5000);

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + (number << 8)).into()
    }

    /// Another address that a peer has announced.
    const THERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 443);
    const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 2)), 443);

    fn claims(budget: &mut JoinBudget, now: Instant, peer: IpAddr, times: u32) -> usize {
        (0..times).filter(|_| budget.claim(now, peer, THERE).is_ok()).count()
    }

    #[test]
    fn a_peer_that_announces_silent_addresses_gets_one_join_a_second_in_the_end() {
        let mut budget = JoinBudget::default();
        assert_eq!(claims(&mut budget, NOW, peer(1), 1000), 256);
        assert_eq!(budget.claim(NOW, peer(1), THERE), Err(NOW + Duration::from_secs(1)));
        assert_eq!(claims(&mut budget, NOW + Duration::from_secs(10), peer(1), 1000), 10);
        assert_eq!(claims(&mut budget, NOW, peer(2), 1000), 256, "others are not to blame");
    }

    #[test]
    fn joins_that_are_answered_cost_nothing() {
        let mut budget = JoinBudget::default();
        for number in 0..10_000 {
            // Each goes to another address, which is unknown.
            let remote = SocketAddr::new(peer(number), 443);
            assert_eq!(budget.claim(NOW, peer(1), remote), Ok(()));
            budget.give_back(NOW, peer(1), remote);
        }
        assert_eq!(budget.proved.len(), MOST_PROVED);
    }

    #[test]
    fn joins_to_where_the_peer_has_answered_cost_nothing_whatever_becomes_of_them() {
        let mut budget = JoinBudget::default();
        assert_eq!(budget.claim(NOW, peer(1), THERE), Ok(()));
        budget.give_back(NOW, peer(1), THERE);
        // All were cancelled because others were faster.
        assert_eq!(claims(&mut budget, NOW, peer(1), 100_000), 100_000);
        assert_eq!(claims(&mut budget, NOW, peer(2), 1000), 256, "no other peer has answered there");
        let neighbour = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0101));
        assert_eq!(claims(&mut budget, NOW, neighbour, 1000), 256, "and no neighbour of its");
        let late = NOW + PROVED;
        assert_eq!(
            claims(&mut budget, late, peer(1), 1000),
            256,
            "the address may belong to another host by now"
        );
    }

    #[test]
    fn a_host_that_answers_at_one_address_cannot_send_us_to_another_more_often() {
        let mut budget = JoinBudget::default();
        let mut begun = 0;
        for _ in 0..1000 {
            assert_eq!(budget.claim(NOW, peer(1), THERE), Ok(()));
            begun += u32::from(budget.claim(NOW, peer(1), ELSEWHERE).is_ok());
            budget.give_back(NOW, peer(1), THERE);
        }
        assert!(begun <= 256, "{begun}");
    }

    #[test]
    fn all_peers_together_get_sixteen_a_second_in_the_end() {
        let mut budget = JoinBudget::default();
        let all = |budget: &mut JoinBudget, now| -> usize {
            (0..100).map(|number| claims(budget, now, peer(number), 300)).sum()
        };
        assert_eq!(all(&mut budget, NOW), 2048);
        assert_eq!(all(&mut budget, NOW + Duration::from_secs(1)), 16);
    }

    #[test]
    fn no_number_of_peers_makes_it_keep_more() {
        let mut budget = JoinBudget::default();
        for number in 0..100_000 {
            let _ = budget.claim(NOW + Duration::from_millis(number), peer(number as u32), THERE);
        }
        assert!(budget.peers.len() <= MOST_PEERS);
    }
}
