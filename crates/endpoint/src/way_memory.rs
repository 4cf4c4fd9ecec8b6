//! Ways that have failed: which paths did not get something through lately, and whereto.

use core::net::IpAddr;
use plait_base::{Duration, Instant, PathId};
use std::collections::VecDeque;

/// How long it counts that a connection could not be opened. Whoever sits on a path costs one connection in so long a quarter of a
/// second or more; a path that is well again is back at its place after it.
const NO_OPENING: Duration = Duration::from_secs(180);
/// How long it counts that a SYN with data came to nothing. What drops them is a device on the way, and stays; one that was lost by
/// chance costs the joins of so long a round trip, where they are in need of it.
const NO_SYN_DATA: Duration = Duration::from_secs(3600);
/// Failures that are remembered; one more, and the oldest is forgotten.
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
    /// Of connections that could not be opened.
    pub(crate) const fn of_openings() -> Self {
        Self { lasts: NO_OPENING, failures: VecDeque::new() }
    }

    /// Of SYNs with data that came to nothing.
    pub(crate) const fn of_syn_data() -> Self {
        Self { lasts: NO_SYN_DATA, failures: VecDeque::new() }
    }

    /// Whether it failed lately over `path` to `remote`, while something else got through.
    pub(crate) fn has_failed(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.failures
            .iter()
            .any(|failure| (failure.path, failure.remote) == (path, remote) && now < failure.at + self.lasts)
    }

    /// Whether it got through this time.
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

    /// The path is new, or not what it was.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.failures.retain(|failure| failure.path != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

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
