//! Reinjection: if a subflow makes no progress, others send its data too; if it is lost, they send all of it.

use crate::log;
use plait_base::{Duration, Instant, SubflowId};
use plait_tcp::{Closed, State};
use plait_wire::ResetReason;

use crate::Connection;
use crate::protection::Mode;
use crate::send::DataTimeout;
use crate::send::blocks::{Block, Carrier};
use crate::subflows::{Look, ResetInfo, STALL_ROUND_TRIPS, Stage, Stall, Subflow, Subflows};

/// A block that the peer of a sealed connection waits for is sent on another subflow when it is late by the measure of that one;
/// whatever the subflow that has it says of itself, it is late after this.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// A subflow whose block the peer has waited for so long is given nothing new where another could take it, until it has no more on its way than
/// it delivers in this time, so that queues in front of it do not make its blocks late; and backups are used beside it.
const LONGEST_QUEUE: Duration = Duration::from_millis(300);
/// A stalled subflow is closed after so long if others work; the path manager tries the path again later.
const MAX_STALL: Duration = Duration::from_secs(8);
/// Timeouts in a row after which a subflow that is being closed is dropped: its data takes other subflows.
const MAX_FIN_TIMEOUTS: u8 = 4;
/// The same once the connection is complete: no byte is missing then, and the application may wait for the end.
const MAX_LAST_FIN_TIMEOUTS: u8 = 2;

/// The possible causes of a reset in answer to a join.
const REFUSED: &str = "the join was refused: the host there does not know this connection. An attacker may be in the middle of \
     another path, or a balancer has chosen another machine";

impl Connection {
    /// Checks which subflows have stalled, and which make progress again.
    pub(crate) fn check_stalls(&mut self, now: Instant) {
        self.drop_unanswered();
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return;
        }
        self.outgoing.follow_timer(now);
        for index in 0..self.subflows.len() {
            if self.subflows[index].is_open() && self.may_have_stalled(now, index) {
                self.check_stall(now, index);
            }
            self.subflows.on_looked(Look::Stall, index);
        }
    }

    /// Drops subflows with an unanswered FIN: nothing depends on them any more.
    fn drop_unanswered(&mut self) {
        if matches!(self.mode(), Mode::Plain(_)) {
            return;
        }
        let most = if self.closing.is_over() { MAX_LAST_FIN_TIMEOUTS } else { MAX_FIN_TIMEOUTS };
        for index in 0..self.subflows.len() {
            let subflow = &self.subflows[index];
            if subflow.state.stage() == Stage::Leaving && subflow.figures().backoff >= most {
                self.subflows.touch(index).reset(ResetInfo::for_now(ResetReason::UnacceptablePerformance));
            }
        }
    }

    /// Whether something may have changed about the progress of this subflow: by itself, by time, or, where the connection waits
    /// for it, by what others do.
    fn may_have_stalled(&self, now: Instant, index: usize) -> bool {
        let subflow = &self.subflows[index];
        let figures = subflow.figures();
        let is_waited_for =
            || self.outgoing.first().is_some_and(|first| first.is_carried_by(subflow.state.id()));
        self.subflows.wants(Look::Stall, index)
            || subflow.state.stall().is_some()
            || figures.is_half_closed
            || figures.stall.is_some_and(|at| at <= now)
            || is_waited_for()
    }

    fn check_stall(&mut self, now: Instant, index: usize) {
        let subflow = &self.subflows[index];
        let id = subflow.state.id();
        let has_other = self.subflows.has_other_good(id);
        // The peer may have left it when there was something to send; now there is not.
        let is_half_closed = subflow.tcp.state() == State::CloseWait && self.outgoing.queued() == 0;
        if is_half_closed && self.leave_half_closed(index) {
            return;
        }
        let subflow = &self.subflows[index];
        match subflow.state.stall() {
            Some(stall) if self.has_recovered(subflow, stall) => {
                self.subflows.touch(index).state.on_recovered();
                self.on_recovered(now, index);
            }
            Some(stall) if has_other && stall.since + MAX_STALL <= now => {
                log::debug!(subflow = id.0, "subflow has stood still for too long");
                self.counters.stalled_closed += 1;
                self.subflows.touch(index).reset(ResetInfo::for_now(ResetReason::UnacceptablePerformance));
            }
            Some(_) => {}
            None if !subflow.is_busy() && self.late_deadline(subflow).is_none() => {}
            None => {
                let stats = subflow.tcp.stats();
                let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
                let is_late = is_over(subflow.stall_deadline(&stats)) || is_over(self.late_deadline(subflow));
                if stats.backoff > 0 || (is_late && has_other) {
                    let is_denied = self.protection.authenticates_data_acks() && stats.backoff == 0;
                    let subflow = self.subflows.touch(index);
                    subflow.stall(now);
                    if is_denied {
                        subflow.state.sealed_mut().delivery_mut().on_late();
                    }
                    log::debug!(
                        subflow = id.0,
                        backoff = stats.backoff,
                        "subflow stands still: its data goes on others too"
                    );
                    self.counters.stalls += 1;
                    self.reinject_from(id);
                }
            }
        }
    }

    /// Whether a stalled subflow makes progress again. On a sealed connection progress that an attacker on its path can
    /// feign is not enough: all that it had is through, and the peer does not wait for any of it.
    fn has_recovered(&self, subflow: &Subflow, stall: Stall) -> bool {
        let acked = subflow.tcp.acked_offset();
        if !self.protection.authenticates_data_acks() {
            return stall.acked < acked || !subflow.is_busy();
        }
        let is_old = |carrier: &Carrier| carrier.subflow == subflow.state.id() && carrier.end <= stall.until;
        acked >= stall.until && !self.outgoing.first().is_some_and(|first| first.carriers.iter().any(is_old))
    }

    /// When the first block without an acknowledgment is late on this subflow, if it carries it. What counts is the Data-ACK, whatever
    /// TCP says.
    fn late_deadline(&self, subflow: &Subflow) -> Option<Instant> {
        if !self.protection.authenticates_data_acks() {
            return None;
        }
        let first = self.outgoing.first()?;
        let carrier = first.carriers.iter().find(|carrier| carrier.subflow == subflow.state.id())?;
        Some(carrier.since + self.longest_wait(subflow))
    }

    /// How long a block may take on `subflow`: what its own round trips allow, though not longer than the best of the others would
    /// take, and no shorter time than queues explain.
    fn longest_wait(&self, subflow: &Subflow) -> Duration {
        let others =
            self.subflows.iter().filter(|other| other.state.id() != subflow.state.id() && other.is_good());
        let limit =
            others.map(Subflow::longest_trip).min().map_or(Duration::MAX, |best| best.max(LONGEST_WAIT));
        subflow.longest_trip().min(limit)
    }

    /// Whether this subflow is not given more, while another is there: the peer has waited for a block of it for too long, and for more behind it.
    /// What is sent later is not late for what was in front of it: waiting for that, too, would leave the path empty for a round trip.
    /// Selective acknowledgments do not count: an attacker that delays the first block gains nothing by forging them.
    pub(crate) fn has_too_much(&self, now: Instant, subflow: &Subflow) -> bool {
        self.is_queue_long(now, subflow)
            && subflow.state.sealed().delivery().bytes_in(LONGEST_QUEUE).is_none_or(|bytes| {
                subflow.tcp.next_offset().saturating_sub(subflow.tcp.acked_offset()) as f64 >= bytes
            })
    }

    /// Whether the peer has waited for a block of this subflow for too long.
    pub(crate) fn is_queue_long(&self, now: Instant, subflow: &Subflow) -> bool {
        self.protection.authenticates_data_acks()
            && self.outgoing.first().and_then(Block::only_carrier).is_some_and(|carrier| {
                carrier.subflow == subflow.state.id() && now.saturating_since(carrier.since) > LONGEST_QUEUE
            })
    }

    /// Sends the blocks that only this subflow carries on others too.
    fn reinject_from(&mut self, id: SubflowId) {
        let subflows = &self.subflows;
        let is_good = |other: SubflowId| {
            subflows.iter().any(|subflow| subflow.state.id() == other && subflow.is_good())
        };
        self.outgoing.on_stalled(id, is_good);
    }

    /// Handles the end of a subflow.
    pub(crate) fn on_subflow_lost(&mut self, now: Instant, index: usize, was: Stage) {
        let state = &self.subflows[index].state;
        let (id, path, remote) = (state.id(), state.path(), state.tuple().remote);
        log::debug!(subflow = id.0, ?path, %remote, ?was, "subflow is lost: its data goes on others");
        let end = state.end();
        let has_proved = matches!(was, Stage::Open | Stage::Over) && !state.is_unproven();
        let path_number = self.subflows[index].path_number();
        let (is_ours, has_carried) = (state.is_ours(), self.subflows[index].tcp.next_offset() > 1);
        if has_carried {
            self.outgoing.on_lost(id);
        }
        match was {
            Stage::Opening | Stage::Unconfirmed { .. } if is_ours => {
                self.paths.on_join_failed(now, path, remote);
                if matches!(end, Some(Closed::Refused | Closed::ResetByPeer)) {
                    self.paths.on_turned_away(now, path, remote);
                }
                let why = match end {
                    Some(Closed::Refused | Closed::ResetByPeer) => REFUSED,
                    Some(Closed::Unreachable) => {
                        "nothing leads from there to the address that was connected to"
                    }
                    Some(Closed::TimedOut) => "the join was not answered",
                    Some(Closed::Finished | Closed::Aborted) | None => "the join came to nothing",
                };
                self.on_path_missing(now, path, why);
            }
            // TCP alone has said that it was complete: the join came to nothing.
            Stage::Open | Stage::Over if is_ours && self.subflows[index].state.is_unproven() => {
                self.paths.on_join_failed(now, path, remote);
                self.on_path_missing(now, path, "nothing that could be verified came back");
            }
            Stage::Open | Stage::Over if is_ours => {
                if has_carried || was == Stage::Open {
                    self.paths.on_worked(path, remote);
                }
                self.paths.on_lost(now, path, remote);
            }
            Stage::Opening | Stage::Unconfirmed { .. } | Stage::Open | Stage::Over | Stage::Leaving => {}
        }
        if has_carried || was == Stage::Open {
            self.paths.on_room(now);
        }
        // One that hangs while it is being opened is no subflow to wait for.
        if !self.subflows.has_open() {
            self.paths.hurry(now);
        }
        let is_reset = matches!(end, Some(Closed::Refused | Closed::ResetByPeer));
        // A join that nothing verified says nothing of a path: an attacker on another path may have sent it on from there, or refused it.
        if !is_reset || has_proved {
            self.closing.on_lost(path_number, is_reset);
        }
        // The time of an outage counts from the moment at which the last subflow is given up, not from that at which it is doubted.
        if !self.subflows.has_unended() {
            self.closing.on_no_subflow(now);
        }
        if !self.subflows.has_lasting() {
            self.closing.on_no_way(now);
        }
    }

    /// Returns when the wait without any subflow ends.
    pub(crate) fn no_subflow_deadline(&self) -> Option<Instant> {
        if self.closing.is_over() {
            return None;
        }
        self.no_way_deadline().into_iter().chain(self.stuck_deadline()).min()
    }

    /// There is no way to the peer that has lasted, or nothing has come that can be believed, for too long.
    pub(crate) fn run_outage(&mut self, now: Instant) {
        let is_stuck = self.stuck_deadline().is_some_and(|deadline| deadline <= now);
        if self.run_no_way(now) || is_stuck {
            self.fail(crate::ConnectionError::AllPathsLost);
        }
    }

    /// Paths that corrupt whatever crosses them look alive to TCP. Where Data-ACKs can be believed, none of them for as long
    /// as dead paths would be borne is the same as no path.
    fn stuck_deadline(&self) -> Option<Instant> {
        let since = self.outgoing.stuck_since().filter(|_| self.protection.authenticates_data_acks())?;
        Some(since + self.config.protect.longest_silence()? + self.config.no_subflow_timeout)
    }

    /// Returns when subflows must be checked for a stall.
    pub(crate) fn stall_deadline(&self) -> Option<Instant> {
        if self.mode() != Mode::Multipath || self.closing.is_over() || self.subflows.len() < 2 {
            return None;
        }
        let good = self.subflows.iter().filter(|subflow| subflow.is_good()).count();
        let of = |subflow: &Subflow| match subflow.state.stall() {
            Some(stall) if good > 0 => Some(stall.since + MAX_STALL),
            Some(_) => None,
            None if good > 1 => {
                let of_tcp = subflow.figures().stall;
                of_tcp.into_iter().chain(self.late_deadline(subflow)).min()
            }
            None => None,
        };
        self.subflows.iter().filter(|subflow| subflow.is_open()).filter_map(of).min()
    }

    /// Data that should have been acknowledged by now is sent again, the first block of it.
    pub(crate) fn run_data_timer(&mut self, now: Instant) {
        // A timeout of TCP that was run just now may have moved it.
        if self.data_timer_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        log::debug!("no Data-ACK in time");
        self.counters.data_timeouts += 1;
        match self.outgoing.on_timeout(now) {
            DataTimeout::RepeatFin => {
                for subflow in self.subflows.touch_all().filter(|subflow| subflow.is_open()) {
                    subflow.tcp.request_ack();
                }
            }
            DataTimeout::Probe => {
                for subflow in
                    self.subflows.touch_all().filter(|subflow| subflow.is_open() && !subflow.is_busy())
                {
                    subflow.tcp.probe();
                }
            }
            DataTimeout::Resend { start } => {
                if let Some(target) = self.other_way_for(start) {
                    self.resend(now, target, start);
                }
            }
        }
    }

    /// A subflow that may send the block at `start` once more, and whose TCP does not have it under way.
    fn other_way_for(&self, start: u64) -> Option<usize> {
        let block = self.outgoing.block(start)?;
        let is_in_tcp = |subflow: &Subflow| {
            let carrier = block.carriers.iter().find(|carrier| carrier.subflow == subflow.state.id());
            carrier.is_some_and(|carrier| carrier.end > subflow.tcp.acked_offset())
        };
        self.subflows.iter().position(|subflow| {
            subflow.is_good()
                && !is_in_tcp(subflow)
                && subflow.tcp.unsent() == 0
                && self.may_carry(subflow, start, block.end())
        })
    }

    pub(crate) fn data_timer_deadline(&self) -> Option<Instant> {
        let slowest = self
            .subflows
            .iter()
            .filter(|subflow| subflow.is_open())
            .map(|subflow| subflow.figures().rto)
            .max();
        self.outgoing.timer_deadline(slowest)
    }
}

/// The round trip that the receive buffer has to cover: that of the slowest path. Where an attacker may have forged it
/// and that is to cost nothing (`is_limited`), it is no longer than the sender would wait for that path.
pub(crate) fn slowest_round_trip(now: Instant, subflows: &Subflows, is_limited: bool) -> Duration {
    let round_trips = || subflows.iter().filter_map(|subflow| subflow.tcp.receive_round_trip(now));
    let slowest = round_trips().max().unwrap_or_default();
    let limit = round_trips().min().map(|fastest| (STALL_ROUND_TRIPS * fastest).max(LONGEST_WAIT));
    limit.filter(|_| is_limited).map_or(slowest, |limit| slowest.min(limit))
}
