//! Ways that have failed: which paths did not get a connection open lately, and whereto.

use core::net::IpAddr;
use plait_base::{Duration, Instant, PathId};
use std::collections::VecDeque;

/// How long a failure counts. Whoever sits on a path costs one connection in so long a quarter of a second or more; a
/// path that is well again is back at its place after it.
const REMEMBERED: Duration = Duration::from_secs(180);
/// Failures that are remembered; one more, and the oldest is forgotten.
const MOST: usize = 256;

/// Failures, oldest first.
#[derive(Default)]
pub(crate) struct WayMemory(VecDeque<Failure>);

struct Failure {
    path: PathId,
    remote: IpAddr,
    at: Instant,
}

impl WayMemory {
    /// Whether a connection over `path` to `remote` could not be opened lately, while another path got through.
    pub(crate) fn has_failed(&self, now: Instant, path: PathId, remote: IpAddr) -> bool {
        self.0
            .iter()
            .any(|failure| (failure.path, failure.remote) == (path, remote) && now < failure.at + REMEMBERED)
    }

    /// Whether it could this time.
    pub(crate) fn note(&mut self, now: Instant, path: PathId, remote: IpAddr, got_through: bool) {
        self.0.retain(|failure| {
            (failure.path, failure.remote) != (path, remote) && now < failure.at + REMEMBERED
        });
        if !got_through {
            if self.0.len() >= MOST {
                self.0.pop_front();
            }
            self.0.push_back(Failure { path, remote, at: now });
        }
    }

    /// The path is new, or not what it was.
    pub(crate) fn forget(&mut self, path: PathId) {
        self.0.retain(|failure| failure.path != path);
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
        let mut memory = WayMemory::default();
        for path in [a, b] {
            memory.note(NOW, path, host(1), false);
        }
        assert!(memory.has_failed(NOW, a, host(1)) && !memory.has_failed(NOW, a, host(2)));
        assert!(!memory.has_failed(NOW + REMEMBERED, a, host(1)));
        memory.note(NOW, a, host(1), true);
        assert!(!memory.has_failed(NOW, a, host(1)) && memory.has_failed(NOW, b, host(1)));
        memory.forget(b);
        assert!(!memory.has_failed(NOW, b, host(1)));
    }

    #[test]
    fn only_so_many_failures_are_remembered() {
        let mut memory = WayMemory::default();
        (0..1000).for_each(|number| memory.note(NOW, PathId(0), host(number), false));
        assert_eq!(memory.0.len(), MOST);
        assert!(memory.has_failed(NOW, PathId(0), host(999)) && !memory.has_failed(NOW, PathId(0), host(0)));
    }
}
