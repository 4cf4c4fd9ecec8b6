//! What is remembered about pairs of a path of ours and an address of the peer: a pair that failed or was lost is tried
//! again with growing distance.

use core::net::SocketAddr;
use plait_base::{Duration, Instant, PathId};

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(60);
/// Pairs whose failures are remembered; beyond that the oldest is forgotten.
const MAX_PAIRS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Pair {
    path: PathId,
    remote: SocketAddr,
    failures: u8,
    /// Not before.
    at: Instant,
    /// The peer said that it will always refuse.
    is_refused: bool,
}

/// Whether a pair may be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// From this moment on.
    At(Instant),
    /// The peer will always refuse it.
    Never,
}

/// Pairs that have failed.
#[derive(Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

impl Pairs {
    /// When this pair may be tried.
    pub(super) fn due(&self, path: PathId, remote: SocketAddr) -> Due {
        match self.0.iter().find(|pair| pair.path == path && pair.remote == remote) {
            Some(pair) if pair.is_refused => Due::Never,
            Some(pair) => Due::At(pair.at),
            None => Due::At(Instant::ZERO),
        }
    }

    /// All that failed may be tried at once: there is nothing to lose.
    pub(super) fn hurry(&mut self, now: Instant) {
        for pair in &mut self.0 {
            if pair.failures <= 1 {
                pair.at = now;
            }
            pair.is_refused = false;
        }
    }

    pub(super) fn on_joined(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.0.iter_mut().find(|pair| pair.path == path && pair.remote == remote) {
            // The distance shrinks only slowly: a path that breaks again soon is not tried every second.
            pair.failures = pair.failures.saturating_sub(1);
        }
    }

    pub(super) fn on_lost(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        let pair = self.entry(path, remote);
        let wait = FIRST_BACK_OFF * 2u32.pow(u32::from(pair.failures.min(6)));
        pair.failures = pair.failures.saturating_add(1);
        pair.at = now + wait.min(MAX_BACK_OFF);
    }

    /// What a subflow carried over this pair did not arrive. That a join gets through the next time says little about it.
    pub(super) fn on_interference(&mut self, path: PathId, remote: SocketAddr) {
        let pair = self.entry(path, remote);
        pair.failures = pair.failures.saturating_add(1);
    }

    pub(super) fn on_prohibited(&mut self, path: PathId, remote: SocketAddr) {
        self.entry(path, remote).is_refused = true;
    }

    pub(super) fn forget_remote(&mut self, remote: SocketAddr) {
        self.0.retain(|pair| pair.remote != remote);
    }

    pub(super) fn forget_path(&mut self, path: PathId) {
        self.0.retain(|pair| pair.path != path);
    }

    fn entry(&mut self, path: PathId, remote: SocketAddr) -> &mut Pair {
        let at = self.0.iter().position(|pair| pair.path == path && pair.remote == remote);
        let at = at.unwrap_or_else(|| {
            if self.0.len() >= MAX_PAIRS {
                self.0.remove(0);
            }
            self.0.push(Pair { path, remote, failures: 0, at: Instant::ZERO, is_refused: false });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}
