//! What is remembered about pairs of a path of ours and an address of the peer: a pair that failed or was lost is tried
//! again with growing distance, and one over which the peer has never answered is given up in the end.

use core::net::SocketAddr;
use plait_base::{Duration, Instant, PathId};
use plait_wire::{MpReset, ResetReason};

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// Between two attempts over a pair that has never worked on this connection. Whoever answers there may not be the peer.
const MAX_BACK_OFF: Duration = Duration::from_secs(4 * 3600);
/// The same over a pair that has worked, or is refused for now: somebody is there.
const MAX_BACK_OFF_OF_KNOWN: Duration = Duration::from_secs(300);
/// The first after a refusal that another subflow has to make room for.
const FIRST_BACK_OFF_AT_LIMIT: Duration = Duration::from_secs(10);
/// How long the peer may take to notice that a subflow has ended.
const ROOM_DELAY: Duration = Duration::from_secs(1);
/// Attempts over a pair that has never worked, before it is given up: half a day with the distances above.
const MOST_FAILURES: u8 = 17;
/// Pairs are tried no farther apart while no subflow works: a path that works again is used within two seconds.
const MAX_BACK_OFF_IN_NEED: Duration = Duration::from_millis(500);
/// Pairs whose failures are remembered. While there are as many, no other is tried: none of them may be forgotten to be tried
/// at once.
const MAX_PAIRS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Pair {
    path: PathId,
    remote: SocketAddr,
    failures: u8,
    /// Not before.
    at: Instant,
    /// A subflow over it has been complete.
    has_worked: bool,
    refusal: Option<Refusal>,
    /// When a subflow was begun beside one that stood still.
    begun_beside: Option<Instant>,
}

/// What a refusal says about the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The peer may take it another time.
    ForNow,
    /// The peer has as many subflows as it takes.
    AtLimit,
    /// It is of no use.
    ForGood,
}

impl Refusal {
    /// What MP_TCPRST says (RFC 8684, section 3.6). The T flag is obeyed but for reasons that pass by their nature. Linux says
    /// "administratively prohibited", without the flag, when it has as many subflows as its limit allows.
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
    /// From this moment on; it has failed so often.
    At(Instant, u8),
    /// It is refused or given up.
    Never,
}

/// Pairs that have failed.
#[derive(Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

impl Pairs {
    /// When this pair may be tried.
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

    /// No subflow works: all that failed may be tried soon, what was refused and given up too.
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
            // The distance shrinks only slowly: a path that breaks again soon is not tried every second.
            pair.failures = pair.failures.min(MOST_FAILURES / 2).saturating_sub(1);
        }
    }

    /// A subflow over it was in use.
    pub(super) fn on_worked(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.entry(path, remote) {
            pair.has_worked = true;
        }
    }

    /// When a subflow over it was begun beside one that stood still.
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

    /// What a subflow carried over this pair did not arrive. That a join gets through the next time says little about it.
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

    /// A subflow that worked has ended: the peer may take another one in its place, as soon as it has noticed.
    pub(super) fn on_room(&mut self, now: Instant) {
        for pair in self.0.iter_mut().filter(|pair| pair.refusal == Some(Refusal::AtLimit)) {
            pair.at = pair.at.min(now + ROOM_DELAY);
            pair.failures = 0;
        }
    }

    /// The peer has announced the address anew: what it refused before it may take now. How often it did not answer counts on,
    /// or an address could be announced again and again to be tried as often.
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
                let (has_worked, refusal, begun_beside) = (false, None, None);
                self.0.push(Pair { path, remote, failures, at, has_worked, refusal, begun_beside });
                self.0.len() - 1
            })
        })?;
        self.0.get_mut(at)
    }
}

impl Pair {
    /// How long the next attempt waits after one more failure.
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
