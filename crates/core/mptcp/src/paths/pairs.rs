//! State of pairs of a path of ours and an address of the peer. A pair that failed or was lost is tried again at growing intervals. A pair
//! over which the peer has never answered is given up in the end.

use core::net::SocketAddr;
use plait_base::{Duration, Instant, PathId};
use plait_wire::{MpReset, ResetReason};

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// Longest interval between attempts over a pair that has never worked on this connection. The host that answers there may not be the peer.
const MAX_BACK_OFF: Duration = Duration::from_secs(4 * 3600);
/// The same over a pair that has worked, or is refused for now: the peer is there.
const MAX_BACK_OFF_OF_KNOWN: Duration = Duration::from_secs(300);
/// First interval after a refusal because of the peer's limit: another subflow has to end first.
const FIRST_BACK_OFF_AT_LIMIT: Duration = Duration::from_secs(10);
/// How long the peer may take to notice that a subflow has ended.
const ROOM_DELAY: Duration = Duration::from_secs(1);
/// Attempts over a pair that has never worked, before it is given up: half a day with the intervals above.
const MOST_FAILURES: u8 = 17;
/// Longest interval while no subflow works: a path that works again is used within two seconds.
const MAX_BACK_OFF_IN_NEED: Duration = Duration::from_millis(500);
/// Largest number of pairs with remembered failures. While the list is full, no other pair is tried. No entry may be dropped, because its
/// pair would then be tried at once.
const MAX_PAIRS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Pair {
    path: PathId,
    remote: SocketAddr,
    failures: u8,
    /// The earliest time of the next attempt.
    at: Instant,
    /// A subflow over it was complete.
    has_worked: bool,
    refusal: Option<Refusal>,
    /// When a join was last answered by a reset that did not come for want of room.
    turned_away: Option<Instant>,
    /// When a subflow was begun in parallel to a stalled one.
    begun_beside: Option<Instant>,
}

/// The effect of a refusal on the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The peer may accept it later.
    ForNow,
    /// The peer has reached its limit of subflows.
    AtLimit,
    /// Another attempt is useless.
    ForGood,
}

impl Refusal {
    /// Returns the meaning of an MP_TCPRST (RFC 8684, section 3.6). The T flag is obeyed, except for reasons that are transient by nature.
    /// Linux sends "administratively prohibited", without the flag, when it has reached its limit of subflows.
    pub(crate) fn of(reset: MpReset) -> Self {
        match reset.reason {
            _ if reset.transient => Self::ForNow,
            ResetReason::LackOfResources | ResetReason::TooMuchOutstanding => Self::ForNow,
            ResetReason::Prohibited => Self::AtLimit,
            ResetReason::Unspecified
            | ResetReason::Mptcp
            | ResetReason::UnacceptablePerformance
            | ResetReason::MiddleboxInterference
            | ResetReason::Other(_) => Self::ForGood,
        }
    }
}

/// Whether a pair may be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// From this moment on, after this many failures.
    At(Instant, u8),
    /// Never: it is refused or given up.
    Never,
}

/// Pairs that have failed.
#[derive(Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

impl Pairs {
    /// Returns when this pair may be tried.
    pub(super) fn due(&self, path: PathId, remote: SocketAddr) -> Due {
        match self.0.iter().find(|pair| pair.path == path && pair.remote == remote) {
            Some(pair) if pair.is_hopeless() => Due::Never,
            Some(pair) => Due::At(pair.at, pair.failures),
            None if self.0.len() >= MAX_PAIRS => Due::Never,
            None => Due::At(Instant::ZERO, 0),
        }
    }

    /// Whether a subflow over this pair has failed.
    pub(super) fn has_failed(&self, path: PathId, remote: SocketAddr) -> bool {
        let is_it = |pair: &&Pair| (pair.path, pair.remote) == (path, remote);
        self.0.iter().find(is_it).is_some_and(|pair| pair.failures > 0 || pair.refusal.is_some())
    }

    /// No subflow works: lets all pairs that failed be tried soon, including those that were refused or given up.
    pub(super) fn hurry(&mut self, now: Instant) {
        for pair in &mut self.0 {
            pair.refusal = None;
            pair.failures = pair.failures.min(MOST_FAILURES - 1);
            let wait =
                if pair.failures <= 1 { Duration::ZERO } else { pair.wait().min(MAX_BACK_OFF_IN_NEED) };
            pair.at = pair.at.min(now + wait);
        }
    }

    pub(super) fn on_joined(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.has_worked = true;
            pair.refusal = None;
            // The interval shrinks only slowly: a path that fails again soon is not tried every second.
            pair.failures = pair.failures.min(MOST_FAILURES / 2).saturating_sub(1);
        }
    }

    /// Notes that a subflow over it was in use.
    pub(super) fn on_worked(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.has_worked = true;
        }
    }

    /// Notes that a join was answered by a reset.
    pub(super) fn on_turned_away(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.turned_away = match pair.refusal {
                None | Some(Refusal::ForGood) => Some(now),
                Some(Refusal::ForNow | Refusal::AtLimit) => None,
            };
        }
    }

    /// Whether a subflow over this path was complete.
    pub(super) fn has_worked(&self, path: PathId) -> bool {
        self.0.iter().any(|pair| pair.path == path && pair.has_worked)
    }

    /// Whether a join over this path was turned away since then at an address of the peer: at `initial`, or where a subflow was complete.
    pub(super) fn is_turned_away_since(
        &self,
        since: Instant,
        path: PathId,
        initial: Option<SocketAddr>,
    ) -> bool {
        self.0.iter().any(|pair| {
            let is_peer = pair.has_worked || Some(pair.remote) == initial;
            pair.path == path && is_peer && pair.turned_away.is_some_and(|at| at >= since)
        })
    }

    /// Returns when a subflow over it was begun in parallel to a stalled one.
    pub(super) fn begun_beside(&self, path: PathId, remote: SocketAddr) -> Option<Instant> {
        self.0.iter().find(|pair| pair.path == path && pair.remote == remote)?.begun_beside
    }

    pub(super) fn on_begun_beside(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.begun_beside = Some(now);
        }
    }

    pub(super) fn on_lost(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.at = now + pair.wait();
            pair.failures = pair.failures.saturating_add(1);
        }
    }

    /// Delays the next attempt; it has not failed.
    pub(super) fn hold(&mut self, path: PathId, remote: SocketAddr, until: Instant) {
        if let Some(pair) = self.entry(path, remote) {
            pair.at = pair.at.max(until);
        }
    }

    /// Notes that bytes of a subflow over this pair did not arrive. The success of the next join proves little about it.
    pub(super) fn on_interference(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.failures = pair.failures.saturating_add(1);
        }
    }

    pub(super) fn on_refused(&mut self, path: PathId, remote: SocketAddr, refusal: Refusal) {
        if let Some(pair) = self.entry(path, remote) {
            pair.refusal = Some(refusal);
        }
    }

    /// Handles the end of a subflow that worked: the peer may accept another one in its place once it has noticed.
    pub(super) fn on_room(&mut self, now: Instant) {
        for pair in self.0.iter_mut().filter(|pair| pair.refusal == Some(Refusal::AtLimit)) {
            pair.at = pair.at.min(now + ROOM_DELAY);
            pair.failures = 0;
        }
    }

    /// Handles a new announcement of the address by the peer: the peer may accept now what it refused before. The number of attempts
    /// without an answer is kept. Otherwise repeated announcements could cause as many attempts.
    pub(super) fn on_announced(&mut self, now: Instant, remote: SocketAddr) {
        for pair in self.0.iter_mut().filter(|pair| pair.remote == remote) {
            pair.refusal = None;
            if pair.has_worked {
                pair.at = pair.at.min(now);
            }
        }
    }

    pub(super) fn forget_path(&mut self, path: PathId) {
        self.0.retain(|pair| pair.path != path);
    }

    fn entry(&mut self, path: PathId, remote: SocketAddr) -> Option<&mut Pair> {
        let at = self.0.iter().position(|pair| pair.path == path && pair.remote == remote);
        let at = at.or_else(|| {
            (self.0.len() < MAX_PAIRS).then(|| {
                let (failures, at) = (0, Instant::ZERO);
                let (has_worked, refusal, turned_away, begun_beside) = (false, None, None, None);
                self.0.push(Pair {
                    path,
                    remote,
                    failures,
                    at,
                    has_worked,
                    refusal,
                    turned_away,
                    begun_beside,
                });
                self.0.len() - 1
            })
        })?;
        self.0.get_mut(at)
    }
}

impl Pair {
    /// Returns how long the next attempt waits after one more failure.
    fn wait(&self) -> Duration {
        let (first, most) = match self.refusal {
            Some(Refusal::AtLimit) => (FIRST_BACK_OFF_AT_LIMIT, MAX_BACK_OFF_OF_KNOWN),
            Some(Refusal::ForNow) => (FIRST_BACK_OFF, MAX_BACK_OFF_OF_KNOWN),
            Some(Refusal::ForGood) | None if self.has_worked => (FIRST_BACK_OFF, MAX_BACK_OFF_OF_KNOWN),
            Some(Refusal::ForGood) | None => (FIRST_BACK_OFF, MAX_BACK_OFF),
        };
        (first * 2u32.pow(u32::from(self.failures.min(14)))).min(most)
    }

    fn is_hopeless(&self) -> bool {
        match self.refusal {
            Some(Refusal::ForGood) => true,
            Some(Refusal::ForNow | Refusal::AtLimit) => self.failures == u8::MAX,
            None => !self.has_worked && self.failures >= MOST_FAILURES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const PATH: PathId = PathId(1);
    const NOW: Instant = Instant::from_millis(1000);

    fn remote(number: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + number as u32), 443))
    }

    #[test]
    fn however_many_pairs_fail_none_of_them_is_tried_at_once_again() {
        let mut pairs = Pairs::default();
        for number in 0..2 * MAX_PAIRS {
            pairs.on_lost(NOW, PATH, remote(number));
        }
        for number in 0..2 * MAX_PAIRS {
            match pairs.due(PATH, remote(number)) {
                Due::At(at, _) => assert!(at > NOW, "{number}"),
                Due::Never => {}
            }
        }
        pairs.forget_path(PATH);
        assert_eq!(pairs.due(PATH, remote(0)), Due::At(Instant::ZERO, 0));
    }

    #[test]
    fn the_distance_grows_to_hours_and_then_it_is_given_up() {
        let (mut pairs, mut now, mut tries) = (Pairs::default(), NOW, 0);
        let mut in_an_hour = 0;
        while let Due::At(at, _) = pairs.due(PATH, remote(1)) {
            now = now.max(at);
            tries += 1;
            in_an_hour += u32::from(now < NOW + Duration::from_secs(3600));
            pairs.on_lost(now, PATH, remote(1));
        }
        assert!(now > NOW + Duration::from_secs(8 * 3600), "{now:?}");
        assert_eq!((tries, in_an_hour), (MOST_FAILURES.into(), 12));
    }

    #[test]
    fn a_pair_that_has_worked_is_never_given_up() {
        let (mut pairs, mut now) = (Pairs::default(), NOW);
        pairs.on_joined(PATH, remote(1));
        for _ in 0..1000 {
            pairs.on_lost(now, PATH, remote(1));
            let Due::At(at, _) = pairs.due(PATH, remote(1)) else { panic!("given up") };
            assert!(at <= now + MAX_BACK_OFF_OF_KNOWN);
            now = at;
        }
    }

    #[test]
    fn an_address_announced_again_and_again_is_not_tried_as_often() {
        let mut pairs = Pairs::default();
        for _ in 0..10 {
            pairs.on_lost(NOW, PATH, remote(1));
            pairs.on_announced(NOW, remote(1));
        }
        let Due::At(at, 10) = pairs.due(PATH, remote(1)) else { panic!("ten failures") };
        assert!(at > NOW + Duration::from_secs(500));
    }

    #[test]
    fn a_place_that_becomes_free_at_the_peer_is_soon_taken() {
        let mut pairs = Pairs::default();
        pairs.on_refused(PATH, remote(1), Refusal::AtLimit);
        pairs.on_lost(NOW, PATH, remote(1));
        assert_eq!(pairs.due(PATH, remote(1)), Due::At(NOW + FIRST_BACK_OFF_AT_LIMIT, 1));
        pairs.on_room(NOW);
        assert_eq!(pairs.due(PATH, remote(1)), Due::At(NOW + ROOM_DELAY, 0));
    }
}
