//! Which further subflows are opened: a full mesh of our paths and the peer's addresses.
//!
//! The opener of the connection opens them, to all addresses it knows. The other side opens only to addresses
//! that were announced to it, and a little later, so that a pair is not joined from both ends at once. A pair
//! that failed or was lost is tried again with growing distance.

use base::{Duration, Instant, PathId};
use core::net::SocketAddr;
use wire::ResetReason;

use crate::connection::Role;
use crate::connection::addresses::Remote;
use crate::protection::Mode;
use crate::subflows::flow::{Control, Kind, ResetInfo};
use crate::{Connection, Host, Path, PathClass};

const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(60);
/// The passive side leaves the opener so much time.
const PASSIVE_DELAY: Duration = Duration::from_secs(1);
/// Pairs whose failures are remembered; beyond that the oldest is forgotten.
const MAX_PAIRS: usize = 64;

/// What is remembered about pairs of path and address.
#[derive(Debug, Default)]
pub(crate) struct Mesh {
    pairs: Vec<Pair>,
    /// When a pair can be tried again; `None` if none waits.
    next_at: Option<Instant>,
    is_stopped: bool,
}

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

impl Mesh {
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.next_at = None;
    }

    /// All that failed may be tried at once: there is nothing to lose.
    pub(crate) fn hurry(&mut self, now: Instant) {
        for pair in &mut self.pairs {
            if pair.failures <= 1 {
                pair.at = now;
            }
            pair.is_refused = false;
        }
    }

    pub(crate) fn on_joined(&mut self, path: PathId, remote: SocketAddr) {
        if let Some(pair) = self.find(path, remote) {
            // The distance shrinks only slowly: a path that breaks again soon is not tried every second.
            pair.failures = pair.failures.saturating_sub(1);
        }
    }

    pub(crate) fn on_lost(&mut self, now: Instant, path: PathId, remote: SocketAddr) {
        let pair = self.entry(path, remote);
        let wait = FIRST_BACK_OFF * 2u32.pow(u32::from(pair.failures.min(6)));
        pair.failures = pair.failures.saturating_add(1);
        pair.at = now + wait.min(MAX_BACK_OFF);
    }

    /// The peer has reset a subflow and said why.
    pub(crate) fn on_reset(&mut self, path: PathId, remote: SocketAddr, reason: Option<ResetReason>) {
        match reason {
            Some(ResetReason::Prohibited) => self.entry(path, remote).is_refused = true,
            Some(
                ResetReason::Unspecified
                | ResetReason::Mptcp
                | ResetReason::LackOfResources
                | ResetReason::TooMuchOutstanding
                | ResetReason::UnacceptablePerformance
                | ResetReason::MiddleboxInterference
                | ResetReason::Other(_),
            )
            | None => {}
        }
    }

    pub(crate) fn forget_remote(&mut self, remote: SocketAddr) {
        self.pairs.retain(|pair| pair.remote != remote);
    }

    /// A path has come up: what was against it before no longer counts.
    fn forget_path(&mut self, path: PathId) {
        self.pairs.retain(|pair| pair.path != path);
    }

    fn find(&mut self, path: PathId, remote: SocketAddr) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.path == path && pair.remote == remote)
    }

    fn entry(&mut self, path: PathId, remote: SocketAddr) -> &mut Pair {
        let at = self.pairs.iter().position(|pair| pair.path == path && pair.remote == remote);
        let at = at.unwrap_or_else(|| {
            if self.pairs.len() >= MAX_PAIRS {
                self.pairs.remove(0);
            }
            self.pairs.push(Pair { path, remote, failures: 0, at: Instant::ZERO, is_refused: false });
            self.pairs.len() - 1
        });
        &mut self.pairs[at]
    }
}

impl Connection {
    /// Opens the subflows that are missing and due.
    pub(crate) fn open_joins(&mut self, now: Instant, host: &mut dyn Host) {
        self.mesh.next_at = None;
        while self.may_join() && self.present_flows() < usize::from(self.config.max_subflows) {
            let Some((at, path, remote)) = self.next_pair(host) else { return };
            if at > now {
                self.mesh.next_at = Some(at);
                return;
            }
            let Some(path) = host.paths().get(path).cloned() else { return };
            let kind = Kind::JoinActive { nonce: host.random().next_u32(), peer_nonce: None };
            if self.open_flow(now, &path, remote.address, (kind, remote.id), host).is_none() {
                self.mesh.on_lost(now, path.id, remote.address);
            }
        }
    }

    pub(crate) fn mesh_deadline(&self) -> Option<Instant> {
        self.mesh.next_at.filter(|_| !self.life.is_over())
    }

    fn may_join(&self) -> bool {
        // Neither side has anything left that another subflow could carry.
        let is_ending = self.outgoing.fin().is_some() && self.incoming.is_finished();
        self.mode() == Mode::Multipath
            && self.config.full_mesh
            && !self.life.is_over()
            && !self.mesh.is_stopped
            && !(is_ending && self.flows.iter().any(crate::subflows::flow::Flow::is_good))
            && self.protection.is_confirmed()
    }

    /// The pair of path and address without a subflow that may be tried first, and when.
    fn next_pair(&self, host: &dyn Host) -> Option<(Instant, PathId, Remote)> {
        let denies_initial = self.protection.session().is_some_and(|session| session.denies_initial_address);
        let is_ours_to_open = |remote: &&Remote| {
            (self.role == Role::Active || remote.announced.is_some())
                && !(denies_initial && remote.id == Some(0))
        };
        let mut first: Option<(Instant, PathId, Remote)> = None;
        for remote in self.addresses.remote.iter().filter(is_ours_to_open) {
            for path in host.paths().iter().filter(|path| path.up && path.class != PathClass::Never) {
                if !self.is_missing(path, remote.address) {
                    continue;
                }
                let Some(at) = self.pair_is_due(path.id, remote.address) else { continue };
                if first.is_none_or(|(earliest, _, _)| at < earliest) {
                    first = Some((at, path.id, *remote));
                }
            }
        }
        first
    }

    /// Whether path and address could be joined and are not.
    fn is_missing(&self, path: &Path, remote: SocketAddr) -> bool {
        path.local_for(remote.ip()).is_some_and(|local| {
            !self.flows.iter().any(|flow| {
                let tuple = &flow.state.tuple;
                flow.state.is_present() && tuple.local.ip() == local && tuple.remote.ip() == remote.ip()
            })
        })
    }

    /// When this pair may be tried; `None` for never.
    fn pair_is_due(&self, path: PathId, remote: SocketAddr) -> Option<Instant> {
        let delay = |announced: Instant| match self.role {
            Role::Active => Instant::ZERO,
            Role::Passive => announced + PASSIVE_DELAY,
        };
        let known = self.addresses.remote.iter().find(|known| known.address == remote);
        let grace = known.and_then(|known| known.announced).map_or(Instant::ZERO, delay);
        let pair = self.mesh.pairs.iter().find(|pair| pair.path == path && pair.remote == remote);
        match pair {
            Some(pair) if pair.is_refused => None,
            Some(pair) => Some(pair.at.max(grace)),
            None => Some(grace),
        }
    }

    /// The paths are not what they were.
    pub(crate) fn follow_paths(&mut self, host: &dyn Host) {
        self.unsettle_addresses();
        let mut lost_addresses = Vec::new();
        for index in 0..self.flows.len() {
            let state = &self.flows[index].state;
            if !state.is_present() && self.mode() == Mode::Multipath {
                continue;
            }
            let local = state.tuple.local.ip();
            match host.paths().get(state.path) {
                Some(path)
                    if path.up && path.class != PathClass::Never && path.local_for(local) == Some(local) =>
                {
                    let (class, backup) = (path.class, path.backup);
                    if self.leave_for_class(index, class) {
                        self.abandon(index);
                    } else {
                        self.change_path(index, backup);
                    }
                }
                Some(_) | None => {
                    if !lost_addresses.contains(&local) {
                        lost_addresses.push(local);
                    }
                    self.abandon(index);
                }
            }
        }
        for address in lost_addresses {
            self.withdraw(address);
        }
        let up: Vec<_> = host.paths().iter().filter(|path| path.up).map(|path| path.id).collect();
        for path in up {
            if !self.flows.iter().any(|flow| flow.state.path == path && flow.state.is_present()) {
                self.mesh.forget_path(path);
            }
        }
    }

    /// The path of this subflow is gone.
    fn abandon(&mut self, index: usize) {
        match self.mode() {
            // TCP outlives the loss of a path, should it come back in time. Other attempts to open the connection have
            // paths of their own.
            Mode::Plain(_) | Mode::Opening => {}
            Mode::Multipath => {
                let id = self.flows[index].state.id;
                self.flows[index].reset(ResetInfo::for_now(ResetReason::Unspecified));
                self.outgoing.on_lost(id);
            }
        }
    }

    /// Its role may have changed.
    fn change_path(&mut self, index: usize, backup: bool) {
        let mode = self.mode();
        let flow = &mut self.flows[index];
        if core::mem::replace(&mut flow.state.backup_ours, backup) != backup
            && mode == Mode::Multipath
            && flow.is_open()
            && !self.protection.prioritise(&flow.state, backup)
        {
            flow.state.signal(Control::Prio { backup });
            flow.tcp.request_ack();
        }
    }
}
