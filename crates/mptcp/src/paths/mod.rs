//! Paths of this host, and what a connection knows about ways to its peer: a [`PathManager`] says which addresses are
//! announced and which further subflows are opened.
//!
//! The opener of the connection opens them, in a full mesh of its paths and the peer's addresses. The other side opens only
//! to addresses that were announced to it, and a little later, so that a pair is not joined from both ends at once. A pair
//! that failed or was lost is tried again with growing distance.

mod addresses;
mod pairs;
mod path;

use arrayvec::ArrayVec;
use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, PathId, SubflowId};

pub(crate) use addresses::{Announcement, Learned, Remote};
pub use path::{Path, PathClass, Paths, TrustedPaths};

use addresses::Addresses;
use pairs::{Due, Pairs};

/// The passive side leaves the opener so much time.
const PASSIVE_DELAY: Duration = Duration::from_secs(1);

/// Ways to the peer: addresses of both sides, and pairs of path and address that have failed.
#[derive(Debug, Default)]
pub(crate) struct PathManager {
    addresses: Addresses,
    /// All paths of ours as they are now have been looked at for announcing.
    is_settled: bool,
    pairs: Pairs,
    /// When a pair can be tried again; `None` if none waits.
    next_at: Option<Instant>,
    is_stopped: bool,
    /// What was looked at last, while nothing of it has changed: a packet that says nothing about ways to the peer costs
    /// no search for one.
    looked_at: Option<LookedAt>,
}

/// What a search for a further subflow depends on, beside what the path manager keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LookedAt {
    joining: Joining,
    present: PresentIds,
}

/// Subflows whose set is compared; with more there is no telling.
pub(crate) const MAX_PRESENT: usize = 32;

/// The ids of the subflows that are present; an id has the same addresses for life.
pub(crate) type PresentIds = ArrayVec<SubflowId, MAX_PRESENT>;

/// Which ways are open for further subflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    /// The connection was opened by us.
    pub(crate) is_opener: bool,
    /// The peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial: bool,
}

/// What comes of looking for a further subflow to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextJoin {
    /// This one, now.
    Open(PathId, Remote),
    /// None now.
    Wait,
}

impl PathManager {
    /// What the opener knows about the peer beforehand.
    pub(crate) fn set_remotes(&mut self, remotes: &[SocketAddr]) {
        self.looked_at = None;
        self.addresses.set_remotes(remotes);
    }

    /// The addresses of the first subflow: id 0 on both sides.
    pub(crate) fn set_initial(&mut self, local: IpAddr, remote: SocketAddr) {
        self.looked_at = None;
        self.addresses.set_initial(local, remote);
    }

    /// The id of an address of ours.
    pub(crate) fn local_id(&mut self, address: IpAddr) -> u8 {
        self.addresses.local_id(address)
    }

    /// The connection is over.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.next_at = None;
    }

    /// There is no subflow: all pairs that failed may be tried at once.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.looked_at = None;
        self.pairs.hurry(now);
    }

    pub(crate) fn on_joined(&mut self, path: PathId, remote: SocketAddr) {
        self.pairs.on_joined(path, remote);
    }

    pub(crate) fn on_lost(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.on_lost(now, path, remote);
    }

    /// What a subflow carried over this pair did not arrive: after each time it is tried again later.
    pub(crate) fn on_interference(&mut self, path: PathId, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.on_interference(path, remote);
    }

    /// The peer says that it will always refuse this pair.
    pub(crate) fn on_prohibited(&mut self, path: PathId, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.on_prohibited(path, remote);
    }

    /// What was against pairs with this address no longer counts.
    pub(crate) fn forget_pairs_with(&mut self, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.forget_remote(remote);
    }

    /// A path has come up: what was against it before no longer counts.
    pub(crate) fn on_path_up(&mut self, path: PathId) {
        self.looked_at = None;
        self.pairs.forget_path(path);
    }

    /// The further subflow to be opened next, of those that `is_missing` beside the subflows that are `present`.
    pub(crate) fn next_join(
        &mut self,
        now: Instant,
        (joining, present): (Joining, Option<PresentIds>),
        paths: &Paths,
        is_missing: impl Fn(&Path, SocketAddr) -> bool,
    ) -> NextJoin {
        let looked_at = present.map(|present| LookedAt { joining, present });
        if looked_at.is_some() && looked_at == self.looked_at && self.next_at.is_none_or(|at| at > now) {
            return NextJoin::Wait;
        }
        self.next_at = None;
        self.looked_at = looked_at;
        match self.first_due(joining, paths, is_missing).filter(|_| !self.is_stopped) {
            Some((at, path, remote)) if at <= now => NextJoin::Open(path, remote),
            Some((at, _, _)) => {
                self.next_at = Some(at);
                NextJoin::Wait
            }
            None => NextJoin::Wait,
        }
    }

    /// No further subflow is wanted now.
    pub(crate) fn rest(&mut self) {
        self.next_at = None;
        self.looked_at = None;
    }

    /// When a further subflow may be opened.
    pub(crate) fn join_deadline(&self) -> Option<Instant> {
        self.next_at
    }

    fn first_due(
        &self,
        joining: Joining,
        paths: &Paths,
        is_missing: impl Fn(&Path, SocketAddr) -> bool,
    ) -> Option<(Instant, PathId, Remote)> {
        let is_ours_to_open = |remote: &&Remote| {
            (joining.is_opener || remote.announced.is_some())
                && !(joining.denies_initial && remote.id == Some(0))
        };
        let mut first: Option<(Instant, PathId, Remote)> = None;
        for remote in self.addresses.remotes().iter().filter(is_ours_to_open) {
            for path in paths.iter().filter(|path| path.up && path.class != PathClass::Never) {
                if !is_missing(path, remote.address) {
                    continue;
                }
                let Due::At(at) = self.pairs.due(path.id, remote.address) else { continue };
                let at = at.max(self.grace(joining, remote.address));
                if first.is_none_or(|(earliest, _, _)| at < earliest) {
                    first = Some((at, path.id, *remote));
                }
            }
        }
        first
    }

    /// How long the opener is left to join this address first.
    fn grace(&self, joining: Joining, remote: SocketAddr) -> Instant {
        let known = self.addresses.remotes().iter().find(|known| known.address == remote);
        match known.and_then(|known| known.announced) {
            Some(announced) if !joining.is_opener => announced + PASSIVE_DELAY,
            Some(_) | None => Instant::ZERO,
        }
    }

    /// The paths are not what they were: some may have to be announced.
    pub(crate) fn on_paths_changed(&mut self) {
        self.is_settled = false;
        self.looked_at = None;
    }

    /// Whether there may be paths of ours that the peer does not know yet.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Notes which paths of ours are to be announced.
    pub(crate) fn settle(&mut self, paths: &Paths, is_opener: bool) {
        self.is_settled = true;
        let Some(initial) = self.addresses.initial_remote() else { return };
        for path in paths.iter().filter(|path| path.up && path.class != PathClass::Never) {
            let v4 = path.v4.map(|own| (IpAddr::V4(own), IpAddr::V4(path.public_v4.unwrap_or(own))));
            let v6 = path.v6.map(|own| (IpAddr::V6(own), IpAddr::V6(path.public_v6.unwrap_or(own))));
            let (first, second) = if initial.is_ipv6() { (v6, v4) } else { (v4, v6) };
            // The opener may have a path without the family of this connection: it is told both. The other side joins
            // where the opener has not joined by itself: one way per path is enough.
            let told = if is_opener { [first.or(second), None] } else { [first, second] };
            for (own, public) in told.into_iter().flatten() {
                self.addresses.announce(own, public);
            }
        }
    }

    /// Takes the announcement that is due, to be said in an option, or in a record of a sealed connection.
    pub(crate) fn take_announcement(&mut self, now: Instant, is_sealed: bool) -> Option<Announcement> {
        self.addresses.take_due(now, is_sealed)
    }

    /// When the next announcement or withdrawal is due.
    pub(crate) fn announcement_deadline(&self, is_sealed: bool) -> Option<Instant> {
        self.addresses.deadline(is_sealed)
    }

    /// The peer has echoed an announcement.
    pub(crate) fn on_echo(&mut self, echo: Announcement) {
        self.addresses.on_echo(echo);
    }

    /// Our address is no more; its id, if the peer may know it.
    pub(crate) fn forget_own(&mut self, own: IpAddr) -> Option<u8> {
        self.addresses.forget_own(own)
    }

    /// The peer is to be told that the address with this id is no more.
    pub(crate) fn withdraw(&mut self, id: u8) {
        self.addresses.withdraw(id);
    }

    /// Takes the withdrawals that are due: address ids.
    pub(crate) fn take_withdrawals(&mut self, now: Instant, take: impl FnMut(u8)) {
        self.addresses.take_withdrawals(now, take);
    }

    /// The peer's address of the first subflow.
    pub(crate) fn initial_remote(&self) -> Option<SocketAddr> {
        self.addresses.initial_remote()
    }

    /// The peer has announced an address, of which at most `most` are kept.
    pub(crate) fn learn(&mut self, now: Instant, id: u8, address: SocketAddr, most: usize) -> Learned {
        self.looked_at = None;
        self.addresses.learn(now, id, address, most)
    }

    /// The peer has lost an address.
    pub(crate) fn forget_remote(&mut self, id: u8) {
        self.looked_at = None;
        self.addresses.forget_remote(id);
    }
}
