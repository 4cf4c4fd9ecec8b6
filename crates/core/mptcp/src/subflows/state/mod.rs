//! The state that the connection keeps for a subflow, outside TCP. Its fields change through the methods here only.

mod bytes;
mod signals;

use plait_base::{Instant, PathId, SubflowId};
use plait_tcp::{Closed, FourTuple};
use std::collections::VecDeque;

use super::doubt::Doubt;
use super::life::{Life, Standing};
use super::priority::Priority;
use super::sealed::SealedSubflow;
use super::shared::Delays;
use super::signal::{Control, ResetInfo};
use super::stage::{Kind, Nonces, Stage, ThirdAck};
use super::stall::{Restraint, Stall};
use super::trial::Trial;
use crate::paths::Way;
use crate::receive::mapping::Mappings;
use crate::{Path, PathClass, Paths};

/// The state of a subflow outside TCP.
pub(crate) struct SubflowState {
    id: SubflowId,
    tuple: FourTuple,
    path: PathId,
    /// Whether its carrier takes datagrams.
    carries_datagrams: bool,
    /// Our class for its path.
    class: PathClass,
    /// The peer's class for its path.
    class_theirs: PathClass,
    kind: Kind,
    stage: Stage,
    /// Address id of our address.
    local_address: u8,
    /// Address id of the peer's address, if the peer has sent one.
    remote_address: Option<u8>,
    /// Whether we want it used as a backup.
    backup_ours: bool,
    /// Whether the peer does.
    backup_theirs: bool,
    /// The `backup_ours` that the peer was told since the subflow was opened.
    priority: Priority,
    /// The peer has withdrawn its address, and the subflow is being probed.
    doubt: Option<Doubt>,
    mappings: Mappings,
    /// Stream offset below which all bytes were read.
    read: u64,
    /// When unmapped bytes began to wait.
    unmapped_since: Option<Instant>,
    /// Options that wait for a segment without payload.
    control: VecDeque<Control>,
    /// Options of a reset.
    reset_info: ResetInfo,
    /// Set while it makes no progress although others do. It carries nothing new until that changes.
    stall: Option<Stall>,
    /// Set while it gets less than its window.
    restraint: Option<Restraint>,
    /// Redundant scheduling: data offset up to which everything was sent here.
    copied: u64,
    /// Bytes first sent on another subflow.
    reinjected: u64,
    /// A DSS arrived here.
    has_dss: bool,
    /// Whether MP_CAPABLE was left out of the last SYN.
    plain_syn: bool,
    /// Whether the last ACK had both keys: a DATA_FIN goes with the next one.
    keys_told: bool,
    /// Whether the infinite mapping must go with the next data.
    announce_infinite: bool,
    /// Number of wrong MP_FASTCLOSE keys that arrived here.
    bad_fast_closes: u64,
    /// Additional state on a sealed connection.
    sealed: SealedSubflow,
    /// Whether it is plain TCP after MP_FAIL, and the peer's infinite mapping has not arrived yet.
    acks_data_still: bool,
    /// How it ended, if it has ended.
    end: Option<Closed>,
    trial: Trial,
    /// Whether the peer still has it, on a sealed connection.
    life: Life,
    /// Its delays, for the detection of shared queues. Kept while there are other subflows.
    delays: Option<Delays>,
}

/// The beginning of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Beginning {
    pub(crate) id: SubflowId,
    pub(crate) tuple: FourTuple,
    pub(crate) kind: Kind,
    /// Address id of our address.
    pub(crate) local_address: u8,
    /// Address id of the peer's address, if the peer has sent one.
    pub(crate) remote_address: Option<u8>,
}

impl SubflowState {
    /// Returns its way: our device, named by the first of the paths over it, and the address of the peer.
    pub(crate) fn device_way(&self, paths: &Paths) -> Way {
        Way { path: paths.device_of(self.path), remote: self.tuple.remote.ip() }
    }

    /// Returns its way by path.
    pub(crate) fn way(&self) -> Way {
        Way { path: self.path, remote: self.tuple.remote.ip() }
    }

    /// Returns the state of a subflow that begins over `path`.
    pub(crate) fn new(beginning: Beginning, path: &Path) -> Self {
        let Beginning { id, tuple, kind, local_address, remote_address } = beginning;
        Self {
            id,
            tuple,
            path: path.id,
            carries_datagrams: path.datagrams,
            class: path.class,
            class_theirs: PathClass::Trusted,
            kind,
            stage: Stage::Opening,
            local_address,
            remote_address,
            backup_ours: path.backup,
            backup_theirs: false,
            priority: Priority::default(),
            doubt: None,
            mappings: Mappings::default(),
            read: 1,
            unmapped_since: None,
            control: VecDeque::new(),
            reset_info: ResetInfo::default(),
            stall: None,
            restraint: None,
            copied: 0,
            reinjected: 0,
            has_dss: false,
            plain_syn: false,
            keys_told: false,
            announce_infinite: false,
            sealed: SealedSubflow::default(),
            acks_data_still: false,
            bad_fast_closes: 0,
            end: None,
            trial: match kind {
                Kind::FirstActive | Kind::FirstPassive => Trial::Over,
                Kind::JoinActive { .. } | Kind::JoinPassive { .. } => Trial::Pending,
            },
            life: Life::default(),
            delays: None,
        }
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> SubflowId {
        self.id
    }

    /// Sets the id of a subflow that is added.
    pub(super) fn on_id(&mut self, id: SubflowId) {
        self.id = id;
    }

    /// Returns its addresses.
    pub(crate) fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> PathId {
        self.path
    }

    /// Whether its carrier takes datagrams beside its segments.
    pub(crate) fn carries_datagrams(&self) -> bool {
        self.carries_datagrams
    }

    /// Returns our class for its path.
    pub(crate) fn class(&self) -> PathClass {
        self.class
    }

    /// Sets our class for its path. Returns whether that is another class.
    pub(crate) fn set_class(&mut self, class: PathClass) -> bool {
        core::mem::replace(&mut self.class, class) != class
    }

    /// Returns the peer's class for its path.
    pub(crate) fn class_theirs(&self) -> PathClass {
        self.class_theirs
    }

    /// Stores the class that the peer gives to its path.
    pub(crate) fn on_class(&mut self, class: PathClass) {
        self.class_theirs = class;
    }

    /// Returns the lower of the classes that both sides give to the path.
    pub(crate) fn trust(&self) -> PathClass {
        self.class.max(self.class_theirs)
    }

    /// Returns the handshake that opens it.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its progress.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Handles the end of its handshake.
    pub(crate) fn on_open(&mut self) {
        self.stage = Stage::Open;
    }

    /// Handles the peer's answer to our join. The third ACK is sent now.
    pub(crate) fn on_join_answered(&mut self, now: Instant, nonces: Nonces, address_id: u8) {
        self.kind = Kind::JoinActive { nonce: nonces.own, peer_nonce: Some(nonces.theirs) };
        self.remote_address = self.remote_address.or(Some(address_id));
        self.stage = Stage::unconfirmed(now);
    }

    /// Returns whether its third ACK must be repeated now, and counts the repetition.
    pub(crate) fn on_third_ack_time(&mut self, now: Instant) -> ThirdAck {
        self.stage.on_third_ack_time(now)
    }

    /// Notes that it carries nothing new.
    pub(super) fn on_leaving(&mut self) {
        self.stage = Stage::Leaving;
    }

    /// Notes that it is reset, and the options of the reset.
    pub(super) fn on_reset(&mut self, reset_info: ResetInfo) {
        self.reset_info = reset_info;
        self.stage = Stage::Over;
    }

    /// Handles the end of its TCP. Returns its progress before.
    pub(crate) fn on_closed(&mut self, why: Closed) -> Stage {
        self.end = Some(why);
        core::mem::replace(&mut self.stage, Stage::Over)
    }

    /// Returns how it ended, if it has ended.
    pub(crate) fn end(&self) -> Option<Closed> {
        self.end
    }

    /// Returns the address id of our address.
    pub(crate) fn local_address(&self) -> u8 {
        self.local_address
    }

    /// Returns the address id of the peer's address, if the peer has sent one.
    pub(crate) fn remote_address(&self) -> Option<u8> {
        self.remote_address
    }

    /// Returns since when it makes no progress although others do, if so.
    pub(crate) fn stall(&self) -> Option<Stall> {
        self.stall
    }

    /// Notes that it makes no progress.
    pub(super) fn on_stalled(&mut self, stall: Stall) {
        self.stall = Some(stall);
    }

    /// Notes that it makes progress again.
    pub(crate) fn on_recovered(&mut self) {
        self.stall = None;
    }

    /// Handles the end of an absence of this host.
    pub(super) fn on_resumed(&mut self, now: Instant) {
        if let Some(stall) = &mut self.stall {
            stall.since = now;
        }
        self.trial.resume(now);
        self.life.resume(now);
    }

    /// Returns its limit of bytes in flight, if it has one.
    pub(super) fn restraint(&self) -> Option<Restraint> {
        self.restraint
    }

    /// Sets its limit of bytes in flight.
    pub(super) fn on_restrained(&mut self, restraint: Restraint) {
        self.restraint = Some(restraint);
    }

    /// Returns its additional state on a sealed connection.
    pub(crate) fn sealed(&self) -> &SealedSubflow {
        &self.sealed
    }

    pub(crate) fn sealed_mut(&mut self) -> &mut SealedSubflow {
        &mut self.sealed
    }

    /// Returns its trial after the join.
    pub(crate) fn trial(&self) -> Trial {
        self.trial
    }

    pub(crate) fn trial_mut(&mut self) -> &mut Trial {
        &mut self.trial
    }

    /// Returns whether the peer still has it, on a sealed connection.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    pub(crate) fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    /// Returns its delays, if they are kept.
    pub(super) fn delays(&self) -> Option<&Delays> {
        self.delays.as_ref()
    }

    /// Takes its delays, so that they can be compared with those of others.
    pub(super) fn take_delays(&mut self) -> Option<Delays> {
        self.delays.take()
    }

    /// Stores its delays.
    pub(super) fn set_delays(&mut self, delays: Delays) {
        self.delays = Some(delays);
    }

    pub(crate) fn is_first(&self) -> bool {
        match self.kind {
            Kind::FirstActive | Kind::FirstPassive => true,
            Kind::JoinActive { .. } | Kind::JoinPassive { .. } => false,
        }
    }

    /// Whether we have opened it: the peer listens at its address.
    pub(crate) fn is_ours(&self) -> bool {
        match self.kind {
            Kind::FirstActive | Kind::JoinActive { .. } => true,
            Kind::FirstPassive | Kind::JoinPassive { .. } => false,
        }
    }

    /// Whether it counts for limits and for the mesh.
    pub(crate) fn is_present(&self) -> bool {
        match self.stage {
            Stage::Opening | Stage::Unconfirmed { .. } | Stage::Open => true,
            Stage::Leaving | Stage::Over => false,
        }
    }

    /// The same without unverified subflows, on which three questions in a row went unanswered.
    pub(crate) fn counts(&self) -> bool {
        self.is_present() && !self.life.is_unverified()
    }

    /// Whether it has never been verified, on a sealed connection.
    pub(crate) fn is_unproven(&self) -> bool {
        match self.life.standing() {
            Standing::Fresh => true,
            Standing::Unverified => self.life.verified_at().is_none(),
            Standing::Unasked | Standing::Verified => false,
        }
    }

    /// Whether it has no answer yet: to our SYN, or for long to the proof of our join, which may never arrive.
    pub(crate) fn is_hanging(&self) -> bool {
        /// At least half a second passes before the third transmission.
        const LONG: u8 = 2;
        match self.stage {
            Stage::Opening => true,
            Stage::Unconfirmed { again: _, tries } => tries >= LONG,
            Stage::Open | Stage::Leaving | Stage::Over => false,
        }
    }

    /// Whether it is a join of the peer that is not authenticated yet.
    pub(crate) fn is_unproved_join(&self) -> bool {
        matches!((self.stage, self.kind), (Stage::Opening, Kind::JoinPassive { .. }))
    }
}
