//! Changes of the paths while a connection is being opened.
//!
//! A SYN without an answer waits longer and longer, and its address may be gone. A path that comes, or comes back, is therefore a new way,
//! which is tried at once.

use plait_base::Instant;

use super::active_open::ActiveOpen;
use super::attempt::Attempt;
use super::ways::{Target, ways};
use crate::status::{AttemptOutcome, AttemptStage};
use crate::{Host, PathClass};

/// Largest number of attempts of an opening. A path that comes and goes without end must not prolong the opening without end.
const MAX_ATTEMPTS: usize = 256;

impl ActiveOpen {
    /// Finds the new ways, and gives up attempts over paths that have gone or were renewed. Without another way an attempt over a path that
    /// has gone stays: TCP survives the loss of a path that comes back. Ways that were never tried come before renewed ones: a network that
    /// changes the addresses of its path again and again keeps no other path from being tried.
    pub(super) fn follow_paths(&mut self, now: Instant, host: &dyn Host) {
        if self.chosen.is_some() {
            return;
        }
        self.find_ways(now, host);
        let is_other = |attempt: &Attempt| attempt.is_running() && !attempt.is_path_gone(host);
        let has_other = !self.waiting.is_empty() || self.attempts.iter().any(is_other);
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.is_early()) {
            if self.waiting.contains(&attempt.way) || (has_other && attempt.is_path_gone(host)) {
                attempt.connection.abort(now);
                attempt.end(now, AttemptOutcome::PathLost);
            }
        }
    }

    /// Adds the ways that are there now and were not tried since their path was renewed to those that wait, best first.
    fn find_ways(&mut self, now: Instant, host: &dyn Host) {
        if self.attempts.len() >= MAX_ATTEMPTS {
            return;
        }
        let is_tried = |way: &Target| {
            let is_same = |attempt: &Attempt| attempt.renewal == host.paths().renewal(way.path);
            let is_joinable =
                |attempt: &Attempt| attempt.is_running() && !attempt.is_early() && attempt.has_subflow();
            let mut of_way = self.attempts.iter().filter(|attempt| attempt.way == *way);
            of_way.any(|attempt| is_same(attempt) || is_joinable(attempt))
        };
        let mut found = ways(now, &self.config, &self.remotes, host);
        found.retain(|way| self.waiting.contains(way) || !is_tried(way));
        found.make_contiguous().sort_by_key(|way| self.attempts.iter().any(|attempt| attempt.way == *way));
        self.waiting = found;
    }
}

impl Attempt {
    /// Whether it can still be replaced by another one. After the handshake it can be joined over another path, and the peer may have
    /// claimed it.
    fn is_early(&self) -> bool {
        self.is_running() && self.stage < AttemptStage::Authenticated
    }

    /// Whether a subflow of it is left. If its last flight was lost with the last one, the peer has no keys, and refuses each join.
    fn has_subflow(&self) -> bool {
        self.connection.closing.no_subflow_since().is_none()
    }

    /// Whether its path cannot be used any more, or has another address.
    fn is_path_gone(&self, host: &dyn Host) -> bool {
        !host.paths().get(self.way.path).is_some_and(|path| {
            let local = path.local_for(self.way.remote.ip());
            path.up && path.class != PathClass::Never && local == self.local_address()
        })
    }
}
