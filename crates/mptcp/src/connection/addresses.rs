//! Addresses and their ids: which of ours are announced, and which the peer has announced (RFC 8684,
//! section 3.4).

use base::{Duration, Instant};
use core::net::{IpAddr, SocketAddr};
use wire::AddAddr;

use crate::connection::Role;
use crate::protection::Mode;
use crate::protection::keys::{address_hmac, same};
use crate::protection::options::announcement;
use crate::protection::session::Session;
use crate::subflows::flow::{Control, ResetInfo};
use crate::{Connection, Host, Path, PathClass};

/// First interval of repeating an announcement that was not echoed; doubles.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Repetitions before it is given up.
const REPEATS: u8 = 4;
/// First interval of repeating a withdrawal; doubles. Nothing echoes a REMOVE_ADDR, and whoever has just lost a path
/// fills the queue of another.
const WITHDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Repetitions of a withdrawal.
const WITHDRAW_REPEATS: u8 = 3;
/// Most of our own addresses that are announced.
const MAX_ANNOUNCED: usize = 16;

/// Addresses of both sides.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Ours with their ids; the first subflow's has id 0.
    local: Vec<(IpAddr, u8)>,
    announced: Vec<Announced>,
    withdrawn: Vec<Withdrawn>,
    /// All paths of ours as they are now have been looked at for announcing.
    is_settled: bool,
    pub(crate) remote: Vec<Remote>,
}

/// An address of ours that the peer was told.
#[derive(Clone, Copy, Debug)]
struct Announced {
    id: u8,
    /// What was told: differs from ours behind a NAT.
    address: IpAddr,
    /// When to tell it again; `None` once it was echoed or given up.
    again: Option<Instant>,
    repeats: u8,
}

/// An address of ours that the peer is told to forget.
#[derive(Clone, Copy, Debug)]
struct Withdrawn {
    id: u8,
    /// When to say it, for the first time or once more.
    again: Instant,
    repeats: u8,
}

/// An address of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    /// Its id, if the peer has named it.
    pub(crate) id: Option<u8>,
    pub(crate) address: SocketAddr,
    /// It came by ADD_ADDR; known since then.
    pub(crate) announced: Option<Instant>,
}

impl Addresses {
    /// What the opener knows about the peer beforehand.
    pub(crate) fn set_remotes(&mut self, remotes: &[SocketAddr]) {
        self.remote = remotes.iter().map(|&address| Remote { id: None, address, announced: None }).collect();
    }

    /// The addresses of the first subflow: id 0 on both sides.
    pub(crate) fn set_initial(&mut self, local: IpAddr, remote: SocketAddr) {
        self.local = vec![(local, 0)];
        match self.remote.iter_mut().find(|known| known.address == remote) {
            Some(known) => known.id = Some(0),
            None => self.remote.insert(0, Remote { id: Some(0), address: remote, announced: None }),
        }
    }

    /// The id of an address of ours; counts up from 1.
    pub(crate) fn local_id(&mut self, address: IpAddr) -> u8 {
        if let Some(&(_, id)) = self.local.iter().find(|(known, _)| *known == address) {
            // It is back.
            self.withdrawn.retain(|withdrawn| withdrawn.id != id);
            return id;
        }
        // More than 255 addresses share the last id: REMOVE_ADDR for it closes too much, no harm is done.
        let id = self.local.last().map_or(0, |&(_, last)| last.saturating_add(1));
        self.local.push((address, id));
        id
    }

    /// The announcement to be sent next, if one is left. Sealed ones are records: none has to wait for another.
    fn next_to_tell(&self, is_sealed: bool) -> Option<(Instant, usize)> {
        let is_waited_for = |one: &Announced| one.again.is_some() && one.repeats == 1;
        let waits = !is_sealed && self.announced.iter().any(is_waited_for);
        let may_go = |one: &Announced| !waits || one.repeats > 0;
        let each = self.announced.iter().enumerate().filter(|(_, one)| may_go(one));
        each.filter_map(|(index, one)| Some((one.again?, index))).min()
    }

    /// The peer's address of the first subflow.
    fn initial_remote(&self) -> Option<SocketAddr> {
        self.remote.iter().find(|remote| remote.id == Some(0)).map(|remote| remote.address)
    }
}

impl Connection {
    /// Tells the peer about paths of ours that it does not know yet.
    pub(crate) fn announce_addresses(&mut self, host: &dyn Host) {
        if self.addresses.is_settled || !self.may_announce() {
            return;
        }
        self.addresses.is_settled = true;
        let Some(initial) = self.addresses.initial_remote() else { return };
        let paths: Vec<Path> =
            host.paths().iter().filter(|p| p.up && p.class != PathClass::Never).cloned().collect();
        for path in paths {
            let v4 = path.v4.map(|own| (IpAddr::V4(own), IpAddr::V4(path.public_v4.unwrap_or(own))));
            let v6 = path.v6.map(|own| (IpAddr::V6(own), IpAddr::V6(path.public_v6.unwrap_or(own))));
            let (first, second) = if initial.is_ipv6() { (v6, v4) } else { (v4, v6) };
            let told = match self.role {
                // The opener may have a path without the family of this connection: it is told both.
                Role::Passive => [first, second],
                // The other side joins where the opener has not joined by itself: one way per path is enough.
                Role::Active => [first.or(second), None],
            };
            for (own, public) in told.into_iter().flatten() {
                self.announce(own, public);
            }
        }
    }

    fn may_announce(&self) -> bool {
        let confirmed = self.protection.is_confirmed() || self.role == Role::Passive;
        self.config.announce && confirmed && self.mode() == Mode::Multipath && !self.life.is_over()
    }

    fn announce(&mut self, own: IpAddr, public: IpAddr) {
        let id = self.addresses.local_id(own);
        let is_known = id == 0 || self.addresses.announced.iter().any(|announced| announced.id == id);
        if is_known || self.addresses.announced.len() >= MAX_ANNOUNCED {
            return;
        }
        // The moment of repeating is set when it first could have gone out.
        self.addresses.announced.push(Announced {
            id,
            address: public,
            again: Some(Instant::ZERO),
            repeats: 0,
        });
    }

    /// Sends the announcement that is due: one after the other, because a peer that has not sent its echo for one has nowhere
    /// to note the next (Linux drops it). One without an echo does not hold up the others when it has been repeated.
    pub(crate) fn repeat_announcements(&mut self, now: Instant) {
        if self.mode() != Mode::Multipath || self.life.is_over() {
            return;
        }
        let Some(index) = self.flows.iter().position(crate::subflows::flow::Flow::is_good) else { return };
        self.repeat_withdrawals(now, index);
        let is_sealed = self.protection.is_sealed();
        while let Some((due, next)) = self.addresses.next_to_tell(is_sealed)
            && due <= now
        {
            let announced = &mut self.addresses.announced[next];
            let wait = REPEAT_INTERVAL * 2u32.pow(u32::from(announced.repeats));
            announced.again = (announced.repeats < REPEATS).then(|| now + wait);
            announced.repeats += 1;
            if self.protection.announce(announced.id, announced.address) {
                // A record arrives without being repeated.
                announced.again = None;
                continue;
            }
            let session = self.protection.session();
            if let Some(add) = session.and_then(|it| announcement(it, announced.id, announced.address))
                && self.flows[index].state.signal(Control::AddAddr(add))
            {
                self.flows[index].tcp.request_ack();
            }
        }
    }

    pub(crate) fn announcement_deadline(&self) -> Option<Instant> {
        if self.mode() != Mode::Multipath || !self.flows.iter().any(crate::subflows::flow::Flow::is_good) {
            return None;
        }
        let told = self.addresses.next_to_tell(self.protection.is_sealed()).map(|(due, _)| due);
        told.into_iter().chain(self.addresses.withdrawn.iter().map(|one| one.again)).min()
    }

    /// The peer announces an address, or echoes one of ours.
    pub(crate) fn on_add_addr(&mut self, now: Instant, index: usize, add: &AddAddr, host: &dyn Host) {
        if add.echo {
            let echoed = |announced: &&mut Announced| {
                announced.id == add.address_id && announced.address == add.address
            };
            if let Some(announced) = self.addresses.announced.iter_mut().find(echoed) {
                announced.again = None;
            }
            return;
        }
        if !self.is_genuine(add) {
            self.counters.bad_address_hmacs += 1;
            return;
        }
        if !self.learn_address(now, add.address_id, add.address, add.port, host) {
            return;
        }
        // The peer repeats it until it sees this.
        let echo = AddAddr { echo: true, hmac: None, ..*add };
        if self.flows[index].state.signal(Control::AddAddr(echo)) {
            self.flows[index].tcp.request_ack();
        }
    }

    /// Remembers an address of the peer that was proved to come from it; `false` if it is not kept.
    pub(crate) fn learn_address(
        &mut self,
        now: Instant,
        id: u8,
        address: IpAddr,
        port: Option<u16>,
        host: &dyn Host,
    ) -> bool {
        let Some(initial) = self.addresses.initial_remote() else { return false };
        let address = SocketAddr::new(address, port.unwrap_or(initial.port()));
        if !is_one_host(address) || host.paths().with_address(address.ip()).is_some() {
            self.counters.addresses_refused += 1;
            return false;
        }
        let room = self.addresses.remote.len() < usize::from(self.config.max_remote_addresses);
        let known = |remote: &&mut Remote| remote.id == Some(id) || remote.address == address;
        match self.addresses.remote.iter_mut().find(known) {
            // An id that is in use for another address has to be removed first (section 3.4.1).
            Some(remote) if remote.address == address => {
                remote.id = remote.id.or(Some(id));
                remote.announced = remote.announced.or(Some(now));
            }
            Some(_) => self.counters.addresses_refused += 1,
            None if room => {
                self.addresses.remote.push(Remote { id: Some(id), address, announced: Some(now) });
            }
            None => {
                self.counters.addresses_refused += 1;
                return false;
            }
        }
        true
    }

    fn is_genuine(&self, add: &AddAddr) -> bool {
        let (Some(session), Some(hmac)) = (self.protection.session(), add.hmac) else { return false };
        let Session { local, remote: Some(remote), .. } = session else { return false };
        let computed = address_hmac(remote, local, add.address_id, add.address, add.port);
        same(&computed, &hmac)
    }

    /// The peer has lost an address. Nobody has signed that: a subflow that is the last one stays, and shows
    /// by itself whether it still works.
    pub(crate) fn on_remove_addr(&mut self, id: u8) {
        self.addresses.remote.retain(|remote| remote.id != Some(id) || id == 0);
        for index in 0..self.flows.len() {
            let state = &self.flows[index].state;
            if state.remote_address != Some(id) || !state.is_present() {
                continue;
            }
            let own = state.id;
            let others = self.flows.iter().any(|flow| flow.state.id != own && flow.is_good());
            if !others {
                self.counters.removals_ignored += 1;
                continue;
            }
            self.mesh.forget_remote(self.flows[index].state.tuple.remote);
            if self.flows[index].is_open() {
                self.outgoing.on_stalled(own, |_| false);
                self.flows[index].leave();
            } else {
                self.flows[index].reset(ResetInfo::because(wire::ResetReason::Unspecified));
            }
        }
    }

    /// The paths are not what they were: some may have to be announced.
    pub(crate) fn unsettle_addresses(&mut self) {
        self.addresses.is_settled = false;
    }

    /// Tells the peer that an address of ours is gone.
    pub(crate) fn withdraw(&mut self, own: IpAddr) {
        let Some(&(_, id)) = self.addresses.local.iter().find(|(known, _)| *known == own) else { return };
        self.addresses.announced.retain(|announced| announced.id != id);
        if self.mode() != Mode::Multipath || self.protection.withdraw(id) {
            return;
        }
        self.addresses.withdrawn.retain(|withdrawn| withdrawn.id != id);
        // Said as soon as there is a subflow to say it on.
        self.addresses.withdrawn.push(Withdrawn { id, again: Instant::ZERO, repeats: 0 });
    }

    /// Sends the withdrawals that are due on the subflow at `index`.
    fn repeat_withdrawals(&mut self, now: Instant, index: usize) {
        for withdrawn in self.addresses.withdrawn.iter_mut().filter(|one| one.again <= now) {
            withdrawn.again = now + WITHDRAW_INTERVAL * 2u32.pow(u32::from(withdrawn.repeats));
            withdrawn.repeats += 1;
            if self.flows[index].state.signal(Control::RemoveAddr(withdrawn.id)) {
                self.flows[index].tcp.request_ack();
            }
        }
        self.addresses.withdrawn.retain(|withdrawn| withdrawn.repeats <= WITHDRAW_REPEATS);
    }
}

/// An address that a SYN could be sent to.
fn is_one_host(address: SocketAddr) -> bool {
    let is_host = match address.ip() {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && v6.to_ipv4_mapped().is_none(),
    };
    is_host && address.port() != 0
}
