//! The state that the connection keeps for a subflow, outside TCP.

use plait_base::{Instant, PathId, SubflowId};
use plait_tcp::{Closed, FourTuple};
use std::collections::VecDeque;

use super::doubt::Doubt;
use super::life::{Life, Standing};
use super::priority::Priority;
use super::sealed::SealedSubflow;
use super::shared::Delays;
use super::signal::{Control, ResetInfo};
use super::stage::{Kind, Stage};
use super::stall::{Restraint, Stall};
use super::trial::Trial;
use crate::receive::mapping::Mappings;
use crate::{Path, PathClass, Paths};

/// Largest number of control options that wait for a segment. Further ones are dropped and counted.
const MAX_CONTROL: usize = 16;

/// The state of a subflow outside TCP.
pub(crate) struct SubflowState {
    pub(crate) id: SubflowId,
    pub(crate) tuple: FourTuple,
    pub(crate) path: PathId,
    /// Our class for its path.
    pub(crate) class: PathClass,
    /// The peer's class for its path.
    pub(crate) class_theirs: PathClass,
    pub(crate) kind: Kind,
    pub(crate) stage: Stage,
    /// Address id of our address.
    pub(crate) local_address: u8,
    /// Address id of the peer's address, if the peer has sent one.
    pub(crate) remote_address: Option<u8>,
    /// Whether we want it used as a backup.
    pub(crate) backup_ours: bool,
    /// Whether the peer does.
    pub(crate) backup_theirs: bool,
    /// The `backup_ours` that the peer was told since the subflow was opened.
    pub(crate) priority: Priority,
    /// The peer has withdrawn its address, and the subflow is being probed.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) mappings: Mappings,
    /// Stream offset below which all bytes were read.
    pub(crate) read: u64,
    /// When unmapped bytes began to wait.
    pub(crate) unmapped_since: Option<Instant>,
    /// Options that wait for a segment without payload.
    pub(crate) control: VecDeque<Control>,
    /// Options of a reset.
    pub(crate) reset_info: ResetInfo,
    /// Set while it makes no progress although others do. It carries nothing new until that changes.
    pub(crate) stall: Option<Stall>,
    /// Set while it gets less than its window.
    pub(crate) restraint: Option<Restraint>,
    /// Redundant scheduling: data offset up to which everything was sent here.
    pub(crate) copied: u64,
    /// Bytes first sent on another subflow.
    pub(crate) reinjected: u64,
    /// A DSS arrived here.
    pub(crate) has_dss: bool,
    /// Whether MP_CAPABLE was left out of the last SYN.
    pub(crate) plain_syn: bool,
    /// Whether the last ACK had both keys: a DATA_FIN goes with the next one.
    pub(crate) keys_told: bool,
    /// Whether the infinite mapping must go with the next data.
    pub(crate) announce_infinite: bool,
    /// Number of wrong MP_FASTCLOSE keys that arrived here.
    pub(crate) bad_fast_closes: u64,
    /// Additional state on a sealed connection.
    pub(crate) sealed: SealedSubflow,
    /// Whether it is plain TCP after MP_FAIL, and the peer's infinite mapping has not arrived yet.
    pub(crate) acks_data_still: bool,
    /// How it ended, if it has ended.
    pub(crate) end: Option<Closed>,
    pub(crate) trial: Trial,
    /// Whether the peer still has it, on a sealed connection.
    pub(crate) life: Life,
    /// Its delays, for the detection of shared queues. Kept while there are other subflows.
    pub(crate) delays: Option<Delays>,
}

impl SubflowState {
    /// Returns its way: our device, named by the first of the paths over it, and the address of the peer.
    pub(crate) fn way(&self, paths: &Paths) -> (PathId, core::net::IpAddr) {
        (paths.device_of(self.path), self.tuple.remote.ip())
    }

    /// Returns the state of a subflow that begins over `path`. `addresses` are the address ids of ours and of the peer's address, if the
    /// peer has sent one.
    pub(crate) fn new(
        id: SubflowId,
        (tuple, kind): (FourTuple, Kind),
        path: &Path,
        addresses: (u8, Option<u8>),
    ) -> Self {
        Self {
            id,
            tuple,
            path: path.id,
            class: path.class,
            class_theirs: PathClass::Trusted,
            kind,
            stage: Stage::Opening,
            local_address: addresses.0,
            remote_address: addresses.1,
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

    /// Queues an option, unless it already waits. Returns `false` if too many wait.
    pub(crate) fn signal(&mut self, control: Control) -> bool {
        if self.control.contains(&control) {
            return true;
        }
        let fits = self.control.len() < MAX_CONTROL;
        if fits {
            self.control.push_back(control);
        }
        fits
    }

    /// Whether an authenticated announcement of the peer needs an echo.
    pub(crate) fn owes_echo(&self) -> bool {
        self.control.iter().any(|control| matches!(control, Control::AddAddr(add) if add.echo))
    }

    /// Returns the number of in-order bytes that wait for their mapping, or for the rest of their block.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.mappings.waiting_bytes() + u64::from(self.sealed.waiting_bytes())
    }

    pub(crate) fn is_backup(&self) -> bool {
        self.backup_ours || self.backup_theirs
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
