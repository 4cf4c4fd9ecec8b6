//! One subflow with the state that the connection keeps for it.

use crate::log;
use plait_base::{Duration, Instant, PathId, SubflowId};
use plait_tcp::{Closed, FourTuple, State, Stats};
use plait_wire::{AddAddr, MpReset, ResetReason, Segment};
use std::collections::VecDeque;

use super::doubt::Doubt;
use super::life::{Life, Standing};
use super::memo::Memo;
use super::priority::Priority;
use super::sealed::SealedSubflow;
use super::shared::Delays;
use crate::receive::mapping::Mappings;
use crate::{Path, PathClass, Paths, SubflowStatus};

/// Largest number of control options that wait for a segment. Further ones are dropped and counted.
const MAX_CONTROL: usize = 16;

/// A subflow: the TCP connection, and the remaining state. The two are separate so that the state can write the options while TCP asks for
/// them.
pub(crate) struct Subflow {
    pub(crate) tcp: plait_tcp::Connection,
    pub(crate) state: SubflowState,
    pub(super) memo: Memo,
}

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

/// The handshake that opened a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// MP_CAPABLE, by us.
    FirstActive,
    /// MP_CAPABLE, by the peer.
    FirstPassive,
    /// MP_JOIN, by us.
    JoinActive {
        nonce: u32,
        /// Taken from the SYN/ACK.
        peer_nonce: Option<u32>,
    },
    /// MP_JOIN, by the peer.
    JoinPassive { nonce: u32, peer_nonce: u32 },
}

/// Progress of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its handshake is not complete.
    Opening,
    /// Joined by us. The third ACK is repeated until the peer shows that it has received it.
    Unconfirmed {
        /// When to repeat it.
        again: Instant,
        /// How often it was repeated.
        tries: u8,
    },
    /// In use.
    Open,
    /// It is being closed and carries nothing new.
    Leaving,
    /// TCP has ended; TIME-WAIT may be running.
    Over,
}

/// Whether a subflow has shown that it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    /// Its join is not complete.
    Pending,
    /// Nothing has arrived after its first moment.
    Since {
        joined: Instant,
        /// Whether it was asked for an answer.
        is_probed: bool,
    },
    /// It has lasted.
    Over,
}

/// A subflow without progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) since: Instant,
    /// The offset that the peer had acknowledged.
    pub(crate) acked: u64,
    /// The end of the bytes that it had.
    pub(crate) until: u64,
}

/// Limit of bytes in flight for a subflow for which the whole stream has stood still: half of its window, doubled after each round trip
/// since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restraint {
    pub(crate) bytes: u32,
    pub(crate) since: Instant,
}

impl Restraint {
    /// Returns the largest number of bytes in flight.
    fn limit(self, now: Instant, round_trip: Duration) -> u64 {
        let passed = now.saturating_since(self.since).as_micros();
        let round_trips = (passed / round_trip.as_micros().max(1)).min(32) as u32;
        u64::from(self.bytes) << round_trips
    }
}

/// An option that waits for a segment without payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    AddAddr(AddAddr),
    RemoveAddr(u8),
    Prio { backup: bool },
    Fail { dsn: u64 },
}

/// The options of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ResetInfo {
    /// MP_FASTCLOSE: the connection is over, not just this subflow.
    pub(crate) fast_close: bool,
    /// MP_FAIL: a checksum failed here.
    pub(crate) fail: Option<u64>,
    /// MP_TCPRST.
    pub(crate) reason: Option<MpReset>,
}

impl ResetInfo {
    /// Returns the options of a reset for this reason.
    pub(crate) fn because(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: false, reserved: 0, reason }), ..Self::default() }
    }

    /// The same, with permission to try again.
    pub(crate) fn for_now(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: true, reserved: 0, reason }), ..Self::default() }
    }
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

impl Subflow {
    pub(crate) fn new(tcp: plait_tcp::Connection, state: SubflowState) -> Self {
        Self { tcp, state, memo: Memo::default() }
    }

    /// Whether it may carry data at all.
    pub(crate) fn is_open(&self) -> bool {
        self.state.stage == Stage::Open && self.state.class != PathClass::Never
    }

    /// Whether it should get data.
    pub(crate) fn is_good(&self) -> bool {
        self.is_open()
            && self.state.stall.is_none()
            && self.state.doubt.is_none()
            && !self.state.life.is_unverified()
    }

    /// Whether it should get data before any backup does.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_good() && !self.state.is_backup() && !self.state.sealed.delivery.is_suspect()
    }

    /// Whether both cross the same path of the peer: by the number that the opener has sent, sealed, or else by the address.
    pub(crate) fn shares_path(&self, other: &Self) -> bool {
        match (self.state.sealed.path_number, other.state.sealed.path_number) {
            (Some(one), Some(two)) => one == two,
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                self.state.tuple.remote.ip() == other.state.tuple.remote.ip()
            }
        }
    }

    /// Whether it carries bytes that the peer has not acknowledged.
    pub(crate) fn is_busy(&self) -> bool {
        self.tcp.acked_offset() < self.tcp.next_offset()
    }

    /// Returns when it counts as stalled unless it makes progress before.
    pub(crate) fn stall_deadline(&self, stats: &Stats) -> Option<Instant> {
        self.is_busy()
            .then(|| self.tcp.last_progress() + longest_trip_of(stats.srtt.unwrap_or(UNKNOWN_RTT), stats))
    }

    /// Returns the effective smoothed round trip: TCP's own, and, if Data-ACKs are authenticated, at least the one they prove.
    pub(crate) fn round_trip(&self, stats: &Stats) -> Duration {
        self.state.sealed.delivery.round_trip(stats.srtt.unwrap_or(UNKNOWN_RTT))
    }

    /// Returns the number of bytes that it may get, now or after its turn by pacing.
    pub(crate) fn room(&self, now: Instant, stats: &Stats) -> usize {
        let capacity = self.tcp.window_capacity();
        self.state.restraint.map_or(capacity, |restraint| {
            let limit = restraint.limit(now, self.round_trip(stats));
            let left =
                usize::try_from(limit.saturating_sub(u64::from(stats.in_flight))).unwrap_or(usize::MAX);
            if left < usize::from(self.tcp.segment_payload(0)) { 0 } else { capacity.min(left) }
        })
    }

    /// Limits it to half of its window, at most once in a round trip, because the whole stream has stood still for its bytes. Its bytes in
    /// flight are no measure: after a standstill every subflow has almost none.
    pub(crate) fn restrain(&mut self, now: Instant) {
        let stats = self.tcp.stats();
        let is_new = |old: Restraint| now.saturating_since(old.since) > self.round_trip(&stats);
        if self.state.restraint.is_none_or(is_new) {
            let least = 2 * u32::from(self.tcp.segment_payload(0));
            self.state.restraint =
                Some(Restraint { bytes: (stats.congestion_window / 2).max(least), since: now });
        }
    }

    /// Returns the longest normal transfer time of a block by the measure of this subflow.
    pub(crate) fn longest_trip(&self) -> Duration {
        let stats = self.tcp.stats();
        longest_trip_of(self.round_trip(&stats), &stats)
    }

    /// Whether its bytes must be refused because there is no room for their mapping: no subflow repeats bytes that TCP has acknowledged.
    /// There is always room for the mapping of the next byte, so that the bytes that wait for it can proceed.
    pub(crate) fn lacks_room_for(&self, segment: &Segment) -> bool {
        let is_full = self.state.mappings.is_full() || self.state.sealed.has_full_inbox();
        is_full && !segment.payload.is_empty() && !self.tcp.is_in_order(segment)
    }

    /// Resets it.
    pub(crate) fn reset(&mut self, reset_info: ResetInfo) {
        log::debug!(
            subflow = self.state.id.0,
            path = ?self.state.path,
            reason = ?reset_info.reason.map(|said| said.reason),
            fast_close = reset_info.fast_close,
            "subflow is reset"
        );
        self.state.reset_info = reset_info;
        self.state.stage = Stage::Over;
        self.tcp.abort();
    }

    /// Tells the peer by MP_PRIO whether we want it used as a backup.
    pub(crate) fn say_priority(&mut self, backup: bool) {
        // An earlier priority that still waits is obsolete.
        self.state.control.retain(|waiting| !matches!(waiting, Control::Prio { .. }));
        if self.state.signal(Control::Prio { backup }) {
            self.tcp.request_ack();
        }
    }

    /// Gives it up while it is being opened, because another subflow over its path was faster.
    pub(crate) fn cancel(&mut self) {
        log::debug!(subflow = self.state.id.0, path = ?self.state.path, "join is given up: another was faster");
        self.state.stage = Stage::Leaving;
        self.tcp.abort();
    }

    /// Sends nothing new on it. A FIN follows the bytes already given to it.
    pub(crate) fn leave(&mut self) {
        self.state.stage = Stage::Leaving;
        self.tcp.finish();
    }

    /// Ends it after the connection is complete: its remaining work is not needed.
    pub(crate) fn part(&mut self, now: Instant) {
        match self.state.stage {
            Stage::Open if self.state.stall.is_none() => self.leave(),
            Stage::Open | Stage::Opening | Stage::Unconfirmed { .. } => {
                self.reset(ResetInfo::because(ResetReason::Unspecified));
            }
            Stage::Leaving | Stage::Over => {}
        }
        self.tcp.orphan(now);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.tcp.state() == State::Closed
    }

    pub(crate) fn status(&self) -> SubflowStatus {
        SubflowStatus {
            id: self.state.id,
            path: self.state.path,
            tuple: self.state.tuple,
            usable: self.is_good(),
            verified: self.state.life.verified_at(),
            doubted: self.state.life.is_unverified(),
            backup: self.state.is_backup(),
            tcp: self.tcp.stats(),
            reinjected: self.state.reinjected,
            blocks_failed: self.state.sealed.failures(),
            tags_failed: self.state.sealed.tags_failed(),
            end: self.state.end,
            seen: self.state.sealed.seen,
            times_seen: self.state.sealed.times_seen,
            peer_syn: self.tcp.peer_syn(),
        }
    }
}

fn longest_trip_of(round_trip: Duration, stats: &Stats) -> Duration {
    (STALL_ROUND_TRIPS * round_trip + 4 * stats.rttvar).max(MIN_STALL)
}

/// Assumed round-trip time of a subflow without a measurement.
pub(crate) const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// Round trips without progress after which others take over.
pub(crate) const STALL_ROUND_TRIPS: u32 = 3;
/// Least such time: delayed ACKs and schedulers need it.
const MIN_STALL: Duration = Duration::from_millis(150);
