//! The local address that a peer has sent to, if it is not the address of the path. Answers to the peer are sent from it.
//!
//! A device may have several addresses, and a packet for an address of another device may arrive on this one. The stack knows one address
//! of each path.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use plait_tcp::FourTuple;

use crate::carrier::LocalAddress;

/// Number of unknown addresses above which known peers are tracked separately: far more than arrive in a turn.
const MANY: usize = 2048;
/// Number of the newest unknown addresses that are kept: those with answers about to leave.
const NEWEST: usize = 1024;

/// The key is the stack's address and the peer's.
#[derive(Default)]
pub(super) struct Asked {
    /// Peers that the endpoint knows, as many as it has.
    known: BTreeMap<FourTuple, IpAddr>,
    /// Other addresses, which the endpoint has not looked at yet or does not keep: they are answered without state.
    strangers: BTreeMap<FourTuple, IpAddr>,
    /// Their order of arrival.
    order: VecDeque<FourTuple>,
    /// The part of that order that existed at the last call of [`Asked::sweep`].
    seen: usize,
}

impl Asked {
    /// Notes a packet to a local address. A peer that the endpoint knows, according to `has_tuple`, keeps the address that it used first. A
    /// packet with a forged source therefore does not divert our answers.
    pub(super) fn note(
        &mut self,
        tuple: FourTuple,
        local: LocalAddress,
        has_tuple: impl Fn(&FourTuple) -> bool,
    ) {
        let LocalAddress { address, own } = local;
        if self.answers_from(&tuple, own) == address || has_tuple(&tuple) {
            return;
        }
        self.known.remove(&tuple);
        if address == own {
            self.strangers.remove(&tuple);
        } else if self.strangers.insert(tuple, address).is_none() {
            self.order.push_back(tuple);
        }
    }

    /// Returns the local address that answers the peer.
    pub(super) fn answers_from(&self, tuple: &FourTuple, own: IpAddr) -> IpAddr {
        if self.is_empty() {
            return own;
        }
        self.known.get(tuple).or_else(|| self.strangers.get(tuple)).copied().unwrap_or(own)
    }

    /// Whether [`Asked::sort`] should be called.
    pub(super) fn has_many_strangers(&self) -> bool {
        self.order.len() >= MANY
    }

    /// Keeps the peers that the endpoint knows, and the newest of the other addresses.
    pub(super) fn sort(&mut self, is_used: impl Fn(&FourTuple) -> bool) {
        self.admit(is_used);
        self.forget_first(self.order.len().saturating_sub(NEWEST));
    }

    /// Forgets addresses without a use; must be called now and then. An address that is new since the last call may still wait for its
    /// answer.
    pub(super) fn sweep(&mut self, is_used: impl Fn(&FourTuple) -> bool) {
        self.known.retain(|tuple, _| is_used(tuple));
        self.admit(is_used);
        self.forget_first(self.seen);
        self.seen = self.order.len();
    }

    fn admit(&mut self, is_used: impl Fn(&FourTuple) -> bool) {
        let Self { known, strangers, order, seen } = self;
        let (mut place, before) = (0, *seen);
        order.retain(|tuple| {
            place += 1;
            let stays = !is_used(tuple);
            if !stays {
                known.extend(strangers.remove_entry(tuple));
                *seen -= usize::from(place <= before);
            }
            stays
        });
    }

    fn forget_first(&mut self, count: usize) {
        for tuple in self.order.drain(..count) {
            self.strangers.remove(&tuple);
        }
        self.seen = self.seen.saturating_sub(count);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.strangers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));

    fn tuple(stranger: u32) -> FourTuple {
        let local = SocketAddr::from(([198, 19, 255, 128], 5000));
        FourTuple { local, remote: SocketAddr::from((Ipv4Addr::from_bits(stranger), 40_000)) }
    }

    fn asking(address: IpAddr) -> LocalAddress {
        LocalAddress { address, own: OWN }
    }

    /// The calls of a host after each turn.
    fn turn(asked: &mut Asked, is_used: impl Fn(&FourTuple) -> bool) {
        if asked.has_many_strangers() {
            asked.sort(is_used);
        }
    }

    #[test]
    fn a_peer_of_another_address_is_answered_from_there_whatever_strangers_do() {
        let mut asked = Asked::default();
        asked.note(tuple(1), asking(OTHER), |_| false);
        asked.note(tuple(2), asking(OWN), |_| false);
        let is_used = |known: &FourTuple| *known == tuple(1);
        for stranger in 10..100_000 {
            asked.note(tuple(stranger), asking(OTHER), is_used);
            assert_eq!(
                asked.answers_from(&tuple(stranger), OWN),
                OTHER,
                "{stranger}: with the answer of this turn"
            );
            turn(&mut asked, is_used);
            if stranger % 10_000 == 0 {
                asked.sweep(is_used);
            }
        }
        assert_eq!(asked.answers_from(&tuple(1), OWN), OTHER);
        assert_eq!(asked.answers_from(&tuple(2), OWN), OWN);
        assert!(asked.strangers.len() <= MANY && asked.order.len() == asked.strangers.len());
        // The answers to the last of them have left by the second time.
        for _ in 0..2 {
            asked.sweep(is_used);
        }
        assert_eq!((asked.known.len(), asked.order.len(), asked.strangers.len()), (1, 0, 0));
        asked.sweep(|_| false);
        assert!(asked.is_empty());
    }

    #[test]
    fn as_many_as_the_endpoint_has_are_remembered() {
        let mut asked = Asked::default();
        for peer in 0..20_000 {
            asked.note(tuple(peer), asking(OTHER), |_| false);
            turn(&mut asked, |_| true);
        }
        asked.sweep(|_| true);
        assert!((0..20_000).all(|peer| asked.answers_from(&tuple(peer), OWN) == OTHER));
    }

    #[test]
    fn an_address_that_is_new_since_the_last_sweep_is_kept_until_its_answer_has_left() {
        let mut asked = Asked::default();
        asked.note(tuple(1), asking(OTHER), |_| false);
        asked.sweep(|_| false);
        assert_eq!(asked.answers_from(&tuple(1), OWN), OTHER);
        asked.note(tuple(2), asking(OTHER), |_| false);
        asked.sweep(|known| *known == tuple(1));
        assert_eq!(asked.answers_from(&tuple(1), OWN), OTHER);
        assert_eq!(asked.answers_from(&tuple(2), OWN), OTHER);
        asked.sweep(|_| false);
        assert!(asked.is_empty());
    }

    #[test]
    fn a_forged_source_does_not_divert_answers_from_a_peer() {
        let mut asked = Asked::default();
        let has_tuple = |_: &FourTuple| true;
        // One peer uses the path's own address, another peer another address, before and after the endpoint knows them.
        asked.note(tuple(1), asking(OWN), |_| false);
        asked.note(tuple(2), asking(OTHER), |_| false);
        for _ in 0..2 {
            asked.note(tuple(1), asking(OTHER), has_tuple);
            asked.note(tuple(2), asking(OWN), has_tuple);
            assert_eq!(asked.answers_from(&tuple(1), OWN), OWN);
            assert_eq!(asked.answers_from(&tuple(2), OWN), OTHER);
            asked.sweep(has_tuple);
        }
    }

    #[test]
    fn an_unknown_peer_is_answered_from_the_address_that_it_used_last() {
        let mut asked = Asked::default();
        let has_tuple = |_: &FourTuple| false;
        // An attacker has guessed the peer's future port.
        asked.note(tuple(1), asking(OTHER), has_tuple);
        asked.note(tuple(1), asking(OWN), has_tuple);
        assert_eq!(asked.answers_from(&tuple(1), OWN), OWN);
    }

    #[test]
    fn a_peer_that_returns_after_its_connection_may_use_another_address() {
        let mut asked = Asked::default();
        for address in [OTHER, OWN, OTHER] {
            asked.note(tuple(1), asking(address), |_| false);
            assert_eq!(asked.answers_from(&tuple(1), OWN), address);
            asked.sweep(|_| true);
        }
    }
}
