//! The first subflow is raced: when one path does not answer, another is tried beside it.

use base::{Instant, PathId};
use core::net::SocketAddr;
use std::collections::VecDeque;
use tcp::Closed;

use crate::flow::{Kind, Parting, Stage};
use crate::{Connection, ConnectionError, Host, Path, PathClass};

/// What has not been tried yet.
#[derive(Debug, Default)]
pub(crate) struct Race {
    waiting: VecDeque<(PathId, SocketAddr)>,
    next_at: Option<Instant>,
    /// A runner was refused: when the others must have answered.
    refused_until: Option<Instant>,
}

impl Connection {
    /// Lines up all ways to the peer and starts on the first.
    pub(crate) fn start_race(
        &mut self,
        now: Instant,
        remotes: &[SocketAddr],
        first: Option<PathId>,
        host: &mut dyn Host,
    ) {
        let mut paths: Vec<_> =
            host.paths().iter().filter(|path| path.up && self.may_open_over(path, &*host)).collect();
        // Stable: the order of preference stays, backups run last.
        paths.sort_by_key(|path| (Some(path.id) != first, path.backup));
        let mut ways = Vec::new();
        for (row, path) in paths.iter().enumerate() {
            for (column, &remote) in remotes.iter().enumerate() {
                if path.local_for(remote.ip()).is_some() {
                    // Diagonally: the next way should differ from the last at both ends.
                    ways.push((row.abs_diff(column), row, path.id, remote));
                }
            }
        }
        ways.sort_by_key(|&(distance, row, _, _)| (distance, row));
        self.race.waiting = ways.into_iter().map(|(_, _, path, remote)| (path, remote)).collect();
        self.start_runner(now, host);
        if self.flows.is_empty() {
            let is_usable = |path: &Path| path.up && path.class != PathClass::Never;
            let reachable = |path: &Path| remotes.iter().any(|remote| path.local_for(remote.ip()).is_some());
            let only_untrusted = host.paths().iter().any(|path| is_usable(path) && reachable(path));
            self.fail(if only_untrusted {
                ConnectionError::NoTrustedPath
            } else {
                ConnectionError::Unreachable
            });
        }
    }

    pub(crate) fn run_race(&mut self, now: Instant, host: &mut dyn Host) {
        if self.race.next_at.is_some_and(|at| at <= now) {
            self.start_runner(now, host);
        }
        if self.race.waiting.is_empty() && self.race.refused_until.is_some_and(|at| at <= now) {
            self.protection.explain_refusal();
            self.fail(ConnectionError::Refused);
        }
    }

    pub(crate) fn race_deadline(&self) -> Option<Instant> {
        let last_chance = self.race.refused_until.filter(|_| self.race.waiting.is_empty());
        [self.race.next_at, last_chance].into_iter().flatten().min()
    }

    /// One more way is tried, if there is one.
    fn start_runner(&mut self, now: Instant, host: &mut dyn Host) {
        self.race.next_at = None;
        while let Some((id, remote)) = self.race.waiting.pop_front() {
            let path = host.paths().get(id).filter(|path| path.up && self.may_open_over(path, &*host));
            let Some(path) = path.cloned() else { continue };
            if self.open_flow(now, &path, remote, (Kind::FirstActive, Some(0)), host).is_some() {
                if self.race.refused_until.is_some() {
                    self.race.refused_until = Some(now + self.config.refused_patience);
                }
                break;
            }
        }
        if !self.race.waiting.is_empty() && self.present_flows() < usize::from(self.config.max_subflows) {
            self.race.next_at = Some(now + self.config.race_after);
        }
    }

    /// This one has answered: the others are let go.
    pub(crate) fn win_race(&mut self, winner: usize) {
        self.race.waiting.clear();
        self.race.next_at = None;
        self.race.refused_until = None;
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if index != winner && flow.state.stage == Stage::Opening {
                flow.reset(Parting::default());
            }
        }
    }

    /// One will not answer. A refusal may be a lie told on that path alone, so the others keep a chance; but not as long
    /// as where nobody has said anything.
    pub(crate) fn on_runner_lost(&mut self, now: Instant, why: Closed, host: &mut dyn Host) {
        // The race is over, and this one was let go.
        if self.flows.iter().any(|flow| flow.state.stage == Stage::Open) {
            return;
        }
        if why == Closed::Refused {
            self.race.refused_until = Some(now + self.config.refused_patience);
        }
        if !self.race.waiting.is_empty() {
            self.start_runner(now, host);
        }
        if self.flows.iter().any(|flow| flow.state.stage == Stage::Opening) {
            return;
        }
        let error = match why {
            _ if self.race.refused_until.is_some() => ConnectionError::Refused,
            Closed::Unreachable => ConnectionError::Unreachable,
            Closed::Refused | Closed::ResetByPeer => ConnectionError::Refused,
            Closed::TimedOut | Closed::Finished | Closed::Aborted => ConnectionError::TimedOut,
        };
        if error == ConnectionError::Refused {
            self.protection.explain_refusal();
        }
        self.fail(error);
    }
}
