//! When a subflow makes no progress, others send its data too; when it is lost, they send all of it.

use crate::log;
use plait_base::{Duration, Instant, SubflowId};
use plait_tcp::State;
use plait_wire::ResetReason;

use crate::Connection;
use crate::protection::Mode;
use crate::send::DataTimeout;
use crate::send::blocks::{Block, Carrier};
use crate::subflows::flow::{Flow, ResetInfo, STALL_ROUND_TRIPS, Stage, Stall};
use crate::subflows::{Look, Subflows};

/// A block that the peer of a sealed connection waits for is sent on another subflow when it is late by the measure of that one;
/// whatever the subflow that has it says of itself, it is late after this.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// A subflow whose block the peer has waited for so long is given nothing new where another could take it, so that queues in
/// front of it do not make its blocks late; and backups are used beside it.
const LONGEST_QUEUE: Duration = Duration::from_millis(300);
/// A stalled subflow is closed after so long if others work; the path manager tries the path again later.
const MAX_STALL: Duration = Duration::from_secs(8);
/// Timeouts in a row after which a subflow that is being closed is dropped: its data goes other ways.
const MAX_FIN_TIMEOUTS: u8 = 4;
/// The same once the connection is complete: nobody misses anything then, and somebody may wait for the end.
const MAX_LAST_FIN_TIMEOUTS: u8 = 2;

impl Connection {
    /// Looks for subflows that stand still, and for those that move again.
    pub(crate) fn check_stalls(&mut self, now: Instant) {
        self.drop_unanswered();
        if self.mode() != Mode::Multipath || self.closing.is_over() {
            return;
        }
        self.outgoing.follow_timer(now);
        for index in 0..self.flows.len() {
            if self.flows[index].is_open() && self.may_have_stalled(now, index) {
                self.check_stall(now, index);
            }
            self.flows.on_looked(Look::Stall, index);
        }
    }

    /// Subflows whose FIN nobody answers: nothing depends on them any more.
    fn drop_unanswered(&mut self) {
        if matches!(self.mode(), Mode::Plain(_)) {
            return;
        }
        let most = if self.closing.is_over() { MAX_LAST_FIN_TIMEOUTS } else { MAX_FIN_TIMEOUTS };
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            if flow.state.stage == Stage::Leaving && flow.figures().backoff >= most {
                self.flows[index].reset(ResetInfo::for_now(ResetReason::UnacceptablePerformance));
            }
        }
    }

    /// Whether something may have changed about the progress of this subflow: by itself, by time, or, where the connection waits
    /// for it, by what others do.
    fn may_have_stalled(&self, now: Instant, index: usize) -> bool {
        let flow = &self.flows[index];
        let figures = flow.figures();
        let is_waited_for = || self.outgoing.first().is_some_and(|first| first.is_carried_by(flow.state.id));
        self.flows.wants(Look::Stall, index)
            || flow.state.stall.is_some()
            || figures.is_half_closed
            || figures.stall.is_some_and(|at| at <= now)
            || is_waited_for()
    }

    fn check_stall(&mut self, now: Instant, index: usize) {
        let flow = &self.flows[index];
        let (id, acked) = (flow.state.id, flow.tcp.acked_offset());
        let has_other = self.flows.has_other_good(id);
        // The peer may have left it when there was something to send; now there is not.
        let is_half_closed = flow.tcp.state() == State::CloseWait && self.outgoing.queued() == 0;
        if is_half_closed && self.leave_half_closed(index) {
            return;
        }
        let flow = &self.flows[index];
        match flow.state.stall {
            Some(stall) if self.has_recovered(flow, stall) => {
                self.flows[index].state.stall = None;
                self.on_recovered(index);
            }
            Some(stall) if has_other && stall.since + MAX_STALL <= now => {
                log::debug!(subflow = id.0, "subflow has stood still for too long");
                self.counters.stalled_closed += 1;
                self.flows[index].reset(ResetInfo::for_now(ResetReason::UnacceptablePerformance));
            }
            Some(_) => {}
            None if !flow.is_busy() && self.late_deadline(flow).is_none() => {}
            None => {
                let stats = flow.tcp.stats();
                let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
                let is_late = is_over(flow.stall_deadline(&stats)) || is_over(self.late_deadline(flow));
                if stats.backoff > 0 || (is_late && has_other) {
                    let is_denied = self.protection.is_sealed() && stats.backoff == 0;
                    let flow = &mut self.flows[index];
                    flow.state.stall = Some(Stall { since: now, acked, until: flow.tcp.next_offset() });
                    if is_denied {
                        flow.state.sealed.delivery.on_late();
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

    /// Whether a subflow that stood still does not any more. On a sealed connection progress that anybody on its path can
    /// feign is not enough: all that it had is through, and the peer does not wait for any of it.
    fn has_recovered(&self, flow: &Flow, stall: Stall) -> bool {
        let acked = flow.tcp.acked_offset();
        if !self.protection.is_sealed() {
            return stall.acked < acked || !flow.is_busy();
        }
        let is_old = |carrier: &Carrier| carrier.flow == flow.state.id && carrier.end <= stall.until;
        acked >= stall.until && !self.outgoing.first().is_some_and(|first| first.carriers.iter().any(is_old))
    }

    /// When the first block without an acknowledgment is late on this subflow, if it carries it. What counts is the Data-ACK, whatever
    /// TCP says.
    fn late_deadline(&self, flow: &Flow) -> Option<Instant> {
        if !self.protection.is_sealed() {
            return None;
        }
        let first = self.outgoing.first()?;
        let carrier = first.carriers.iter().find(|carrier| carrier.flow == flow.state.id)?;
        Some(carrier.since + self.longest_wait(flow))
    }

    /// How long a block may take on `flow`: what its own round trips allow, though not longer than the best of the others would
    /// take, and no shorter time than queues explain.
    fn longest_wait(&self, flow: &Flow) -> Duration {
        let others = self.flows.iter().filter(|other| other.state.id != flow.state.id && other.is_good());
        let limit = others.map(Flow::longest_trip).min().map_or(Duration::MAX, |best| best.max(LONGEST_WAIT));
        flow.longest_trip().min(limit)
    }

    /// Whether the peer has waited for a block of this subflow for so long that it is not given more, while another is there.
    pub(crate) fn is_queue_long(&self, now: Instant, flow: &Flow) -> bool {
        self.protection.is_sealed()
            && self.outgoing.first().and_then(Block::only_carrier).is_some_and(|carrier| {
                carrier.flow == flow.state.id && now.saturating_since(carrier.since) > LONGEST_QUEUE
            })
    }

    /// What only this subflow carries goes out on others too.
    fn reinject_from(&mut self, id: SubflowId) {
        let flows = &self.flows;
        let is_good = |other: SubflowId| flows.iter().any(|flow| flow.state.id == other && flow.is_good());
        self.outgoing.on_stalled(id, is_good);
    }

    /// A subflow has ended.
    pub(crate) fn on_flow_lost(&mut self, now: Instant, index: usize, was: Stage) {
        let state = &self.flows[index].state;
        let (id, path, remote) = (state.id, state.path, state.tuple.remote);
        log::debug!(subflow = id.0, ?path, %remote, ?was, "subflow is lost: its data goes on others");
        let (is_ours, has_carried) = (state.is_ours(), self.flows[index].tcp.next_offset() > 1);
        if has_carried {
            self.outgoing.on_lost(id);
        }
        match was {
            Stage::Opening | Stage::Unconfirmed { .. } if is_ours => {
                self.paths.on_join_failed(now, path, remote);
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
        if !self.flows.has_open() {
            self.paths.hurry(now);
            self.closing.on_no_subflow(now);
        }
        if !self.flows.has_lasting() {
            self.closing.on_no_way(now);
        }
    }

    /// Without any subflow the connection waits, but not for ever.
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
        let since = self.outgoing.stuck_since().filter(|_| self.protection.is_sealed())?;
        Some(since + self.config.protect.longest_silence()? + self.config.no_subflow_timeout)
    }

    /// When to look for subflows that stand still.
    pub(crate) fn stall_deadline(&self) -> Option<Instant> {
        if self.mode() != Mode::Multipath || self.closing.is_over() || self.flows.len() < 2 {
            return None;
        }
        let good = self.flows.iter().filter(|flow| flow.is_good()).count();
        let of = |flow: &Flow| match flow.state.stall {
            Some(stall) if good > 0 => Some(stall.since + MAX_STALL),
            Some(_) => None,
            None if good > 1 => {
                let of_tcp = flow.figures().stall;
                of_tcp.into_iter().chain(self.late_deadline(flow)).min()
            }
            None => None,
        };
        self.flows.iter().filter(|flow| flow.is_open()).filter_map(of).min()
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
                for flow in self.flows.iter_mut().filter(|flow| flow.is_open()) {
                    flow.tcp.request_ack();
                }
            }
            DataTimeout::Probe => {
                for flow in self.flows.iter_mut().filter(|flow| flow.is_open() && !flow.is_busy()) {
                    flow.tcp.probe();
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
        let is_in_tcp = |flow: &Flow| {
            let carrier = block.carriers.iter().find(|carrier| carrier.flow == flow.state.id);
            carrier.is_some_and(|carrier| carrier.end > flow.tcp.acked_offset())
        };
        self.flows.iter().position(|flow| {
            flow.is_good()
                && !is_in_tcp(flow)
                && flow.tcp.unsent() == 0
                && self.may_carry(flow, start, block.end())
        })
    }

    pub(crate) fn data_timer_deadline(&self) -> Option<Instant> {
        let slowest = self.flows.iter().filter(|flow| flow.is_open()).map(|flow| flow.figures().rto).max();
        self.outgoing.timer_deadline(slowest)
    }
}

/// The round trip that the receive buffer has to cover: that of the slowest path. Where somebody on a path may have made it up
/// and that is to cost nothing, on a sealed connection, it is no longer than the sender would wait for that path.
pub(crate) fn slowest_round_trip(now: Instant, flows: &Subflows, is_sealed: bool) -> Duration {
    let round_trips = || flows.iter().filter_map(|flow| flow.tcp.receive_round_trip(now));
    let slowest = round_trips().max().unwrap_or_default();
    let limit = round_trips().min().map(|fastest| (STALL_ROUND_TRIPS * fastest).max(LONGEST_WAIT));
    limit.filter(|_| is_sealed).map_or(slowest, |limit| slowest.min(limit))
}
