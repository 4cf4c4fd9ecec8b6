//! Paths of this host and ways to the peer. A [`PathManager`] decides which addresses are announced and which further subflows are opened.
//!
//! The opener of the connection opens further subflows ([`Joins`]): one over each of its paths, to the address of the peer that answers
//! there, or one for each pair of path and address. The other side opens none unless it is configured to. It then joins only announced
//! addresses, and a little later, so that a pair is not joined from both ends at once. A pair that failed or was lost is tried again at
//! growing intervals.

mod addresses;
mod choice;
mod pairs;
mod path;
mod reach;

use arrayvec::ArrayVec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use plait_base::{Duration, Instant, PathId, SubflowId};

pub(crate) use addresses::{Announcement, Learned, Remote};
pub use choice::Joins;
pub(crate) use choice::{Present, Standing};
pub(crate) use pairs::Refusal;
pub(crate) use path::Renewal;
pub use path::{Path, PathClass, Paths, TrustedPaths};
pub(crate) use reach::is_meaningful;

use addresses::Addresses;
use pairs::Pairs;

/// Largest number of outcomes that wait to be reported to the host.
const MAX_OUTCOMES: usize = 16;

/// Ways to the peer: addresses of both sides, and pairs of path and address that have failed.
#[derive(Debug, Default)]
pub(crate) struct PathManager {
    addresses: Addresses,
    /// Whether all current paths of ours were checked for announcements.
    is_settled: bool,
    pairs: Pairs,
    /// When a pair can be tried again; `None` if none waits.
    next_at: Option<Instant>,
    is_stopped: bool,
    /// When the last subflow over each path was begun.
    begun: Vec<(PathId, Instant)>,
    /// The paths at the last check.
    known_paths: Paths,
    /// Reports that wait for the host.
    outcomes: Vec<Outcome>,
    /// The time after a long absence of this host, in which the peer may have given the connection up.
    grace: Option<Grace>,
    /// Input of the last search, kept while it has not changed: a packet that does not affect the ways to the peer costs no search.
    looked_at: Option<LookedAt>,
}

/// The time after a long absence of this host.
#[derive(Clone, Debug)]
struct Grace {
    time: Range<Instant>,
    /// The paths that had subflows: each of them says whether the peer still has the connection.
    asked: Vec<PathId>,
}

/// Input of a search for a further subflow, in addition to the state of the path manager.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LookedAt {
    joining: Joining,
    present: PresentIds,
}

/// Largest number of subflows that are compared. With more, every check counts as a change.
pub(crate) const MAX_PRESENT: usize = 32;

/// The ids of the subflows that are present, and whether they make progress; an id has the same addresses for life.
pub(crate) type PresentIds = ArrayVec<(SubflowId, bool), MAX_PRESENT>;

/// A way to a host of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Our path.
    pub(crate) path: PathId,
    /// The address of the peer there.
    pub(crate) remote: IpAddr,
}

/// The result of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The host that answered is authenticated as the peer.
    Answered(SocketAddr),
    /// No host answered as the peer, at an address that the peer has not announced itself.
    Failed(PathId, IpAddr),
}

/// The conditions for further subflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    /// Which further subflows this side wants.
    pub(crate) wanted: Joins,
    /// Whether this host opened the connection.
    pub(crate) is_opener: bool,
    /// Whether no subflow makes progress.
    pub(crate) is_in_need: bool,
    /// How long an address may go without an answer before the next is tried in parallel.
    pub(crate) attempt_delay: Duration,
    /// Whether the peer wants no further subflows to its initial address (flag C).
    pub(crate) denies_initial: bool,
    /// Whether only the peer's initial address is of use now: the peer has announced the others, and it is not authenticated.
    pub(crate) is_initial_only: bool,
}

/// The result of a search for a further subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextJoin {
    /// Open this one now.
    Open(PathId, Remote),
    /// Open none now.
    Wait,
}

impl PathManager {
    /// Sets the addresses of the peer that the opener knows beforehand.
    pub(crate) fn set_remotes(&mut self, remotes: &[SocketAddr]) {
        self.looked_at = None;
        self.addresses.set_remotes(remotes);
    }

    /// Sets the addresses of the first subflow: id 0 on both sides.
    pub(crate) fn set_initial(&mut self, local: IpAddr, remote: SocketAddr) {
        self.looked_at = None;
        self.addresses.set_initial(local, remote);
    }

    /// The id of an address of ours.
    pub(crate) fn local_id(&mut self, address: IpAddr) -> u8 {
        self.addresses.local_id(address)
    }

    /// Stops: the connection is over.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.next_at = None;
    }

    /// Lets all pairs that failed be tried at once, because there is no subflow.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.looked_at = None;
        self.pairs.hurry(now);
    }

    pub(crate) fn on_joined(&mut self, path: PathId, remote: SocketAddr) {
        self.pairs.on_joined(path, remote);
        self.end_grace();
        self.note(Outcome::Answered(remote));
    }

    /// Handles a join that ended before it was complete.
    pub(crate) fn on_join_failed(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        self.on_lost(now, path, remote);
        // An address that the peer announces is not validated: other connections do not use the result of a join to it.
        if self.addresses.remotes().iter().any(|known| known.address == remote && known.announced.is_none()) {
            self.note(Outcome::Failed(path, remote.ip()));
        }
    }

    /// Notes that this host was absent until now, for so long that the peer may have given the connection up. What the paths say to that
    /// counts until `end`.
    pub(crate) fn begin_grace(&mut self, now: Instant, end: Instant, paths: &Paths) {
        let has_worked = |path: &&Path| self.pairs.has_worked(path.id);
        let asked = paths.iter().filter(has_worked).map(|path| path.id).collect();
        self.grace = Some(Grace { time: now..end, asked });
    }

    /// Notes that the peer still has the connection.
    pub(crate) fn end_grace(&mut self) {
        self.grace = None;
    }

    /// Notes that a join over this pair was answered by a reset.
    pub(crate) fn on_turned_away(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        self.pairs.on_turned_away(now, path, remote);
    }

    /// Whether the peer has forgotten the connection during an absence of this host: it has turned away joins over all paths on which
    /// there were subflows. A path that is down or just coming up has told nothing yet: an attacker on another one does not decide alone.
    pub(crate) fn is_forgotten(&self, now: Instant, paths: &Paths) -> bool {
        let Some(grace) = self.grace.as_ref().filter(|grace| grace.time.contains(&now)) else { return false };
        let initial = self.addresses.initial_remote();
        let is_turned_away = |path: PathId| self.pairs.is_turned_away_since(grace.time.start, path, initial);
        let mut asked = grace.asked.iter().copied().filter(|path| paths.get(*path).is_some()).peekable();
        asked.peek().is_some() && asked.all(is_turned_away)
    }

    /// Notes that a subflow over this pair works, or has worked.
    pub(crate) fn on_worked(&mut self, path: PathId, remote: SocketAddr) {
        self.pairs.on_worked(path, remote);
    }

    /// Handles the end of a subflow that worked.
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

    /// Takes the reports for the host.
    pub(crate) fn take_outcomes(&mut self) -> impl Iterator<Item = Outcome> {
        core::mem::take(&mut self.outcomes).into_iter()
    }

    pub(crate) fn on_lost(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.on_lost(now, path, remote);
    }

    /// Notes that bytes of a subflow over this pair did not arrive. After each time the pair is tried again later.
    pub(crate) fn on_interference(&mut self, path: PathId, remote: SocketAddr) {
        self.looked_at = None;
        self.pairs.on_interference(path, remote);
    }

    /// Notes that the peer has refused this pair.
    pub(crate) fn on_refused(&mut self, path: PathId, remote: SocketAddr, refusal: Refusal) {
        self.looked_at = None;
        self.pairs.on_refused(path, remote, refusal);
    }

    /// Delays the join that was due over this pair until `at`, as the host requires. Joins over other pairs do not wait for it.
    pub(crate) fn hold(&mut self, path: PathId, remote: SocketAddr, at: Instant) {
        self.looked_at = None;
        self.begun.retain(|&(known, _)| known != path);
        self.pairs.hold(path, remote, at);
    }

    /// Returns the further subflow to open next, in addition to those `present`, which have the ids `present_ids`. `has_failed` tells whether
    /// other connections have found that a path does not lead to an address.
    pub(crate) fn next_join<I: Iterator<Item = Present>>(
        &mut self,
        now: Instant,
        joining: Joining,
        present_ids: Option<PresentIds>,
        paths: &Paths,
        present: impl Fn() -> I,
        has_failed: impl Fn(PathId, IpAddr) -> bool,
    ) -> NextJoin {
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

    /// Notes that no further subflow is wanted now.
    pub(crate) fn rest(&mut self) {
        self.next_at = None;
        self.looked_at = None;
    }

    /// Returns when a further subflow may be opened.
    pub(crate) fn join_deadline(&self) -> Option<Instant> {
        self.next_at
    }

    /// Handles a change of the paths. Some may need an announcement. Earlier failures of a path no longer count if it has come up, or has
    /// other addresses now.
    pub(crate) fn on_paths_changed(&mut self, paths: &Paths) {
        self.is_settled = false;
        self.looked_at = None;
        for path in paths.iter().filter(|path| path.up) {
            if paths.renewal(path.id) != self.known_paths.renewal(path.id) {
                self.pairs.forget_path(path.id);
            }
        }
        self.known_paths = paths.clone();
    }

    /// Whether a path has come up or has other addresses since the last check.
    pub(crate) fn is_renewed(&self, path: PathId, paths: &Paths) -> bool {
        let has_checked = self.known_paths.iter().next().is_some();
        has_checked && paths.renewal(path) != self.known_paths.renewal(path)
    }

    /// Returns the paths at the last check.
    pub(crate) fn known_paths(&self) -> &Paths {
        &self.known_paths
    }

    /// Whether all current paths of ours were checked for announcements.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Selects the paths of ours to announce.
    pub(crate) fn settle(&mut self, paths: &Paths, is_opener: bool) {
        self.is_settled = true;
        if self.known_paths.iter().next().is_none() {
            self.known_paths = paths.clone();
        }
        let Some(initial) = self.addresses.initial_remote() else { return };
        for path in paths.iter().filter(|path| path.up && path.class != PathClass::Never) {
            let own = |path: &Path| [path.v4.map(IpAddr::V4), path.v6.map(IpAddr::V6)];
            // The device has the same address on the other paths over it, whatever carries the segments.
            if paths.twins(path).flat_map(own).flatten().any(|own| self.addresses.is_named(own)) {
                continue;
            }
            let v4 = path.v4.map(|own| (IpAddr::V4(own), IpAddr::V4(path.public_v4.unwrap_or(own))));
            let v6 = path.v6.map(|own| (IpAddr::V6(own), IpAddr::V6(path.public_v6.unwrap_or(own))));
            let (first, second) = if initial.is_ipv6() { (v6, v4) } else { (v4, v6) };
            // The opener may have a path without the address family of this connection, so the passive side announces both. The passive
            // side joins only if the opener has not joined by itself: one way per path is enough.
            let told = if is_opener { [first.or(second), None] } else { [first, second] };
            for (own, public) in told.into_iter().flatten() {
                self.addresses.announce(own, public);
            }
        }
    }

    /// Takes the announcement that is due, for an option or for a record of a sealed connection.
    pub(crate) fn take_announcement(&mut self, now: Instant, in_records: bool) -> Option<Announcement> {
        self.addresses.take_due(now, in_records)
    }

    /// Returns when the next announcement or withdrawal is due.
    pub(crate) fn announcement_deadline(&self, in_records: bool) -> Option<Instant> {
        self.addresses.deadline(in_records)
    }

    /// Handles the peer's echo of an announcement.
    pub(crate) fn on_echo(&mut self, echo: Announcement) {
        self.addresses.on_echo(echo);
    }

    /// Removes our address. Returns its id, if the peer may know it.
    pub(crate) fn forget_own(&mut self, own: IpAddr) -> Option<u8> {
        self.addresses.forget_own(own)
    }

    /// Whether the peer was told this address of ours, and not yet that it is gone.
    pub(crate) fn is_announced(&self, own: IpAddr) -> bool {
        self.addresses.is_announced(own)
    }

    /// Returns the announced addresses of ours that no path has any more.
    pub(crate) fn lost_addresses(&self, paths: &Paths) -> Vec<IpAddr> {
        self.addresses.lost(paths)
    }

    /// Queues the withdrawal of the address with this id.
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

    /// Stores an address that the peer has announced; at most `most` are kept.
    pub(crate) fn learn(&mut self, now: Instant, id: u8, address: SocketAddr, most: usize) -> Learned {
        self.looked_at = None;
        self.pairs.on_announced(now, address);
        self.addresses.learn(now, id, address, most)
    }

    /// Handles a withdrawal by the peer.
    pub(crate) fn forget_remote(&mut self, id: u8) {
        self.looked_at = None;
        self.addresses.forget_remote(id);
    }
}
