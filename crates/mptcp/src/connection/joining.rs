//! Further subflows: which the path manager wants are opened, and those whose path has changed are left.

use crate::log;
use core::net::SocketAddr;
use plait_base::Instant;
use plait_wire::ResetReason;

use crate::paths::{Joining, NextJoin};
use crate::protection::Mode;
use crate::role::Role;
use crate::subflows::flow::{Control, Kind, ResetInfo};
use crate::{Connection, Host, Path, PathClass};

impl Connection {
    /// Opens the subflows that are missing and due.
    pub(crate) fn open_joins(&mut self, now: Instant, host: &mut dyn Host) {
        while self.may_join() && self.flows.present() < usize::from(self.config.max_subflows) {
            let joining = Joining {
                is_opener: self.role == Role::Active,
                denies_initial: self
                    .protection
                    .session()
                    .is_some_and(|session| session.denies_initial_address),
            };
            let flows = &self.flows;
            let is_missing = |path: &Path, remote: SocketAddr| flows.lacks(path, remote);
            let beside = (joining, flows.present_ids());
            let NextJoin::Open(id, remote) = self.paths.next_join(now, beside, host.paths(), is_missing)
            else {
                return;
            };
            let Some(path) = host.paths().get(id).cloned() else { return };
            log::debug!(path = path.name, remote = %remote.address, "join begins");
            let kind = Kind::JoinActive { nonce: host.random().next_u32(), peer_nonce: None };
            if self.open_flow(now, &path, remote.address, (kind, remote.id), host).is_none() {
                log::debug!(path = path.name, remote = %remote.address, "join cannot begin");
                self.paths.on_lost(now, id, remote.address);
            }
        }
        self.paths.rest();
    }

    pub(crate) fn join_deadline(&self) -> Option<Instant> {
        self.paths.join_deadline().filter(|_| !self.closing.is_over())
    }

    fn may_join(&self) -> bool {
        // Neither side has anything left that another subflow could carry.
        let is_ending = self.outgoing.fin().is_some() && self.incoming.is_finished();
        self.mode() == Mode::Multipath
            && self.config.full_mesh
            && !self.closing.is_over()
            && !(is_ending && self.flows.has_good())
            && self.protection.is_confirmed()
    }

    /// The paths are not what they were.
    pub(crate) fn follow_paths(&mut self, host: &dyn Host) {
        self.paths.on_paths_changed();
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
                self.paths.on_path_up(path);
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
