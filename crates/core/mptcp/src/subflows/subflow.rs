//! One subflow: its TCP, and the state that the connection keeps for it.

use crate::log;
use plait_base::{Duration, Instant};
use plait_protect::sealed::PathNumber;
use plait_tcp::{State, Stats};
use plait_wire::{ResetReason, Segment};

use super::doubt::{Doubt, Verdict};
use super::memo::Memo;
use super::signal::ResetInfo;
use super::stage::Stage;
use super::stall::{Restraint, Stall, UNKNOWN_RTT, longest_trip_of};
use super::state::SubflowState;
use crate::{PathClass, SubflowStatus};

/// A subflow: the TCP connection, and the remaining state. The two are separate so that the state can write the options while TCP asks for
/// them.
pub(crate) struct Subflow {
    pub(crate) tcp: plait_tcp::Connection,
    pub(crate) state: SubflowState,
    pub(super) memo: Memo,
}

impl Subflow {
    pub(crate) fn new(tcp: plait_tcp::Connection, state: SubflowState) -> Self {
        Self { tcp, state, memo: Memo::default() }
    }

    /// Whether it may carry data at all.
    pub(crate) fn is_open(&self) -> bool {
        self.state.stage() == Stage::Open && self.state.class() != PathClass::Never
    }

    /// Whether it should get data.
    pub(crate) fn is_good(&self) -> bool {
        self.is_open()
            && self.state.stall().is_none()
            && !self.state.is_doubted()
            && !self.state.life().is_unverified()
    }

    /// Whether it should get data before any backup does.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_good() && !self.state.is_backup() && !self.state.sealed().delivery().is_suspect()
    }

    /// Whether both cross the same path of the peer: by the number that the opener has sent, sealed, or else by the address.
    pub(crate) fn shares_path(&self, other: &Self) -> bool {
        match (self.path_number(), other.path_number()) {
            (Some(one), Some(two)) => one == two,
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                self.state.tuple().remote.ip() == other.state.tuple().remote.ip()
            }
        }
    }

    /// Returns the opener's number for its path, if both ends know it. An attacker cannot choose it: the handshake crosses path 0, and an
    /// exchange transmits the others sealed. In an exchange 0 also stands for a path that does not count as another one, so it is no number.
    pub(crate) fn path_number(&self) -> Option<PathNumber> {
        match self.state.is_first() {
            true => Some(PathNumber::HANDSHAKE),
            false => self.state.sealed().path_number().filter(|number| *number != PathNumber::HANDSHAKE),
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
        self.state.sealed().delivery().round_trip(stats.srtt.unwrap_or(UNKNOWN_RTT))
    }

    /// Returns the number of bytes that it may get, now or after its turn by pacing.
    pub(crate) fn room(&self, now: Instant, stats: &Stats) -> usize {
        let capacity = self.tcp.window_capacity();
        self.state.restraint().map_or(capacity, |restraint| {
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
        if self.state.restraint().is_none_or(is_new) {
            let least = 2 * u32::from(self.tcp.segment_payload(0));
            let bytes = (stats.congestion_window / 2).max(least);
            self.state.on_restrained(Restraint { bytes, since: now });
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
        let is_full = self.state.has_full_mappings() || self.state.sealed().has_full_inbox();
        is_full && !segment.payload.is_empty() && !self.tcp.is_in_order(segment)
    }

    /// Resets it.
    pub(crate) fn reset(&mut self, reset_info: ResetInfo) {
        log::debug!(
            subflow = self.state.id().0,
            path = ?self.state.path(),
            reason = ?reset_info.reason.map(|said| said.reason),
            fast_close = reset_info.fast_close,
            "subflow is reset"
        );
        self.state.on_reset(reset_info);
        self.tcp.abort();
    }

    /// Stops giving it new bytes because it makes no progress. It carries on with those that it has.
    pub(crate) fn stall(&mut self, now: Instant) {
        let (acked, until) = (self.tcp.acked_offset(), self.tcp.next_offset());
        self.state.on_stalled(Stall { since: now, acked, until });
    }

    /// This host did not run until now: the subflow is asked for an answer at once, and its silence counts from here.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.tcp.resume(now);
        self.state.on_resumed(now);
    }

    /// Asks whether it still works, because the peer has withdrawn its address.
    pub(crate) fn doubt(&mut self, now: Instant) {
        let doubt = Doubt::new(now, self.tcp.stats().min_rtt, self.longest_trip());
        self.state.on_doubted(doubt);
        self.tcp.probe();
    }

    /// Asks again if that is due. Returns whether it has not answered, after which it is no longer doubted.
    pub(crate) fn resolve_doubt(&mut self, now: Instant) -> bool {
        match self.state.resolve_doubt(now) {
            Verdict::Wait => false,
            Verdict::Ask => {
                self.tcp.probe();
                false
            }
            Verdict::Gone => true,
        }
    }

    /// Tells the peer by MP_PRIO whether we want it used as a backup.
    pub(crate) fn say_priority(&mut self) {
        if self.state.signal_priority() {
            self.tcp.request_ack();
        }
    }

    /// Gives it up while it is being opened, because another subflow over its path was faster.
    pub(crate) fn cancel(&mut self) {
        log::debug!(subflow = self.state.id().0, path = ?self.state.path(), "join is given up: another was faster");
        self.state.on_leaving();
        self.tcp.abort();
    }

    /// Sends nothing new on it. A FIN follows the bytes already given to it.
    pub(crate) fn leave(&mut self) {
        self.state.on_leaving();
        self.tcp.finish();
    }

    /// Ends it after the connection is complete: its remaining work is not needed.
    pub(crate) fn part(&mut self, now: Instant) {
        match self.state.stage() {
            Stage::Open if self.state.stall().is_none() => self.leave(),
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
            id: self.state.id(),
            path: self.state.path(),
            tuple: self.state.tuple(),
            usable: self.is_good(),
            verified: self.state.life().verified_at(),
            doubted: self.state.life().is_unverified(),
            backup: self.state.is_backup(),
            tcp: self.tcp.stats(),
            reinjected: self.state.reinjected(),
            blocks_failed: self.state.sealed().failures(),
            tags_failed: self.state.sealed().tags_failed(),
            end: self.state.end(),
            seen: self.state.sealed().seen(),
            times_seen: self.state.sealed().times_seen(),
            peer_syn: self.tcp.peer_syn(),
        }
    }
}
