//! Selection of the next pair to join: a path of ours and an address of the peer.

use core::net::IpAddr;
use plait_base::{Duration, Instant, PathId};

use super::pairs::Due;
use super::{Joining, PathManager, Remote};
use crate::{Path, PathClass, Paths};

/// Time that a passive side leaves to the opener to join an address first.
const PASSIVE_DELAY: Duration = Duration::from_secs(1);
/// Time for which a subflow stands still before another address is tried over its path.
const STALL_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which all subflows stand still before another subflow is opened between the same addresses.
const SAME_PAIR_PATIENCE: Duration = Duration::from_secs(3);
/// Least time between two such subflows: an attacker may let each new subflow through for a moment.
const SAME_PAIR_INTERVAL: Duration = Duration::from_secs(600);
/// Largest number of addresses tried over one path at a time.
const MAX_HANGING: usize = 4;
/// The same for a path that shares its device with another path, which needs room as well.
const MAX_HANGING_OF_TWINS: usize = 2;

/// Which further subflows a side opens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Joins {
    /// None.
    None,
    /// One over each path, to the address of the peer that answers there.
    #[default]
    OnePerPath,
    /// One for each pair of a path and an address of the peer.
    Mesh,
}

/// The properties of a subflow on which further subflows depend. A join of the peer counts once it is authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Present {
    pub(crate) path: PathId,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) standing: Standing,
}

/// Whether a subflow serves its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It makes progress.
    Well,
    /// It has made no progress since this moment.
    Stalled(Instant),
    /// It has no answer yet.
    Hanging,
}

/// A pair that may be joined from a given moment on.
struct Choice<R> {
    at: Instant,
    rank: R,
    path: PathId,
    remote: Remote,
}

impl PathManager {
    /// Returns the pair that is due first. Of the pairs that are due now, it is the one most likely to answer, then the one with the
    /// address to which the fewest others go.
    pub(super) fn first_due(
        &self,
        joining: Joining,
        paths: &Paths,
        present: &[Present],
        has_failed: impl Fn(PathId, IpAddr) -> bool,
    ) -> Option<(Instant, PathId, Remote)> {
        let mut best: Option<Choice<_>> = None;
        for path in paths.iter().filter(|path| path.up && path.class != PathClass::Never) {
            let Some(left) = self.left_by_twins(joining, path, paths, present, &has_failed) else { continue };
            let has_twin = paths.twins(path).next().is_some();
            let most = if has_twin { MAX_HANGING_OF_TWINS } else { MAX_HANGING };
            for (place, remote) in self.addresses.remotes().iter().enumerate() {
                let Some(free) = self.free_from(joining, path, most, remote, present) else { continue };
                let Due::At(at, failures) = self.pairs.due(path.id, remote.address) else { continue };
                let at = at.max(free).max(left).max(grace(joining, remote));
                let ip = remote.address.ip();
                let used = present.iter().filter(|one| one.remote == ip).count();
                let rank = (has_failed(path.id, ip), failures, used, place);
                let choice = Choice { at, rank, path: path.id, remote: *remote };
                if best.as_ref().is_none_or(|best| (choice.at, &choice.rank) < (best.at, &best.rank)) {
                    best = Some(choice);
                }
            }
        }
        best.map(|choice| (choice.at, choice.path, choice.remote))
    }

    /// Returns from when on a path is wanted in addition to the others over its device. It is not wanted while one of them works. A
    /// preferred path gets its time first.
    fn left_by_twins(
        &self,
        joining: Joining,
        path: &Path,
        paths: &Paths,
        present: &[Present],
        has_failed: impl Fn(PathId, IpAddr) -> bool,
    ) -> Option<Instant> {
        let mut left = Instant::ZERO;
        for twin in paths.twins(path) {
            let mut of_twin = present.iter().filter(|one| one.path == twin.id);
            if of_twin.clone().any(|one| one.standing == Standing::Well) {
                return None;
            }
            let is_preferred = twin.up && twin.class != PathClass::Never && paths.is_before(twin.id, path.id);
            let begun = self.begun.iter().find(|(known, _)| *known == twin.id).map(|&(_, at)| at);
            let has_failed_to = |remote: &Remote| {
                self.pairs.has_failed(twin.id, remote.address) || has_failed(twin.id, remote.address.ip())
            };
            let is_under_way = of_twin.clone().any(|one| one.standing == Standing::Hanging);
            let is_known_dead = !is_under_way && self.addresses.remotes().iter().all(has_failed_to);
            if !is_preferred || is_known_dead {
                continue;
            }
            left = left.max(match (begun, of_twin.next().map(|one| one.standing)) {
                (_, Some(Standing::Stalled(since))) => since + STALL_PATIENCE,
                (Some(begun), _) => begun + joining.attempt_delay,
                // This host has not begun a subflow there yet, or the peer has begun one.
                (None, Some(Standing::Hanging | Standing::Well) | None) => Instant::ZERO,
            });
        }
        Some(left)
    }

    /// Returns from when on there may be a subflow over `path` to `remote` in addition to those present. At most `most` of these may wait
    /// for an answer. Returns `None` if there may be none.
    fn free_from(
        &self,
        joining: Joining,
        path: &Path,
        most: usize,
        remote: &Remote,
        present: &[Present],
    ) -> Option<Instant> {
        if !may_be_joined(joining, remote) {
            return None;
        }
        let ip = remote.address.ip();
        let local = path.local_for(ip)?;
        let mut free = Instant::ZERO;
        for one in present.iter().filter(|one| (one.local, one.remote) == (local, ip)) {
            match one.standing {
                // A NAT, or an attacker that can forge segments of either side, may have ended it on one side only.
                Standing::Stalled(since) if joining.is_in_need => {
                    let again = self.pairs.begun_beside(path.id, remote.address);
                    let again = again.map_or(Instant::ZERO, |begun| begun + SAME_PAIR_INTERVAL);
                    free = free.max(since + SAME_PAIR_PATIENCE).max(again);
                }
                Standing::Stalled(_) | Standing::Well | Standing::Hanging => return None,
            }
        }
        match joining.wanted {
            Joins::None => None,
            Joins::Mesh => Some(free),
            Joins::OnePerPath => {
                Some(free.max(self.free_from_on_path(joining, path.id, most, remote, present)?))
            }
        }
    }

    /// The same for [`Joins::OnePerPath`]. No subflow of the path works, and the address that was tried last had enough time. An address
    /// that the peer has announced since then is tried at once.
    fn free_from_on_path(
        &self,
        joining: Joining,
        path: PathId,
        most: usize,
        remote: &Remote,
        present: &[Present],
    ) -> Option<Instant> {
        let (mut free, mut hanging) = (Instant::ZERO, 0);
        // The other side knows a path of the opener by its address.
        let is_same = |one: &&Present| {
            if joining.is_opener { one.path == path } else { one.remote == remote.address.ip() }
        };
        for one in present.iter().filter(is_same) {
            match one.standing {
                Standing::Well => return None,
                Standing::Stalled(since) => free = free.max(since + STALL_PATIENCE),
                Standing::Hanging => hanging += 1,
            }
        }
        let begun = self.begun.iter().find(|(known, _)| *known == path).map(|&(_, at)| at);
        match begun.filter(|_| hanging > 0) {
            Some(_) if hanging >= most => None,
            Some(begun) if remote.announced.is_none_or(|announced| announced < begun) => {
                Some(free.max(begun + joining.attempt_delay))
            }
            Some(_) | None => Some(free),
        }
    }
}

fn may_be_joined(joining: Joining, remote: &Remote) -> bool {
    (joining.is_opener || remote.announced.is_some())
        && !(joining.denies_initial && remote.id == Some(0))
        && !(joining.is_initial_only && remote.id != Some(0))
        && (!remote.is_withdrawn || joining.is_in_need)
}

/// Returns how long the opener may join this address first.
fn grace(joining: Joining, remote: &Remote) -> Instant {
    match remote.announced {
        Some(announced) if !joining.is_opener => announced + PASSIVE_DELAY,
        Some(_) | None => Instant::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::NextJoin;
    use core::net::{Ipv4Addr, SocketAddr};

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const NOW: Instant = Instant::from_millis(10_000);

    fn own(path: PathId) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, path.0)
    }

    fn remote(number: u8) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(198, 51, 100, number), 443))
    }

    fn two_paths() -> Paths {
        let mut paths = Paths::default();
        for id in [A, B] {
            let v4 = Some(own(id));
            let (v6, public_v4, public_v6) = (None, None, None);
            let (name, class, mtu) = (String::new(), PathClass::Trusted, 1500);
            paths.insert(Path {
                id,
                name,
                network: None,
                class,
                backup: false,
                v4,
                v6,
                public_v4,
                public_v6,
                mtu,
                up: true,
                datagrams: false,
            });
        }
        paths
    }

    fn opener(wanted: Joins) -> Joining {
        Joining {
            wanted,
            is_opener: true,
            is_in_need: false,
            attempt_delay: Duration::from_millis(250),
            denies_initial: false,
            is_initial_only: false,
        }
    }

    fn present(path: PathId, number: u8, standing: Standing) -> Present {
        Present { path, local: own(path).into(), remote: remote(number).ip(), standing }
    }

    fn begun_to(remotes: &[SocketAddr]) -> PathManager {
        let mut manager = PathManager::default();
        manager.set_remotes(remotes);
        manager.set_initial(own(A).into(), remotes[0]);
        manager
    }

    fn due(
        manager: &PathManager,
        joining: Joining,
        present: &[Present],
    ) -> Option<(Instant, PathId, SocketAddr)> {
        let due = manager.first_due(joining, &two_paths(), present, |_, _| false);
        due.map(|(at, path, remote)| (at, path, remote.address))
    }

    #[test]
    fn each_path_goes_to_an_address_of_its_own_if_it_can() {
        let manager = begun_to(&[remote(1), remote(2)]);
        let first = present(A, 1, Standing::Well);
        let next = due(&manager, opener(Joins::OnePerPath), &[first]);
        assert_eq!(next, Some((Instant::ZERO, B, remote(2))));
        let both = [first, present(B, 2, Standing::Well)];
        assert_eq!(due(&manager, opener(Joins::OnePerPath), &both), None);
        assert_eq!(due(&manager, opener(Joins::Mesh), &both), Some((Instant::ZERO, B, remote(1))));
        assert_eq!(due(&manager, opener(Joins::None), &[first]), None);
    }

    #[test]
    fn a_join_that_the_host_delays_holds_up_no_join_over_another_pair() {
        let mut manager = begun_to(&[remote(1), remote(2)]);
        for path in [A, B] {
            manager.on_lost(NOW, path, remote(1));
        }
        let joining = Joining { is_in_need: true, ..opener(Joins::OnePerPath) };
        let now = NOW + Duration::from_secs(2);
        let next = |manager: &mut PathManager| {
            let ids = Some(crate::paths::PresentIds::new());
            match manager.next_join(now, joining, ids, &two_paths(), std::iter::empty, |_, _| false) {
                NextJoin::Open(path, remote) => Some((path, remote.address)),
                NextJoin::Wait => None,
            }
        };
        for path in [A, B] {
            assert_eq!(next(&mut manager), Some((path, remote(2))), "never tried, so it is due first");
            manager.hold(path, remote(2), now + Duration::from_secs(1));
        }
        assert_eq!(next(&mut manager), Some((A, remote(1))));
    }

    #[test]
    fn the_next_address_is_tried_beside_one_that_hangs() {
        let mut manager = begun_to(&[1, 2, 3, 4, 5, 6].map(remote));
        manager.begun = vec![(B, NOW)];
        let mut there = vec![present(A, 1, Standing::Well), present(B, 2, Standing::Hanging)];
        let next = due(&manager, opener(Joins::OnePerPath), &there);
        assert_eq!(next, Some((NOW + Duration::from_millis(250), B, remote(3))));
        there.extend([3, 4, 5].map(|number| present(B, number, Standing::Hanging)));
        assert_eq!(due(&manager, opener(Joins::OnePerPath), &there), None, "four at a time are enough");
    }

    #[test]
    fn an_address_that_is_announced_while_another_hangs_is_tried_at_once() {
        let mut manager = begun_to(&[remote(1)]);
        manager.begun = vec![(B, NOW)];
        manager.learn(NOW + Duration::from_millis(1), 1, remote(2), 8);
        let there = [present(A, 1, Standing::Well), present(B, 1, Standing::Hanging)];
        let next = due(&manager, opener(Joins::OnePerPath), &there);
        assert_eq!(next, Some((Instant::ZERO, B, remote(2))));
    }

    #[test]
    fn what_other_connections_have_found_dead_is_tried_last() {
        let manager = begun_to(&[remote(1), remote(2)]);
        let there = [present(A, 1, Standing::Well)];
        let has_failed = |path, ip| (path, ip) == (B, remote(2).ip());
        let next = manager.first_due(opener(Joins::OnePerPath), &two_paths(), &there, has_failed);
        assert_eq!(next.map(|(_, path, remote)| (path, remote.address)), Some((B, remote(1))));
    }

    #[test]
    fn a_path_whose_subflow_stands_still_is_given_another() {
        let manager = begun_to(&[remote(1), remote(2)]);
        let there = [present(A, 1, Standing::Stalled(NOW)), present(B, 2, Standing::Well)];
        let next = due(&manager, opener(Joins::OnePerPath), &there);
        assert_eq!(next, Some((NOW + STALL_PATIENCE, A, remote(2))));
    }

    /// Two paths over one device by two carriers, and a path over another device.
    fn twins() -> Paths {
        let mut paths = two_paths();
        for (id, name) in [(A, "one"), (B, "two"), (C, "one")] {
            let path =
                Path { id, name: name.to_owned(), v4: Some(own(id)), ..paths.get(A).expect("there").clone() };
            paths.insert(path);
        }
        paths
    }

    const C: PathId = PathId(2);

    #[test]
    fn a_device_that_two_carriers_serve_needs_one_subflow() {
        let manager = begun_to(&[remote(1)]);
        let due = |there: &[Present]| {
            let due = manager.first_due(opener(Joins::OnePerPath), &twins(), there, |_, _| false);
            due.map(|(at, path, _)| (at, path))
        };
        let by = |path| present(path, 1, Standing::Well);
        assert_eq!(due(&[by(A)]), Some((Instant::ZERO, B)));
        assert_eq!(due(&[by(A), by(B)]), None);
        assert_eq!(due(&[by(C), by(B)]), None, "nor the preferred one beside the other");
    }

    #[test]
    fn the_second_carrier_of_a_device_is_tried_where_the_first_fails_hangs_or_stands_still() {
        let mut manager = begun_to(&[remote(1)]);
        let due = |manager: &PathManager, there: &[Present], has_failed: bool| {
            let failed = |path, _| has_failed && path == A;
            let due = manager.first_due(opener(Joins::OnePerPath), &twins(), there, failed);
            due.map(|(at, path, _)| (at, path))
        };
        let other = present(B, 1, Standing::Well);
        assert_eq!(due(&manager, &[other], false), Some((Instant::ZERO, A)), "the first has its time");
        assert_eq!(due(&manager, &[other], true), Some((Instant::ZERO, C)), "unless it is known not to work");
        manager.begun = vec![(A, NOW)];
        let hanging = present(A, 1, Standing::Hanging);
        let after = NOW + Duration::from_millis(250);
        assert_eq!(due(&manager, &[other, hanging], false), Some((after, C)));
        let stalled = present(A, 1, Standing::Stalled(NOW));
        assert_eq!(due(&manager, &[other, stalled], false), Some((NOW + STALL_PATIENCE, C)));
        manager.on_lost(NOW, A, remote(1));
        assert_eq!(due(&manager, &[other], false), Some((Instant::ZERO, C)));
    }

    #[test]
    fn addresses_that_hang_over_one_carrier_leave_room_for_the_other() {
        let mut manager = begun_to(&[1, 2, 3, 4].map(remote));
        manager.begun = vec![(A, NOW)];
        let hanging = |number| present(A, number, Standing::Hanging);
        let there = [present(B, 1, Standing::Well), hanging(2), hanging(3)];
        let due = manager.first_due(opener(Joins::OnePerPath), &twins(), &there, |_, _| false);
        assert_eq!(due.map(|(at, path, _)| (at, path)), Some((NOW + Duration::from_millis(250), C)));
    }
}
