//! Paths of this host, and what a connection knows about ways to its peer: a [`PathManager`] says which addresses are
//! announced and which further subflows are opened.
//!
//! The opener of the connection opens them: one over each of its paths, to whichever address of the peer answers there, or one
//! for each pair of path and address ([`Joins`]). The other side opens none unless it is told to, then only to addresses that were
//! announced to it, and a little later, so that a pair is not joined from both ends at once. A pair that failed or was lost is
//! tried again with growing distance.

mod addresses;
mod choice;
mod pairs;
mod path;
mod reach;

use arrayvec::ArrayVec;
use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, PathId, SubflowId};

pub(crate) use addresses::{Announcement, Learned, Remote};
pub use choice::Joins;
pub(crate) use choice::{Present, Standing};
pub(crate) use pairs::Refusal;
pub use path::{Path, PathClass, Paths, TrustedPaths};
pub(crate) use reach::is_meaningful;

use addresses::Addresses;
use pairs::Pairs;

/// Most outcomes that wait to be told to the host.
const MAX_OUTCOMES: usize = 16;

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
    /// When the last subflow over each path was begun.
    begun: Vec<(PathId, Instant)>,
    /// What the paths were when they were looked at last.
    known_paths: Paths,
    /// What the host has to be told.
    outcomes: Vec<Outcome>,
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

/// The ids of the subflows that are present, and whether they make progress; an id has the same addresses for life.
pub(crate) type PresentIds = ArrayVec<(SubflowId, bool), MAX_PRESENT>;

/// How a join has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Whoever answered has proved to be the peer.
    Answered(SocketAddr),
    /// Nobody has, at an address that the peer has not announced itself.
    Failed(PathId, IpAddr),
}

/// Which ways are open for further subflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    /// Which further subflows are wanted of this side.
    pub(crate) wanted: Joins,
    /// The connection was opened by us.
    pub(crate) is_opener: bool,
    /// No subflow makes progress.
    pub(crate) is_in_need: bool,
    /// How long an address may go without an answer before the next is tried beside it.
    pub(crate) attempt_delay: Duration,
    /// The peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial: bool,
    /// Only a subflow to its initial address is of use now: it has announced the others, and nothing says who it is.
    pub(crate) is_initial_only: bool,
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
        self.note(Outcome::Answered(remote));
    }

    /// A join has ended before it was complete.
    pub(crate) fn on_join_failed(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        self.on_lost(now, path, remote);
        // What a peer announces is its word alone: no other connection goes by what came of it.
        if self.addresses.remotes().iter().any(|known| known.address == remote && known.announced.is_none()) {
            self.note(Outcome::Failed(path, remote.ip()));
        }
    }

    /// A subflow over this pair works, or has worked.
    pub(crate) fn on_worked(&mut self, path: PathId, remote: SocketAddr) {
        self.pairs.on_worked(path, remote);
    }

    /// A subflow that worked has ended.
    pub(crate) fn on_room(&mut self, now: Instant) {
        self.looked_at = None;
        self.pairs.on_room(now);
    }

    fn note(&mut self, outcome: Outcome) {
        if self.outcomes.len() < MAX_OUTCOMES {
            self.outcomes.push(outcome);
        }
    }

    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// Takes what the host has to be told.
    pub(crate) fn take_outcomes(&mut self) -> impl Iterator<Item = Outcome> {
        core::mem::take(&mut self.outcomes).into_iter()
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

    /// The peer has refused this pair.
    pub(crate) fn on_refused(&mut self, path: PathId, remote: SocketAddr, refusal: Refusal) {
        self.looked_at = None;
        self.pairs.on_refused(path, remote, refusal);
    }

    /// The host lets no join begin before `at`.
    pub(crate) fn hold_until(&mut self, at: Instant) {
        self.next_at = Some(at);
    }

    /// The further subflow to be opened next, beside those that are `present`; `ids` are theirs, and `has_failed` says whether
    /// other connections have found that a path does not lead to an address.
    pub(crate) fn next_join<I: Iterator<Item = Present>>(
        &mut self,
        now: Instant,
        (joining, ids): (Joining, Option<PresentIds>),
        paths: &Paths,
        present: impl Fn() -> I,
        has_failed: impl Fn(PathId, IpAddr) -> bool,
    ) -> NextJoin {
        let present_ids = ids;
        let looked_at = present_ids.map(|present| LookedAt { joining, present });
        if looked_at.is_some() && looked_at == self.looked_at && self.next_at.is_none_or(|at| at > now) {
            return NextJoin::Wait;
        }
        self.next_at = None;
        self.looked_at = looked_at;
        let present: Vec<Present> = present().collect();
        match self.first_due(joining, paths, &present, has_failed).filter(|_| !self.is_stopped) {
            Some((at, path, remote)) if at <= now => {
                self.begun.retain(|&(known, _)| known != path);
                self.begun.push((path, now));
                let is_there = |one: &Present| one.path == path && one.remote == remote.address.ip();
                if present.iter().any(is_there) {
                    self.pairs.on_begun_beside(now, path, remote.address);
                }
                NextJoin::Open(path, remote)
            }
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

    /// The paths are not what they were: some may have to be announced, and what was against one that has come up, or has other
    /// addresses now, no longer counts.
    pub(crate) fn on_paths_changed(&mut self, paths: &Paths) {
        self.is_settled = false;
        self.looked_at = None;
        for path in paths.iter().filter(|path| path.up) {
            let is_as_before =
                |old: &Path| (old.id, old.up, old.v4, old.v6) == (path.id, true, path.v4, path.v6);
            if !self.known_paths.iter().any(is_as_before) {
                self.pairs.forget_path(path.id);
            }
        }
        self.known_paths = paths.clone();
    }

    /// The paths as they were when they were looked at last.
    pub(crate) fn known_paths(&self) -> &Paths {
        &self.known_paths
    }

    /// Whether there may be paths of ours that the peer does not know yet.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Notes which paths of ours are to be announced.
    pub(crate) fn settle(&mut self, paths: &Paths, is_opener: bool) {
        self.is_settled = true;
        if self.known_paths.iter().next().is_none() {
            self.known_paths = paths.clone();
        }
        let Some(initial) = self.addresses.initial_remote() else { return };
        for path in paths.iter().filter(|path| path.up && path.class != PathClass::Never) {
            let own = |path: &Path| [path.v4.map(IpAddr::V4), path.v6.map(IpAddr::V6)];
            // Others reach the device at the same address, whatever carries the segments.
            if paths.twins(path).flat_map(own).flatten().any(|own| self.addresses.is_named(own)) {
                continue;
            }
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
        self.pairs.on_announced(now, address);
        self.addresses.learn(now, id, address, most)
    }

    /// The peer has lost an address.
    pub(crate) fn forget_remote(&mut self, id: u8) {
        self.looked_at = None;
        self.addresses.forget_remote(id);
    }
}
