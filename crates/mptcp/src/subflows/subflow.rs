//! One subflow with what the connection knows about it.

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

/// Control options that wait for a segment; more are dropped and counted.
const MAX_CONTROL: usize = 16;

/// A subflow: the TCP connection, and the rest. The two are apart so that the rest can write the options
/// while the former asks for them.
pub(crate) struct Subflow {
    pub(crate) tcp: plait_tcp::Connection,
    pub(crate) state: SubflowState,
    pub(super) memo: Memo,
}

/// Everything about a subflow that is not TCP.
pub(crate) struct SubflowState {
    pub(crate) id: SubflowId,
    pub(crate) tuple: FourTuple,
    pub(crate) path: PathId,
    /// What we think of its path.
    pub(crate) class: PathClass,
    /// What the peer has said of its own.
    pub(crate) class_theirs: PathClass,
    pub(crate) kind: Kind,
    pub(crate) stage: Stage,
    /// Address id of our address.
    pub(crate) local_address: u8,
    /// Address id of the peer's, if it has told.
    pub(crate) remote_address: Option<u8>,
    /// We want it used as a backup.
    pub(crate) backup_ours: bool,
    /// The peer does.
    pub(crate) backup_theirs: bool,
    /// What the peer was told of `backup_ours` since the subflow was opened.
    pub(crate) priority: Priority,
    /// The peer has withdrawn its address, and it is being found out whether that is so.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) mappings: Mappings,
    /// Stream offset below which all bytes were read.
    pub(crate) read: u64,
    /// Bytes without a mapping wait since then.
    pub(crate) unmapped_since: Option<Instant>,
    /// Options that wait for a segment without payload.
    pub(crate) control: VecDeque<Control>,
    /// What a reset says.
    pub(crate) reset_info: ResetInfo,
    /// No progress although others make some: carries nothing new until that changes.
    pub(crate) stall: Option<Stall>,
    /// It is given less than its window for a while.
    pub(crate) restraint: Option<Restraint>,
    /// Redundant scheduling: data offset up to which everything was sent here.
    pub(crate) copied: u64,
    /// Bytes first sent on another subflow.
    pub(crate) reinjected: u64,
    /// A DSS arrived here.
    pub(crate) has_dss: bool,
    /// MP_CAPABLE was left out of the last SYN.
    pub(crate) plain_syn: bool,
    /// The last ACK had both keys: a DATA_FIN goes with the next.
    pub(crate) keys_told: bool,
    /// The infinite mapping is to go with the next data.
    pub(crate) announce_infinite: bool,
    /// Wrong keys of MP_FASTCLOSE that came here.
    pub(crate) bad_fast_closes: u64,
    /// What a sealed connection knows about it.
    pub(crate) sealed: SealedSubflow,
    /// Plain TCP after MP_FAIL, and the infinite mapping of the peer has not come yet.
    pub(crate) acks_data_still: bool,
    /// How it ended, if it has.
    pub(crate) end: Option<Closed>,
    pub(crate) trial: Trial,
    /// Whether the peer still has it, on a sealed connection.
    pub(crate) life: Life,
    /// What its delays say of queues that others wait in as well. Kept while there are others.
    pub(crate) delays: Option<Delays>,
}

/// What a subflow was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// MP_CAPABLE, by us.
    FirstActive,
    /// MP_CAPABLE, by the peer.
    FirstPassive,
    /// MP_JOIN, by us.
    JoinActive {
        nonce: u32,
        /// Known from the SYN/ACK.
        peer_nonce: Option<u32>,
    },
    /// MP_JOIN, by the peer.
    JoinPassive { nonce: u32, peer_nonce: u32 },
}

/// How far a subflow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its handshake is not complete.
    Opening,
    /// Joined by us; the third ACK is repeated until the peer shows that it has it.
    Unconfirmed {
        /// When to repeat it.
        again: Instant,
        /// How often it was repeated.
        tries: u8,
    },
    /// In use.
    Open,
    /// Being closed: carries nothing new.
    Leaving,
    /// TCP says that it is over; TIME-WAIT may be running.
    Over,
}

/// Whether a subflow has shown that it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    /// Its join is not complete.
    Pending,
    /// Nothing has come but in its first moment.
    Since {
        joined: Instant,
        /// It was asked for something.
        is_probed: bool,
    },
    /// It has.
    Over,
}

/// A subflow without progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) since: Instant,
    /// What the peer had acknowledged.
    pub(crate) acked: u64,
    /// What it had been given.
    pub(crate) until: u64,
}

/// What a subflow for which the whole stream has stood still may have in flight: half of its window, and twice as much after each
/// round trip since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restraint {
    pub(crate) bytes: u32,
    pub(crate) since: Instant,
}

impl Restraint {
    /// Bytes that may be in flight.
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

/// What the options of a reset say.
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
    /// The subflow is reset for this reason.
    pub(crate) fn because(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: false, reserved: 0, reason }), ..Self::default() }
    }

    /// The same, and it may be tried again.
    pub(crate) fn for_now(reason: ResetReason) -> Self {
        Self { reason: Some(MpReset { transient: true, reserved: 0, reason }), ..Self::default() }
    }
}

impl SubflowState {
    /// Our device, by the first of the paths over it, and the address of the peer.
    pub(crate) fn way(&self, paths: &Paths) -> (PathId, core::net::IpAddr) {
        (paths.device_of(self.path), self.tuple.remote.ip())
    }

    /// What is known of a subflow that begins, over `path`. `addresses` are the address ids of ours and of the peer's, if it has
    /// told.
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

    /// Queues an option; `false` if too many wait already. Nothing waits twice.
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

    /// Whether an announcement of the peer, proved to be its own, is to be echoed.
    pub(crate) fn owes_echo(&self) -> bool {
        self.control.iter().any(|control| matches!(control, Control::AddAddr(add) if add.echo))
    }

    /// Bytes in order that wait for their mapping, or for the rest of their block.
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

    /// Whether we have opened it: the peer's address is one where it listens.
    pub(crate) fn is_ours(&self) -> bool {
        match self.kind {
            Kind::FirstActive | Kind::JoinActive { .. } => true,
            Kind::FirstPassive | Kind::JoinPassive { .. } => false,
        }
    }

    /// Whether it exists as far as limits and the mesh are concerned.
    pub(crate) fn is_present(&self) -> bool {
        match self.stage {
            Stage::Opening | Stage::Unconfirmed { .. } | Stage::Open => true,
            Stage::Leaving | Stage::Over => false,
        }
    }

    /// The same where only what is verified counts: three questions in a row went unanswered on a subflow that does not.
    pub(crate) fn counts(&self) -> bool {
        self.is_present() && !self.life.is_unverified()
    }

    /// Whether nothing has ever verified it, on a sealed connection.
    pub(crate) fn is_unproven(&self) -> bool {
        match self.life.standing() {
            Standing::Fresh => true,
            Standing::Unverified => self.life.verified_at().is_none(),
            Standing::Unasked | Standing::Verified => false,
        }
    }

    /// Whether nobody has answered on it: our SYN, or for so long what proves that the join is ours that it may never arrive.
    pub(crate) fn is_hanging(&self) -> bool {
        /// Half a second and more of patience lies before the third time it is said.
        const LONG: u8 = 2;
        match self.stage {
            Stage::Opening => true,
            Stage::Unconfirmed { again: _, tries } => tries >= LONG,
            Stage::Open | Stage::Leaving | Stage::Over => false,
        }
    }

    /// The peer's join, before it has proved that it is the peer's.
    pub(crate) fn is_unproved_join(&self) -> bool {
        matches!((self.stage, self.kind), (Stage::Opening, Kind::JoinPassive { .. }))
    }
}

impl Subflow {
    pub(crate) fn new(tcp: plait_tcp::Connection, state: SubflowState) -> Self {
        Self { tcp, state, memo: Memo::default() }
    }

    /// Whether it may be given data at all.
    pub(crate) fn is_open(&self) -> bool {
        self.state.stage == Stage::Open && self.state.class != PathClass::Never
    }

    /// Whether it should be given data.
    pub(crate) fn is_good(&self) -> bool {
        self.is_open()
            && self.state.stall.is_none()
            && self.state.doubt.is_none()
            && !self.state.life.is_unverified()
    }

    /// Whether it should be given data before any backup is.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_good() && !self.state.is_backup() && !self.state.sealed.delivery.is_suspect()
    }

    /// Whether both cross one path of the peer: by the number that the opener has told, sealed, or by the address where it has not.
    pub(crate) fn shares_path(&self, other: &Self) -> bool {
        match (self.state.sealed.path_number, other.state.sealed.path_number) {
            (Some(one), Some(two)) => one == two,
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                self.state.tuple.remote.ip() == other.state.tuple.remote.ip()
            }
        }
    }

    /// Whether something was given to it that the peer has not acknowledged.
    pub(crate) fn is_busy(&self) -> bool {
        self.tcp.acked_offset() < self.tcp.next_offset()
    }

    /// When it counts as stalled unless it makes progress before.
    pub(crate) fn stall_deadline(&self, stats: &Stats) -> Option<Instant> {
        self.is_busy()
            .then(|| self.tcp.last_progress() + longest_trip_of(stats.srtt.unwrap_or(UNKNOWN_RTT), stats))
    }

    /// The smoothed round trip to count with: TCP's, and where Data-ACKs can be believed at least what those prove.
    pub(crate) fn round_trip(&self, stats: &Stats) -> Duration {
        self.state.sealed.delivery.round_trip(stats.srtt.unwrap_or(UNKNOWN_RTT))
    }

    /// Bytes that it may be given, now or when it is their turn by pacing.
    pub(crate) fn room(&self, now: Instant, stats: &Stats) -> usize {
        let capacity = self.tcp.window_capacity();
        self.state.restraint.map_or(capacity, |restraint| {
            let limit = restraint.limit(now, self.round_trip(stats));
            let left =
                usize::try_from(limit.saturating_sub(u64::from(stats.in_flight))).unwrap_or(usize::MAX);
            if left < usize::from(self.tcp.segment_payload(0)) { 0 } else { capacity.min(left) }
        })
    }

    /// The whole stream has stood still for what it carries: it is given half of its window, at most once in a round trip. What it
    /// has in flight is no measure: where the stream has stood still for a while that is next to nothing on every subflow.
    pub(crate) fn restrain(&mut self, now: Instant) {
        let stats = self.tcp.stats();
        let is_new = |old: Restraint| now.saturating_since(old.since) > self.round_trip(&stats);
        if self.state.restraint.is_none_or(is_new) {
            let least = 2 * u32::from(self.tcp.segment_payload(0));
            self.state.restraint =
                Some(Restraint { bytes: (stats.congestion_window / 2).max(least), since: now });
        }
    }

    /// The longest time that a block may take without anything being wrong, by the measure of this subflow.
    pub(crate) fn longest_trip(&self) -> Duration {
        let stats = self.tcp.stats();
        longest_trip_of(self.round_trip(&stats), &stats)
    }

    /// Whether its bytes are not to be taken, as there is no room for their mapping: what TCP has acknowledged nobody sends
    /// again. That of the next bytes has always room, so that those that wait for them can go on.
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

    /// The peer is told, by MP_PRIO, whether we want it used as a backup.
    pub(crate) fn say_priority(&mut self, backup: bool) {
        // What was to be said before is not so any more.
        self.state.control.retain(|waiting| !matches!(waiting, Control::Prio { .. }));
        if self.state.signal(Control::Prio { backup }) {
            self.tcp.request_ack();
        }
    }

    /// Gives it up while it is being opened: another subflow over its path has been faster.
    pub(crate) fn cancel(&mut self) {
        log::debug!(subflow = self.state.id.0, path = ?self.state.path, "join is given up: another was faster");
        self.state.stage = Stage::Leaving;
        self.tcp.abort();
    }

    /// Nothing new goes out on it; a FIN follows what did.
    pub(crate) fn leave(&mut self) {
        self.state.stage = Stage::Leaving;
        self.tcp.finish();
    }

    /// The connection is complete: nobody waits for what it still does.
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

/// Round-trip time of a subflow that has not measured any.
pub(crate) const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// Round trips without progress after which others take over.
pub(crate) const STALL_ROUND_TRIPS: u32 = 3;
/// And never sooner than this: delayed ACKs and schedulers take their time.
const MIN_STALL: Duration = Duration::from_millis(150);
