//! ADD_ADDR and REMOVE_ADDR (RFC 8684, section 3.4), both ways.

use crate::log;
use core::net::{IpAddr, SocketAddr};
use plait_base::Instant;
use plait_wire::AddAddr;

use crate::paths::{Announcement, Learned};
use crate::protection::Mode;
use crate::protection::keys::{address_hmac, same};
use crate::protection::options::announcement;
use crate::protection::session::Session;
use crate::role::Role;
use crate::subflows::flow::{Control, Flow, ResetInfo};
use crate::{Connection, Host};

impl Connection {
    /// Tells the peer about paths of ours that it does not know yet.
    pub(crate) fn announce_addresses(&mut self, host: &dyn Host) {
        if !self.paths.is_settled() && self.may_announce() {
            self.paths.settle(host.paths(), self.role == Role::Active);
        }
    }

    fn may_announce(&self) -> bool {
        let confirmed = self.protection.is_confirmed() || self.role == Role::Passive;
        self.config.announce && confirmed && self.mode() == Mode::Multipath && !self.closing.is_over()
    }

    /// Sends the announcements and withdrawals that are due.
    pub(crate) fn repeat_announcements(&mut self, now: Instant) {
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return;
        }
        let Some(index) = self.flows.iter().position(Flow::is_good) else { return };
        self.repeat_withdrawals(now, index);
        let is_sealed = self.protection.is_sealed();
        while let Some(Announcement { id, address }) = self.paths.take_announcement(now, is_sealed) {
            if self.protection.announce(id, address) {
                continue;
            }
            let session = self.protection.session();
            if let Some(add) = session.and_then(|session| announcement(session, id, address))
                && self.flows[index].state.signal(Control::AddAddr(add))
            {
                self.flows[index].tcp.request_ack();
            }
        }
    }

    pub(crate) fn announcement_deadline(&self) -> Option<Instant> {
        if self.mode() != Mode::Multipath || !self.flows.has_good() {
            return None;
        }
        self.paths.announcement_deadline(self.protection.is_sealed())
    }

    /// The peer announces an address, or echoes one of ours.
    pub(crate) fn on_add_addr(&mut self, now: Instant, index: usize, add: &AddAddr, host: &dyn Host) {
        if add.echo {
            self.paths.on_echo(Announcement { id: add.address_id, address: add.address });
            return;
        }
        if !self.is_genuine(add) {
            log::debug!(address = %add.address, "ADD_ADDR dropped: the HMAC is wrong");
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

    /// Remembers an address of the peer that was proved to come from it; `false` if the peer is not to be told that it was
    /// heard.
    pub(crate) fn learn_address(
        &mut self,
        now: Instant,
        id: u8,
        address: IpAddr,
        port: Option<u16>,
        host: &dyn Host,
    ) -> bool {
        let Some(initial) = self.paths.initial_remote() else { return false };
        let address = SocketAddr::new(address, port.unwrap_or(initial.port()));
        if !is_one_host(address) || host.paths().with_address(address.ip()).is_some() {
            log::debug!(%address, "ADD_ADDR refused: no address of another host");
            self.counters.addresses_refused += 1;
            return false;
        }
        let learned = self.paths.learn(now, id, address, usize::from(self.config.max_remote_addresses));
        log::debug!(%address, id, ?learned, "the peer announces an address");
        self.counters.addresses_refused += u64::from(learned != Learned::Kept);
        learned != Learned::TooMany
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
        log::debug!(id, "the peer withdraws an address");
        self.paths.forget_remote(id);
        for index in 0..self.flows.len() {
            let state = &self.flows[index].state;
            if state.remote_address != Some(id) || !state.is_present() {
                continue;
            }
            let own = state.id;
            let others = self.flows.has_other_good(own);
            if !others {
                log::debug!(id, subflow = own.0, "REMOVE_ADDR ignored: there is no other subflow");
                self.counters.removals_ignored += 1;
                continue;
            }
            self.paths.forget_pairs_with(self.flows[index].state.tuple.remote);
            if self.flows[index].is_open() {
                self.outgoing.on_stalled(own, |_| false);
                self.flows[index].leave();
            } else {
                self.flows[index].reset(ResetInfo::because(plait_wire::ResetReason::Unspecified));
            }
        }
    }

    /// Tells the peer that an address of ours is gone.
    pub(crate) fn withdraw(&mut self, own: IpAddr) {
        let Some(id) = self.paths.forget_own(own) else { return };
        if self.mode() == Mode::Multipath && !self.protection.withdraw(id) {
            self.paths.withdraw(id);
        }
    }

    /// Sends the withdrawals that are due on the subflow at `index`.
    fn repeat_withdrawals(&mut self, now: Instant, index: usize) {
        let Flow { tcp, state, .. } = &mut self.flows[index];
        self.paths.take_withdrawals(now, |id| {
            if state.signal(Control::RemoveAddr(id)) {
                tcp.request_ack();
            }
        });
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
