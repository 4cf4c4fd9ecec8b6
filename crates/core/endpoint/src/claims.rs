//! Claimed openings: of several attempts to open one connection, the application gets one.
//!
//! A claim is kept for its whole time. If it were dropped for another claim, a delayed attempt could be granted the same opening a second
//! time. Therefore room for newcomers is kept in advance. A holder with three times as many claims as it leaves free is refused, and the
//! holder with most is refused first.

use core::net::IpAddr;
use plait_base::{Duration, Instant};
use plait_mptcp::{OpeningClaim, OpeningName};
use std::collections::{BTreeMap, VecDeque};

use crate::prefix::Prefix;

/// How long a claim is remembered. An unclaimed attempt lives for twenty seconds at most, and an opener begins no further attempt a minute
/// after its first.
const REMEMBERED: Duration = Duration::from_secs(120);

/// A holder has fewer claims than this many times what it leaves free. A single large client, such as a gateway, may have three quarters of
/// all. Several large clients together leave a part for newcomers.
const TIMES_FREE: usize = 3;

/// Claims of openings, by tokens that are derived from the secrets of the claimers.
pub(crate) struct Claims {
    most: usize,
    claimed: BTreeMap<OpeningName, u32>,
    /// Claims in the order of their expiry.
    order: VecDeque<Remembered>,
    /// Number of claims of each holder that has any.
    held: BTreeMap<Holder, usize>,
    refused: u64,
}

/// A claim and its expiry.
struct Remembered {
    until: Instant,
    name: OpeningName,
    from: IpAddr,
}

/// Clients whose claims are counted together. Each claim counts for one holder of every kind. An IPv4 address has no site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Holder {
    /// A site of IPv6, or a network.
    Prefix(Prefix),
    Address(IpAddr),
    /// The client with the key of this fingerprint, from all its addresses.
    Client([u8; 32]),
    /// The clients of one address without a key.
    Nameless(IpAddr),
}

impl Holder {
    /// Returns the holders for which a claim counts, the widest first.
    fn all(from: IpAddr, client: Option<[u8; 32]>) -> impl Iterator<Item = Self> {
        let network = Prefix::of(from);
        let site = Some(network.widest()).filter(|site| *site != network);
        let client = client.map_or(Self::Nameless(from), Self::Client);
        let prefixes = site.into_iter().chain([network]).map(Self::Prefix);
        prefixes.chain([Self::Address(from), client])
    }
}

impl Claims {
    /// Returns an empty list that keeps at most `most` claims.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, claimed: BTreeMap::new(), order: VecDeque::new(), held: BTreeMap::new(), refused: 0 }
    }

    /// Claims an opening for the connection with `token`, which was opened from the address `from`.
    pub(crate) fn claim(
        &mut self,
        now: Instant,
        name: OpeningName,
        from: IpAddr,
        token: u32,
    ) -> OpeningClaim {
        self.forget_ended(now);
        if let Some(&token) = self.claimed.get(&name) {
            return OpeningClaim::Taken(token);
        }
        if !self.has_room(from, name.client) {
            self.refused += 1;
            return OpeningClaim::Full;
        }
        for holder in Holder::all(from, name.client) {
            *self.held.entry(holder).or_default() += 1;
        }
        self.claimed.insert(name, token);
        self.order.push_back(Remembered { until: now + REMEMBERED, name, from });
        OpeningClaim::Granted
    }

    /// Returns the number of claims refused since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether each holder has fewer claims than [`TIMES_FREE`] times what is free for it: of all places, and of those of the holders that
    /// include it. A holder without a claim therefore finds room as long as there is any.
    fn has_room(&self, from: IpAddr, client: Option<[u8; 32]>) -> bool {
        let mut free = self.most.saturating_sub(self.claimed.len());
        for holder in Holder::all(from, client) {
            let held = self.held.get(&holder).copied().unwrap_or(0);
            let quota = free.saturating_mul(TIMES_FREE);
            if held >= quota {
                return false;
            }
            free = free.min(quota - held);
        }
        true
    }

    fn forget_ended(&mut self, now: Instant) {
        while self.order.front().is_some_and(|oldest| oldest.until <= now)
            && let Some(Remembered { until: _, name, from }) = self.order.pop_front()
        {
            self.claimed.remove(&name);
            for holder in Holder::all(from, name.client) {
                if let Some(held) = self.held.get_mut(&holder) {
                    *held -= 1;
                    if *held == 0 {
                        self.held.remove(&holder);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1000);

    fn name(id: u32, client: Option<[u8; 32]>) -> OpeningName {
        let mut name = OpeningName { id: [0; 16], client };
        name.id[..4].copy_from_slice(&id.to_be_bytes());
        name
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Makes claims with ids that no other claim has.
    struct Crowd {
        claims: Claims,
        now: Instant,
        next: u32,
    }

    impl Crowd {
        fn new(most: usize) -> Self {
            Self { claims: Claims::new(most), now: NOW, next: 0 }
        }

        fn claim(&mut self, from: &str, client: Option<u8>) -> bool {
            self.next += 1;
            let name = name(self.next, client.map(|byte| [byte; 32]));
            self.claims.claim(self.now, name, address(from), self.next) == OpeningClaim::Granted
        }

        /// Returns how many of `tries` are granted.
        fn granted(&mut self, tries: u32, from: impl Fn(u32) -> (String, Option<u8>)) -> usize {
            let claim = |number| {
                let (from, client) = from(number);
                self.claim(&from, client)
            };
            (0..tries).map(claim).filter(|granted| *granted).count()
        }
    }

    #[test]
    fn an_opening_is_granted_once_in_two_minutes_and_to_each_client_by_itself() {
        let mut claims = Claims::new(64);
        let from = address("192.0.2.1");
        assert_eq!(claims.claim(NOW, name(1, None), from, 7), OpeningClaim::Granted);
        assert_eq!(claims.claim(NOW, name(1, None), from, 8), OpeningClaim::Taken(7));
        assert_eq!(claims.claim(NOW, name(1, Some([5; 32])), from, 8), OpeningClaim::Granted);
        let late = NOW + REMEMBERED;
        let before = late - Duration::from_millis(1);
        assert_eq!(claims.claim(before, name(1, None), from, 9), OpeningClaim::Taken(7));
        assert_eq!(claims.claim(late, name(1, None), from, 9), OpeningClaim::Granted);
    }

    #[test]
    fn a_new_claim_is_refused_and_no_old_one_is_forgotten() {
        let mut claims = Claims::new(4);
        let [one, other, third] = ["192.0.2.1", "198.51.100.1", "203.0.113.1"].map(address);
        for id in 1..=3 {
            assert_eq!(claims.claim(NOW, name(id, None), one, id), OpeningClaim::Granted);
        }
        assert_eq!(claims.claim(NOW, name(4, None), one, 4), OpeningClaim::Full);
        assert_eq!(claims.claim(NOW, name(4, None), other, 4), OpeningClaim::Granted);
        assert_eq!(claims.claim(NOW, name(5, None), third, 5), OpeningClaim::Full);
        for from in [one, other, third] {
            assert_eq!(claims.claim(NOW, name(1, None), from, 6), OpeningClaim::Taken(1), "{from}");
        }
        assert_eq!(claims.refused(), 2);
        assert_eq!(claims.claim(NOW + REMEMBERED, name(5, None), one, 5), OpeningClaim::Granted);
        assert_eq!((claims.claimed.len(), claims.order.len(), claims.held.len()), (1, 1, 3));
    }

    #[test]
    fn a_site_with_all_its_networks_and_any_keys_leaves_a_quarter_of_the_places_to_others() {
        let mut crowd = Crowd::new(1000);
        let anywhere = |number| (format!("2001:db8:1:{:x}::{number:x}", number % 300), Some(number as u8));
        let granted = crowd.granted(5000, anywhere);
        assert_eq!(granted, 750);
        assert!(crowd.claim("2001:db8:2::1", None) && crowd.claim("192.0.2.1", Some(1)));
        assert_eq!(crowd.claims.refused() as usize, 5000 - granted);
    }

    #[test]
    fn a_network_and_an_address_leave_places_to_their_neighbours() {
        let mut crowd = Crowd::new(1200);
        assert_eq!(crowd.granted(2000, |_| ("192.0.2.1".to_owned(), None)), 810);
        for (from, client) in [("192.0.2.2", None), ("192.0.3.1", None), ("192.0.2.1", Some(1))] {
            assert!(crowd.claim(from, client), "{from}");
        }
        let mut crowd = Crowd::new(1200);
        assert_eq!(crowd.granted(2000, |number| (format!("2001:db8::{number:x}"), None)), 831);
        assert!(crowd.claim("2001:db8:0:1::1", None));
    }

    #[test]
    fn a_client_leaves_places_to_others_wherever_it_comes_from() {
        let mut crowd = Crowd::new(1000);
        let from_everywhere = |number: u32| (format!("10.{}.{}.1", number / 250, number % 250), Some(7));
        assert_eq!(crowd.granted(5000, from_everywhere), 750);
        assert!(!crowd.claim("192.0.2.1", Some(7)) && crowd.claim("192.0.2.1", Some(8)));
    }

    #[test]
    fn however_many_holders_there_are_a_newcomer_finds_room() {
        let mut crowd = Crowd::new(1000);
        crowd.granted(20_000, |number| (format!("10.0.{}.1", number % 50), None));
        assert!(crowd.claim("192.0.2.1", None));
    }

    #[test]
    fn what_is_forgotten_counts_for_no_holder_any_more() {
        let mut crowd = Crowd::new(40);
        assert_eq!(crowd.granted(100, |_| ("2001:db8::1".to_owned(), Some(1))), 27);
        crowd.now = NOW + REMEMBERED;
        assert_eq!(crowd.granted(100, |_| ("2001:db8::1".to_owned(), Some(1))), 27);
        crowd.now += REMEMBERED;
        crowd.claims.forget_ended(crowd.now);
        assert!(crowd.claims.held.is_empty() && crowd.claims.claimed.is_empty());
    }
}
