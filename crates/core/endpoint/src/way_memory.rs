//! Recent failures of paths by address, and the instances of servers that were found there.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, PathId};
use plait_mptcp::Instance;
use std::collections::VecDeque;

/// How long a failed opening counts. An attacker on a path costs one connection in this time a quarter of a second or more. A path that
/// works again is back in its place after it.
const NO_OPENING: Duration = Duration::from_secs(180);
/// How long a failed SYN with data counts. A device on the path that drops such SYNs stays there. A chance loss costs the joins of this
/// time one round trip, if they need the data.
const NO_SYN_DATA: Duration = Duration::from_secs(3600);
/// Largest number of remembered failures. A further one replaces the oldest.
const MOST: usize = 256;

/// Failures, oldest first.
pub(crate) struct WayMemory {
    lasts: Duration,
    failures: VecDeque<Failure>,
}

struct Failure {
    path: PathId,
    remote: IpAddr,
    at: Instant,
}

impl WayMemory {
    /// Returns a memory for connections that could not be opened.
    pub(crate) const fn of_openings() -> Self {
        Self { lasts: NO_OPENING, failures: VecDeque::new() }
    }

    /// Returns a memory for SYNs with data that failed.
    pub(crate) const fn of_syn_data() -> Self {
        Self { lasts: NO_SYN_DATA, failures: VecDeque::new() }
    }

    /// Whether it failed recently over `path` to `remote` while something else succeeded.
    pub(crate) fn has_failed(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.failures
            .iter()
            .any(|failure| (failure.path, failure.remote) == (path, remote) && now < failure.at + self.lasts)
    }

    /// Notes whether it succeeded this time.
    pub(crate) fn note(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool) {
        let lasts = self.lasts;
        self.failures
            .retain(|failure| (failure.path, failure.remote) != (path, remote) && now < failure.at + lasts);
        if !got_through {
            if self.failures.len() >= MOST {
                self.failures.pop_front();
            }
            self.failures.push_back(Failure { path, remote, at: now });
        }
    }

    /// Drops the entries of a path that is new or has changed.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.failures.retain(|failure| failure.path != path);
    }
}

/// How long an instance of a server counts after it was found at an address. If two count, an opening there takes one more round trip. This
/// lasts for that time after a restart of the server, and always if several servers share an address.
const INSTANCE: Duration = Duration::from_secs(3600);

/// Instances of servers, the last found at the end.
#[derive(Default)]
pub(crate) struct InstanceMemory {
    found: VecDeque<Found>,
}

struct Found {
    remote: SocketAddr,
    instance: Instance,
    at: Instant,
}

impl InstanceMemory {
    /// Notes that this instance answers at `remote`. Two per address suffice to know that there are several.
    pub(crate) fn note(&mut self, now: Instant, remote: SocketAddr, instance: Instance) {
        let is_same = |found: &Found| (found.remote, found.instance) == (remote, instance);
        self.found.retain(|found| !is_same(found) && now < found.at + INSTANCE);
        let mut of_this = (0..self.found.len()).filter(|&at| self.found[at].remote == remote);
        if let (Some(oldest), Some(_)) = (of_this.next(), of_this.next()) {
            self.found.remove(oldest);
        } else if self.found.len() >= MOST {
            self.found.pop_front();
        }
        self.found.push_back(Found { remote, instance, at: now });
    }

    /// Whether more than one instance counts at these addresses, which belong to one server.
    pub(crate) fn has_several(&self, now: Instant, remotes: &[SocketAddr]) -> bool {
        let counts = |found: &&Found| remotes.contains(&found.remote) && now < found.at + INSTANCE;
        let mut instances = self.found.iter().filter(counts).map(|found| found.instance);
        let first = instances.next();
        instances.any(|instance| Some(instance) != first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn at(number: u32) -> SocketAddr {
        SocketAddr::new(host(number), 443)
    }

    fn run(number: u8) -> Instance {
        Instance::new([number; Instance::LEN])
    }

    #[test]
    fn several_instances_count_for_an_hour_at_the_addresses_of_one_server() {
        let mut memory = InstanceMemory::default();
        memory.note(NOW, at(1), run(1));
        memory.note(NOW, at(1), run(1));
        memory.note(NOW, at(2), run(2));
        assert!(!memory.has_several(NOW, &[at(1)]) && !memory.has_several(NOW, &[at(2)]));
        assert!(memory.has_several(NOW, &[at(1), at(2)]), "two hosts behind one name");
        memory.note(NOW, at(1), run(3));
        assert!(memory.has_several(NOW, &[at(1)]), "another run at the same address");
        let later = NOW + INSTANCE;
        memory.note(later, at(1), run(3));
        assert!(!memory.has_several(later, &[at(1)]), "an hour later it is the only one");
    }

    #[test]
    fn only_so_many_instances_are_remembered_two_for_an_address() {
        let mut memory = InstanceMemory::default();
        (0..=255).for_each(|number| memory.note(NOW, at(1), run(number)));
        assert_eq!(memory.found.len(), 2);
        (2..1000).for_each(|number| memory.note(NOW, at(number), run(1)));
        assert_eq!(memory.found.len(), MOST);
    }

    const NOW: Instant = Instant::from_millis(1000);

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_failure_counts_for_some_minutes_or_until_the_way_works_or_its_path_changes() {
        let (a, b) = (PathId(0), PathId(1));
        let mut memory = WayMemory::of_openings();
        for path in [a, b] {
            memory.note(NOW, path, host(1), false);
        }
        assert!(memory.has_failed(NOW, a, host(1)) && !memory.has_failed(NOW, a, host(2)));
        assert!(!memory.has_failed(NOW + NO_OPENING, a, host(1)));
        memory.note(NOW, a, host(1), true);
        assert!(!memory.has_failed(NOW, a, host(1)) && memory.has_failed(NOW, b, host(1)));
        memory.forget(b);
        assert!(!memory.has_failed(NOW, b, host(1)));
    }

    #[test]
    fn only_so_many_failures_are_remembered() {
        let mut memory = WayMemory::of_openings();
        (0..1000).for_each(|number| memory.note(NOW, PathId(0), host(number), false));
        assert_eq!(memory.failures.len(), MOST);
        assert!(memory.has_failed(NOW, PathId(0), host(999)) && !memory.has_failed(NOW, PathId(0), host(0)));
    }
}
