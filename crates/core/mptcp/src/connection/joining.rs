//! Further subflows: opens those that the path manager wants, and leaves those with a changed path.

use crate::log;
use core::net::IpAddr;
use plait_base::{Instant, PathId};
use plait_wire::ResetReason;

use crate::connection::handshake::SubflowOpening;
use crate::paths::{Joining, NextJoin, Outcome};
use crate::protection::Mode;
use crate::role::Role;
use crate::subflows::{Kind, ResetInfo, Stage, Subflow};
use crate::{Connection, Host, Joins, PathClass};

impl Connection {
    /// Opens the subflows that are missing and due.
    pub(crate) fn open_joins(&mut self, now: Instant, host: &mut dyn Host) {
        self.tell_outcomes(now, host);
        while self.may_join() && self.subflows.present() < usize::from(self.config.max_subflows) {
            let is_in_need = !self.subflows.has_good();
            let joining = Joining {
                wanted: self.joins(),
                is_opener: self.role == Role::Active,
                is_in_need,
                attempt_delay: self.config.attempt_delay,
                denies_initial: self.protection.denies_initial(),
                is_initial_only: self
                    .protection
                    .established()
                    .is_some_and(|established| established.holds_data() && !established.knows_peer()),
            };
            let subflows = &self.subflows;
            let present = || subflows.present_for_joins();
            let ids = subflows.present_ids();
            let has_failed = |path: PathId, remote: IpAddr| host.has_failed_lately(now, path, remote);
            let NextJoin::Open(id, remote) =
                self.paths.next_join(now, joining, ids, host.paths(), present, has_failed)
            else {
                return;
            };
            // The peer is at the initial address. At an announced address there may be another host.
            let peer = self.paths.initial_remote().unwrap_or(remote.address);
            if remote.address != peer
                && let Err(at) = host.claim_join(now, peer.ip(), remote.address)
            {
                self.paths.hold(id, remote.address, at);
                continue;
            }
            let Some(path) = host.paths().get(id).cloned() else { return };
            log::debug!(path = path.name, remote = %remote.address, "join begins");
            let kind = Kind::JoinActive { nonce: host.random().next_u32(), peer_nonce: None };
            let drops_data = host.drops_syn_data(now, path.id, remote.address.ip());
            let syn_data = self.data_of_syn(is_in_need, drops_data);
            let opening = SubflowOpening { kind, remote_address: remote.id, syn_data };
            if self.open_subflow(now, &path, remote.address, opening, host).is_none() {
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
            && self.joins() != Joins::None
            && !self.closing.is_over()
            && !(is_ending && self.subflows.has_good())
            && self.protection.is_confirmed()
    }

    /// Which further subflows this host opens.
    fn joins(&self) -> Joins {
        match self.role {
            Role::Active => self.config.joins,
            Role::Passive => self.config.passive_joins,
        }
    }

    /// Reports to the host which paths do not lead to the peer, for other connections. The success of a join does not show that a
    /// connection could be opened there.
    fn tell_outcomes(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.paths.has_outcomes() {
            return;
        }
        let peer = self.paths.initial_remote();
        let others_work = self.subflows.has_open();
        for outcome in self.paths.take_outcomes() {
            match outcome {
                Outcome::Answered(remote) => {
                    if let Some(peer) = peer.filter(|&peer| peer != remote) {
                        host.return_join(now, peer.ip(), remote);
                    }
                }
                Outcome::Failed(path, remote) if others_work => host.note_opening(now, path, remote, false),
                Outcome::Failed(..) => {}
            }
        }
    }

    /// Cancels joins that are no longer needed. The peer has answered on this subflow, so joins that wait for an answer over its path, and
    /// over paths of the same device, end. A preferred path that had its time first has failed, and the next join does not wait for it.
    pub(crate) fn cancel_slower(&mut self, now: Instant, index: usize) {
        if self.joins() != Joins::OnePerPath {
            return;
        }
        let (id, path) = (self.subflows[index].state.id(), self.subflows[index].state.path());
        for index in 0..self.subflows.len() {
            let state = &self.subflows[index].state;
            let waits = matches!((state.stage(), state.kind()), (Stage::Opening, Kind::JoinActive { .. }));
            let (other, remote) = (state.path(), state.tuple().remote);
            if state.id() == id || !waits || !self.paths.known_paths().is_same_device(other, path) {
                continue;
            }
            self.subflows.touch(index).cancel();
            if self.paths.known_paths().is_before(other, path) {
                self.paths.on_lost(now, other, remote);
            }
        }
    }

    /// Handles a stalled subflow that makes progress again. A join begun in parallel over its path is cancelled. If that join is complete,
    /// this subflow is closed.
    pub(crate) fn on_recovered(&mut self, now: Instant, index: usize) {
        if self.joins() != Joins::OnePerPath {
            return;
        }
        self.cancel_slower(now, index);
        let (id, path) = (self.subflows[index].state.id(), self.subflows[index].state.path());
        let is_in_its_place = |subflow: &Subflow| {
            subflow.state.id() != id
                && subflow.state.path() == path
                && subflow.state.is_ours()
                && subflow.is_good()
        };
        if self.subflows.iter().any(is_in_its_place) {
            self.outgoing.on_stalled(id, |_| false);
            self.subflows.touch(index).leave();
        }
    }

    /// Whether any path of the host that can be used concerns it, because it may join over that path or announce it. Other changes concern
    /// it only if it has a subflow there, if it has announced the address of the path ([`Connection::has_announced`]), or if the path
    /// shares its device with one that can be used.
    pub fn wants_paths(&self) -> bool {
        self.mode() == Mode::Multipath
            && !self.closing.is_over()
            && (self.joins() != Joins::None || self.config.announce)
    }

    /// Handles a change of the host's paths.
    pub(crate) fn follow_paths(&mut self, now: Instant, host: &dyn Host) {
        let is_renewed = |path: PathId| self.paths.is_renewed(path, host.paths());
        let renewed: Vec<_> =
            host.paths().iter().map(|path| path.id).filter(|path| is_renewed(*path)).collect();
        self.paths.on_paths_changed(host.paths());
        let mut lost_addresses = self.paths.lost_addresses(host.paths());
        for index in 0..self.subflows.len() {
            let state = &self.subflows[index].state;
            if !state.is_present() && self.mode() == Mode::Multipath {
                continue;
            }
            let local = state.tuple().local.ip();
            match host.paths().get(state.path()) {
                Some(path)
                    if path.up && path.class != PathClass::Never && path.local_for(local) == Some(local) =>
                {
                    let (class, backup) = (path.class, path.backup);
                    if self.leave_for_class(index, class) {
                        self.abandon(index);
                    } else {
                        self.change_path(now, index, backup);
                        self.resume_plain(now, index, &renewed);
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
    }

    /// Leaves a subflow with a path that is gone.
    fn abandon(&mut self, index: usize) {
        match self.mode() {
            // TCP survives the loss of a path if the path comes back in time. Other attempts to open the connection have paths of their
            // own.
            Mode::Plain(_) | Mode::Opening => {}
            Mode::Multipath => {
                let id = self.subflows[index].state.id();
                self.subflows.touch(index).reset(ResetInfo::for_now(ResetReason::Unspecified));
                self.outgoing.on_lost(id);
            }
        }
    }

    /// Lets plain TCP, whose only path has come back, go on at once. Its silence was that of the path.
    fn resume_plain(&mut self, now: Instant, index: usize, renewed: &[PathId]) {
        let is_plain = match self.mode() {
            Mode::Plain(_) => true,
            Mode::Opening | Mode::Multipath => false,
        };
        if is_plain && renewed.contains(&self.subflows[index].state.path()) {
            self.subflows.touch(index).resume(now);
            self.outgoing.resume(now);
        }
    }

    /// Applies the new backup role of a path.
    fn change_path(&mut self, now: Instant, index: usize, backup: bool) {
        let mode = self.mode();
        let subflow = self.subflows.touch(index);
        if subflow.state.set_backup(backup)
            && mode == Mode::Multipath
            && subflow.is_open()
            && !self.protection.prioritise(&subflow.state, backup)
        {
            subflow.say_priority();
            subflow.state.on_priority_said(now);
        }
    }
}
