//! The life of subflows on a sealed connection: questions and answers beside the stream, GONE inside it, and what follows from them.
//!
//! What TCP alone says about a subflow counts for that subflow and never for the connection: not for the limit of subflows, not for
//! whether there is a way to the peer, not for the distance between two joins.

use crate::log;
use core::net::IpAddr;
use plait_base::Instant;
use plait_protect::sealed::{Check, CheckTag, GoneReason, SubflowTag};
use plait_tcp::Closed;
use plait_wire::ResetReason;

use crate::closing::Waits;
use crate::protection::sealed::{Established, Worth};
use crate::subflows::life::{Pace, Standing, Step};
use crate::subflows::{Kind, ResetInfo, Stage};
use crate::{Connection, Host};

impl Connection {
    /// Asks subflows for a sign of life where that is due, and draws the consequences where none comes.
    pub(super) fn run_life(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.protection.verifies_life() {
            return;
        }
        for index in 0..self.subflows.len() {
            self.begin_life(now, index);
            let pace = self.pace(index);
            if self.subflows[index].state.life().deadline(pace).is_none_or(|deadline| deadline > now) {
                continue;
            }
            let value = || {
                let mut value = [0; 8];
                host.secrets().fill(&mut value);
                u64::from_be_bytes(value)
            };
            let subflow = self.subflows.touch(index);
            match subflow.state.life_mut().on_time(now, pace, value) {
                Step::Wait => {}
                Step::Ask => subflow.tcp.request_ack(),
                Step::Doubt => {
                    log::debug!(
                        subflow = subflow.state.id().0,
                        "nothing verifies this subflow: it counts no more"
                    );
                    subflow.tcp.request_ack();
                    self.counters.subflows_doubted += 1;
                    let id = subflow.state.id();
                    self.outgoing.on_stalled(id, |_| true);
                    if !self.subflows.has_open() {
                        self.paths.hurry(now);
                    }
                }
                Step::GiveUp => self.drop_subflow(index, GoneReason::UNVERIFIED),
            }
        }
    }

    /// Asks the peer at once, on every subflow, whether it has that subflow still; the answers are in
    /// [`SubflowStatus::verified`](crate::SubflowStatus::verified). Nothing is asked where the connection is not sealed.
    pub fn ask_life(&mut self) {
        self.timers.set(None);
        for subflow in self.subflows.touch_all().filter(|subflow| subflow.state.is_present()) {
            subflow.state.life_mut().hurry();
        }
    }

    /// A subflow that has just been opened completely has to show that the peer has it; the handshake has shown that of the first.
    fn begin_life(&mut self, now: Instant, index: usize) {
        let state = &self.subflows[index].state;
        if state.life().standing() != Standing::Unasked
            || state.stage() != Stage::Open
            || state.sealed().tag().is_none()
            || !self.protection.verifies_life()
        {
            return;
        }
        let (pace, jitter) = (self.pace(index), self.jitter(index));
        let state = &mut self.subflows.touch(index).state;
        match state.kind() {
            Kind::FirstActive | Kind::FirstPassive => state.life_mut().begin_verified(now, pace, jitter),
            Kind::JoinActive { .. } | Kind::JoinPassive { .. } => state.life_mut().begin(now),
        }
    }

    /// Returns when a subflow must be asked, or given up.
    pub(crate) fn life_deadline(&self) -> Option<Instant> {
        if self.closing.is_over() || !self.protection.verifies_life() {
            return None;
        }
        let of = |index: usize| {
            let state = &self.subflows[index].state;
            let is_present = state.is_present() && state.life().standing() != Standing::Unasked;
            is_present.then(|| state.life().deadline(self.pace(index))).flatten()
        };
        (0..self.subflows.len()).filter_map(of).min()
    }

    fn pace(&self, index: usize) -> Pace {
        Pace {
            idle: self.config.tcp.keep_alive.or(self.config.protect.keep_alive()).map(|asked| asked.idle),
            rto: self.subflows[index].figures().rto,
            is_in_need: !self.subflows.has_good() || self.closing.waits() == Waits::ForLastAck,
        }
    }

    /// Differs between connections, and between subflows.
    fn jitter(&self, index: usize) -> u32 {
        self.token().unwrap_or_default().rotate_left(self.subflows[index].state.id().0)
    }

    /// Handles a CHECK on a subflow.
    pub(super) fn take_check(&mut self, now: Instant, index: usize, tag: &CheckTag) {
        let Some(name) = self.subflows[index].state.sealed().tag() else { return };
        let Some(established) = self.protection.established_mut() else { return };
        match (established.check_life(name, tag), tag.check()) {
            (Worth::Genuine { .. }, Check::Question(value)) => {
                self.subflows.touch(index).state.life_mut().on_question(value);
                self.subflows.touch(index).tcp.request_ack();
            }
            (Worth::Genuine { .. }, Check::Answer(value)) => {
                if self.subflows.touch(index).state.life_mut().is_answer(value) {
                    self.paths.end_grace();
                    self.on_verified(now, index);
                }
            }
            (Worth::Nothing, _) => self.counters.forged_acks += 1,
            (Worth::Guessed, _) => self.on_tag_failed(index),
        }
    }

    /// The tag of a block was right on a subflow, at this offset of it.
    pub(super) fn on_block_tag(&mut self, now: Instant, index: usize, offset: u64) {
        self.begin_life(now, index);
        if self.subflows.touch(index).state.life_mut().is_new_block(offset) {
            self.on_verified(now, index);
        }
    }

    /// The peer has this subflow, and its path carries both directions.
    fn on_verified(&mut self, now: Instant, index: usize) {
        let (pace, jitter) = (self.pace(index), self.jitter(index));
        let state = &mut self.subflows.touch(index).state;
        let before = state.life().standing();
        state.life_mut().verify(now, pace, jitter);
        self.follow_trial(now, index);
        self.closing.on_verified();
        let subflow = self.subflows.touch(index);
        let (path, remote) = (subflow.state.path(), subflow.state.tuple().remote);
        match before {
            Standing::Fresh if subflow.state.is_ours() && !subflow.state.is_first() => {
                self.paths.on_joined(path, remote);
            }
            Standing::Unverified => self.on_recovered(now, index),
            Standing::Unasked | Standing::Fresh | Standing::Verified => {}
        }
        // What waits for a timeout that has grown in an outage need not wait for its end.
        self.subflows.touch(index).tcp.retry(now);
    }

    /// Tells the peer that a subflow is no more, unless it has told us.
    pub(crate) fn say_gone(&mut self, index: usize, why: Closed) {
        let state = &self.subflows[index].state;
        let is_to_be_told = self.protection.verifies_life() && !state.sealed().is_gone();
        let Some(name) = state.sealed().tag().filter(|_| is_to_be_told) else { return };
        let of_tcp = match why {
            Closed::Finished | Closed::Aborted => GoneReason::CLOSED,
            Closed::Refused | Closed::ResetByPeer => GoneReason::RESET,
            Closed::TimedOut => GoneReason::TIMED_OUT,
            Closed::Unreachable => GoneReason::PATH_GONE,
        };
        let reason = state.sealed().gone_reason().unwrap_or(of_tcp);
        if let Some(established) = self.protection.established_mut() {
            established.say_gone(name, reason);
        }
    }

    /// Drops the subflows that the peer no longer has.
    pub(super) fn heed_gone(&mut self) {
        while let Some(name) = self.protection.established_mut().and_then(Established::poll_gone) {
            let is_it = |index: &usize| self.subflows[*index].state.sealed().tag() == Some(name);
            match (0..self.subflows.len()).find(is_it) {
                Some(index) => self.drop_for_peer(index),
                None => self.note_gone(name),
            }
        }
    }

    fn drop_for_peer(&mut self, index: usize) {
        let subflow = self.subflows.touch(index);
        subflow.state.sealed_mut().on_gone();
        if subflow.state.stage() != Stage::Over {
            log::debug!(subflow = subflow.state.id().0, "the peer has this subflow no more");
            self.counters.subflows_gone += 1;
            subflow.reset(ResetInfo::for_now(ResetReason::Unspecified));
        }
    }

    fn note_gone(&mut self, name: SubflowTag) {
        if let Some(established) = self.protection.established_mut() {
            established.note_gone(name);
        }
    }

    /// Resets a subflow; the peer learns why in GONE.
    pub(crate) fn drop_subflow(&mut self, index: usize, reason: GoneReason) {
        let subflow = self.subflows.touch(index);
        subflow.state.sealed_mut().on_dropped(reason);
        subflow.reset(ResetInfo::for_now(ResetReason::Unspecified));
    }

    /// A join from this address of the peer has proved itself: what nothing verifies and came from there makes room for it.
    pub(crate) fn displace_unverified(&mut self, remote: IpAddr) {
        for index in 0..self.subflows.len() {
            let state = &self.subflows[index].state;
            if state.life().is_unverified() && state.is_present() && state.tuple().remote.ip() == remote {
                self.drop_subflow(index, GoneReason::DISPLACED);
            }
        }
    }

    /// Makes room for a join that has proved itself, where as many subflows count as may. `false` if there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.subflows.proved() < usize::from(self.config.max_subflows) {
            return true;
        }
        let index = self.subflows.displaceable().filter(|_| self.protection.verifies_life());
        if let Some(index) = index {
            self.drop_subflow(index, GoneReason::DISPLACED);
        }
        index.is_some()
    }
}
