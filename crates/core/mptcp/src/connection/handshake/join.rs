//! MP_JOIN: further subflows (RFC 8684, section 3.2).
//!
//! The opener of the subflow sends its HMAC with the third ACK and repeats that until the peer shows that it
//! has it (the fourth ACK); before that no data may be sent.

use crate::log;
use plait_base::{Instant, SubflowId};
use plait_protect::sealed::SubflowTag;
use plait_tcp::FourTuple;
use plait_wire::{Flags, MpJoin, ResetReason, Segment};

use crate::connection::options_in::Signals;
use crate::connection::receiving::Arrived;
use crate::protection::{Mode, OptionsOut, StreamFacts};
use crate::subflows::sealed::flag_bits;
use crate::subflows::{Kind, Nonces, ResetInfo, Subflow, ThirdAck};
use crate::{Connection, Event, Host, Path, PathClass, Refused};

/// Largest number of the peer's joins that are subflows before their third segment arrives. Any host that has seen our token can send the
/// SYN of a join, from any source address. Therefore none of these gives way to a younger one.
const MAX_UNPROVED: usize = 16;
/// The id of a subflow before it gets its own.
const NOT_ADDED: SubflowId = SubflowId(u32::MAX);

/// Content of the SYN of a join.
#[derive(Clone, Copy)]
struct JoinSyn {
    backup: bool,
    reserved: u8,
    address_id: u8,
    nonce: u32,
}

impl JoinSyn {
    /// The subflow name in the tags of the blocks that the SYN carries.
    const fn name(self) -> SubflowTag {
        SubflowTag::of_syn(self.nonce, flag_bits(self.backup, self.reserved), self.address_id)
    }
}

impl Connection {
    /// A SYN with MP_JOIN and our token.
    pub(crate) fn accept_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        let (said, path) = self.check_join(syn, host)?;
        let has_data = self.take_syn_data(NOT_ADDED, said.name(), &syn.payload);
        if self.closing.is_over() {
            return Err(Refused::Prohibited);
        }
        if self.subflows.unproved() >= MAX_UNPROVED {
            return Err(Refused::Crowded);
        }
        let nonce = host.random().next_u32();
        let mut subflow = self.join_subflow(now, syn, said, nonce, &path, host);
        if has_data {
            subflow.state.sealed_mut().set_syn_data(self.data_of_answer(said.nonce, syn));
        }
        Ok(self.add_join(subflow))
    }

    /// Returns the SYN/ACK for a SYN with MP_JOIN and our token, with `nonce` in it, and keeps no state. The caller uses it after
    /// [`Connection::handle_join`] has returned [`Refused::Crowded`]. The caller keeps the content of the SYN, and calls
    /// [`Connection::recall_join`] when the third segment arrives.
    ///
    /// # Errors
    /// The SYN does not become a subflow.
    pub fn answer_join(
        &mut self,
        now: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<Option<Segment>, Refused> {
        let (said, path) = self.check_join(syn, host)?;
        let mut subflow = self.join_subflow(now, syn, said, nonce, &path, host);
        Ok(self.syn_ack_of(&mut subflow, now))
    }

    /// Restores the subflow of a SYN that [`Connection::answer_join`] has answered at `then` with this `nonce`. The subflow is in the state
    /// of that time, with its SYN/ACK sent. It waits for the third segment, which the caller passes in next.
    ///
    /// # Errors
    /// The SYN does not become a subflow.
    pub fn recall_join(
        &mut self,
        then: Instant,
        syn: &Segment,
        nonce: u32,
        host: &mut dyn Host,
    ) -> Result<SubflowId, Refused> {
        let (said, path) = self.check_join(syn, host)?;
        let mut subflow = self.join_subflow(then, syn, said, nonce, &path, host);
        let _sent_already = self.syn_ack_of(&mut subflow, then);
        Ok(self.add_join(subflow))
    }

    /// Returns the content of the SYN of a join, and the path over which it came.
    fn check_join(&self, syn: &Segment, host: &dyn Host) -> Result<(JoinSyn, Path), Refused> {
        let signals = Signals::read(syn);
        let Some(MpJoin::Syn { backup, reserved, address_id, token, nonce }) = signals.join else {
            return Err(Refused::Malformed);
        };
        if self.token() != Some(token) || signals.capable.is_some() {
            return Err(Refused::Malformed);
        }
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return Err(Refused::Prohibited);
        }
        let path = self.path_of(syn.destination.ip(), host);
        if path.class == PathClass::Never {
            return Err(Refused::Prohibited);
        }
        if self.subflows.has_tuple(&FourTuple { local: syn.destination, remote: syn.source }) {
            return Err(Refused::Malformed);
        }
        let is_full = self.subflows.proved() >= usize::from(self.config.max_subflows);
        if is_full && !(self.protection.verifies_life() && self.subflows.displaceable().is_some()) {
            return Err(Refused::TooMany);
        }
        Ok((JoinSyn { backup, reserved, address_id, nonce }, path))
    }

    /// Returns the subflow of a join, with our nonce, over `path`. It is not yet added to the connection.
    fn join_subflow(
        &mut self,
        now: Instant,
        syn: &Segment,
        said: JoinSyn,
        nonce: u32,
        path: &Path,
        host: &mut dyn Host,
    ) -> Subflow {
        let tuple = FourTuple { local: syn.destination, remote: syn.source };
        let tcp = plait_tcp::Connection::accept(now, self.tcp_config(path), syn, host.isn(&tuple, now));
        let kind = Kind::JoinPassive { nonce, peer_nonce: said.nonce };
        let mut subflow = self.new_subflow(NOT_ADDED, path, tcp, tuple, kind, Some(said.address_id));
        subflow.state.on_priority(said.backup);
        subflow.state.on_class(self.protection.class_of(said.reserved));
        subflow.state.sealed_mut().initiator_said(said.backup, said.reserved, said.address_id);
        subflow
    }

    fn syn_ack_of(&mut self, subflow: &mut Subflow, now: Instant) -> Option<Segment> {
        let stream = StreamFacts { next: self.acknowledged(), fin: None, has_sent: false };
        let mut options =
            OptionsOut { subflow: &mut subflow.state, protection: &mut self.protection, stream };
        subflow.tcp.poll_transmit(now, &mut options)
    }

    fn add_join(&mut self, subflow: Subflow) -> SubflowId {
        let tuple = subflow.state.tuple();
        let id = self.subflows.name_and_add(subflow);
        self.notices.push(Event::SubflowOpened { id, tuple });
        id
    }

    /// Handles the answer to our join.
    pub(crate) fn on_join_syn_ack(&mut self, now: Instant, arrived: &Arrived<'_>) {
        let subflow = self.subflows.touch(arrived.index);
        let Kind::JoinActive { nonce: own, .. } = subflow.state.kind() else { return };
        let Some(MpJoin::SynAck { backup, reserved, address_id, hmac, nonce }) = arrived.signals.join else {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.8
            //# missing MP_JOIN in SYN/ACK response): send RST
            log::debug!(subflow = subflow.state.id().0, "join answered without MP_JOIN");
            self.counters.joins_unanswered += 1;
            let path = subflow.state.path();
            subflow.reset(ResetInfo::because(ResetReason::MiddleboxInterference));
            self.on_path_missing(now, path, "MP_JOIN was stripped there");
            return;
        };
        subflow.state.sealed_mut().responder_said(backup, reserved, address_id);
        let nonces = Nonces { own, theirs: nonce };
        if !self.protection.is_join_answer(&mut subflow.state, nonces, &hmac) {
            log::debug!(subflow = subflow.state.id().0, "join dropped: the HMAC is wrong or missing");
            self.counters.bad_join_hmacs += 1;
            let path = subflow.state.path();
            subflow.reset(ResetInfo::because(ResetReason::Mptcp));
            self.on_path_missing(now, path, "the answer to the join is not from a host with the keys");
            return;
        }
        subflow.state.on_priority(backup);
        subflow.state.on_class(self.protection.class_of(reserved));
        subflow.state.on_join_answered(now, nonces, address_id);
        // The peer may send data here as soon as it has our third ACK.
        self.outgoing.on_other_subflow();
        let state = &self.subflows[arrived.index].state;
        if let (id, Some(name)) = (state.id(), state.sealed().tag()) {
            self.take_syn_data(id, name, &arrived.segment.payload);
        }
        self.cancel_slower(now, arrived.index);
    }

    /// Handles a segment that shows that the peer has received the third ACK.
    pub(crate) fn on_join_confirmed(&mut self, now: Instant, index: usize) {
        log::debug!(subflow = self.subflows[index].state.id().0, path = ?self.subflows[index].state.path(), "join is complete");
        self.subflows.touch(index).state.on_open();
        self.begin_trial(now, index);
        if !self.protection.verifies_life() {
            self.paths
                .on_joined(self.subflows[index].state.path(), self.subflows[index].state.tuple().remote);
        }
    }

    /// Handles an acceptable segment on a subflow that waits for its third ACK.
    pub(crate) fn on_join_third_ack(&mut self, now: Instant, arrived: &Arrived<'_>) {
        if arrived.segment.flags.contains(Flags::SYN) {
            return;
        }
        let subflow = self.subflows.touch(arrived.index);
        let Kind::JoinPassive { nonce, peer_nonce } = subflow.state.kind() else { return };
        let nonces = Nonces { own: nonce, theirs: peer_nonce };
        let is_right = match arrived.signals.join {
            Some(MpJoin::Ack { hmac }) => self.protection.is_join_ack(&mut subflow.state, nonces, &hmac),
            Some(MpJoin::Syn { .. } | MpJoin::SynAck { .. }) | None => false,
        };
        if is_right {
            self.displace_unverified(self.subflows[arrived.index].state.tuple().remote.ip());
        }
        let has_room = is_right && self.make_room();
        let subflow = self.subflows.touch(arrived.index);
        if has_room {
            log::debug!(subflow = subflow.state.id().0, path = ?subflow.state.path(), "join is complete");
            subflow.state.on_open();
            subflow.tcp.request_ack();
            // The peer that joined waits for the fourth ACK, and a share of the keys goes with it.
            subflow.state.sealed_mut().owe_offer();
            self.begin_trial(now, arrived.index);
            self.outgoing.on_other_subflow();
        } else if is_right {
            subflow.reset(ResetInfo::for_now(ResetReason::LackOfResources));
        } else {
            log::debug!(subflow = subflow.state.id().0, "join dropped: the HMAC is wrong or missing");
            self.counters.bad_join_hmacs += 1;
            subflow.reset(ResetInfo::because(ResetReason::Mptcp));
        }
    }

    pub(crate) fn repeat_third_acks(&mut self, now: Instant) {
        for subflow in self.subflows.touch_all() {
            match subflow.state.on_third_ack_time(now) {
                ThirdAck::NotDue => {}
                ThirdAck::Again => subflow.tcp.request_ack(),
                ThirdAck::Unanswered => {
                    subflow.reset(ResetInfo::because(ResetReason::MiddleboxInterference));
                }
            }
        }
    }

    pub(crate) fn third_ack_deadline(&self) -> Option<Instant> {
        self.subflows.iter().filter_map(|subflow| subflow.figures().third_ack).min()
    }
}
