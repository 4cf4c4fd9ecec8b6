//! ADD_ADDR and REMOVE_ADDR (RFC 8684, section 3.4), both ways.

use crate::log;
use core::net::{IpAddr, SocketAddr};
use plait_base::Instant;
use plait_wire::AddAddr;

use crate::connection::receiving::Arrived;
use crate::paths::{Announcement, Learned, is_meaningful};
use crate::protection::Mode;
use crate::protection::keys::{address_hmac, same};
use crate::protection::options::announcement;
use crate::protection::session::Session;
use crate::role::Role;
use crate::subflows::{Control, ResetInfo, Subflow};
use crate::{Connection, Host};

impl Connection {
    /// Announces paths of ours that the peer does not know yet.
    pub(crate) fn announce_addresses(&mut self, host: &dyn Host) {
        if !self.paths.is_settled() && self.may_announce() {
            self.paths.settle(host.paths(), self.role == Role::Active);
        }
    }

    /// Whether the peer was told this address of ours, and not yet that it is gone.
    pub fn has_announced(&self, own: IpAddr) -> bool {
        self.paths.is_announced(own)
    }

    /// Whether the peer may learn our addresses. A listener with sealed connections tells them to an opener that it has taken, and not to
    /// one that it refuses or has not judged yet.
    fn may_announce(&self) -> bool {
        let confirmed = match self.role {
            Role::Active => self.protection.is_confirmed(),
            Role::Passive => self.protection.sealed().is_none() || self.protection.is_settled(),
        };
        self.config.announce && confirmed && self.mode() == Mode::Multipath && !self.closing.is_over()
    }

    /// Sends the announcements and withdrawals that are due, and other signals that are repeated.
    pub(crate) fn repeat_announcements(&mut self, now: Instant) {
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return;
        }
        self.repeat_priorities(now);
        self.resolve_doubts(now);
        let Some(index) = self.subflows.iter().position(Subflow::is_good) else { return };
        self.repeat_withdrawals(now, index);
        let in_records = self.protection.sends_signals_in_records();
        while let Some(Announcement { id, address }) = self.paths.take_announcement(now, in_records) {
            if self.protection.announce(id, address) {
                continue;
            }
            let session = self.protection.session();
            if let Some(add) = session.and_then(|session| announcement(session, id, address))
                && self.subflows.touch(index).state.signal(Control::AddAddr(add))
            {
                self.subflows.touch(index).tcp.request_ack();
            }
        }
    }

    pub(crate) fn announcement_deadline(&self) -> Option<Instant> {
        if self.mode() != Mode::Multipath || !self.subflows.has_open() || self.closing.is_over() {
            return None;
        }
        if !self.subflows.has_good() {
            return self.repetition_deadline();
        }
        let told = self.paths.announcement_deadline(self.protection.sends_signals_in_records());
        told.into_iter().chain(self.repetition_deadline()).min()
    }

    /// Handles an ADD_ADDR: the peer announces an address, or echoes one of ours.
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
        // The peer repeats the announcement until it sees this echo.
        let echo = AddAddr { echo: true, hmac: None, ..*add };
        if self.subflows.touch(index).state.signal(Control::AddAddr(echo)) {
            self.subflows.touch(index).tcp.request_ack();
        }
    }

    /// Stores an address of the peer whose origin was proved. Returns `false` if the announcement must not be acknowledged to the peer.
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
        let is_of_peer = address.port() != 0 && is_meaningful(address.ip(), initial.ip());
        if !is_of_peer || host.paths().with_address(address.ip()).is_some() {
            log::debug!(%address, "ADD_ADDR refused: not an address that we could reach the peer at");
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

    /// Handles a REMOVE_ADDR. The withdrawal need not be authenticated: a subflow is closed only if it stays silent when it is probed (RFC
    /// 8684, section 3.4.2). The last subflow stays, and shows by itself whether it still works.
    pub(crate) fn on_remove_addr(&mut self, now: Instant, id: u8) {
        log::debug!(id, "the peer withdraws an address");
        self.paths.forget_remote(id);
        for index in 0..self.subflows.len() {
            let state = &self.subflows[index].state;
            if state.remote_address() != Some(id) || !state.is_present() {
                continue;
            }
            let own = state.id();
            if !self.subflows.has_other_good(own) {
                log::debug!(id, subflow = own.0, "REMOVE_ADDR ignored: there is no other subflow");
                self.counters.removals_ignored += 1;
                continue;
            }
            if !self.subflows[index].is_open() {
                self.subflows.touch(index).reset(ResetInfo::for_now(plait_wire::ResetReason::Unspecified));
            } else if !self.subflows[index].state.is_doubted() {
                //= https://www.rfc-editor.org/rfc/rfc8684#section-3.4.2
                //# The receipt of REMOVE_ADDR SHOULD first trigger the sending of a TCP
                //# keepalive [RFC1122] on the path, and if a response is received, the
                //# path SHOULD NOT be removed.
                self.subflows.touch(index).doubt(now);
                self.outgoing.on_stalled(own, |_| false);
            }
        }
    }

    /// Handles an arrival on an open subflow. It shows that a withdrawn address still works, or that the peer has not received the priority
    /// of the subflow.
    pub(crate) fn heed_answers(&mut self, now: Instant, arrived: &Arrived<'_>) {
        let state = &mut self.subflows.touch(arrived.index).state;
        if state.on_arrival(now) {
            log::debug!(subflow = state.id().0, "REMOVE_ADDR ignored: the subflow works");
            self.counters.removals_ignored += 1;
        }
        if arrived.segment.payload.is_empty() || !self.subflows[arrived.index].state.has_said_priority() {
            return;
        }
        let id = self.subflows[arrived.index].state.id();
        let has_regular =
            self.subflows.iter().any(|subflow| subflow.is_regular() && subflow.state.id() != id);
        let subflow = self.subflows.touch(arrived.index);
        if subflow.state.on_data(now, has_regular) {
            subflow.say_priority();
        }
    }

    /// Repeats the priorities of subflows by MP_PRIO.
    fn repeat_priorities(&mut self, now: Instant) {
        for subflow in self.subflows.touch_all().filter(|subflow| subflow.is_open()) {
            if subflow.state.must_repeat_priority(now) {
                subflow.say_priority();
            }
        }
    }

    /// Repeats the probe on subflows with a withdrawn address, and leaves the subflows that have not answered.
    fn resolve_doubts(&mut self, now: Instant) {
        for index in 0..self.subflows.len() {
            let is_gone = self.subflows.touch(index).resolve_doubt(now);
            if is_gone && self.subflows[index].is_open() && self.subflows.has_good() {
                self.subflows.touch(index).leave();
            }
        }
    }

    fn repetition_deadline(&self) -> Option<Instant> {
        let of = |subflow: &Subflow| subflow.state.repetition_deadline();
        self.subflows.iter().filter(|subflow| subflow.is_open()).filter_map(of).min()
    }

    /// Announces to the peer that an address of ours is gone.
    pub(crate) fn withdraw(&mut self, own: IpAddr) {
        let Some(id) = self.paths.forget_own(own) else { return };
        if self.mode() == Mode::Multipath && !self.protection.withdraw(id) {
            self.paths.withdraw(id);
        }
    }

    /// Sends the withdrawals that are due on the subflow at `index`.
    fn repeat_withdrawals(&mut self, now: Instant, index: usize) {
        let Subflow { tcp, state, .. } = self.subflows.touch(index);
        self.paths.take_withdrawals(now, |id| {
            if state.signal(Control::RemoveAddr(id)) {
                tcp.request_ack();
            }
        });
    }
}
