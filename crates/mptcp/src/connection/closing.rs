//! The end of the connection: DATA_FIN both ways and then FIN on each subflow, or a failure.

use crate::log;
use plait_base::{Dsn, Duration, Instant};
use plait_wire::ResetReason;

use crate::protection::Mode;
use crate::subflows::flow::{Flow, ResetInfo, Stage};
use crate::{Connection, ConnectionError};

/// Wrong keys on one subflow from which on none is looked at there any more. They are believed outside the window too, where
/// anybody could guess for ever; the other subflows, and resets without a key, are as good as before.
const MAX_BAD_FAST_CLOSES: u64 = 64;
/// How long both ends, once they are verified, wait for the last acknowledgment of a DATA_FIN: longer than a lost segment takes
/// to be sent again, as long as nobody hinders it.
const MAX_PARTING: Duration = Duration::from_secs(2);

/// Whether the connection lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It does.
    Open {
        /// Nobody reads: data is answered by a reset.
        refuses_data: bool,
    },
    /// Both sides have said all.
    Complete,
    /// It has failed.
    Failed(ConnectionError),
}

impl Default for Life {
    fn default() -> Self {
        Self::Open { refuses_data: false }
    }
}

impl Life {
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Open { .. } => false,
            Self::Complete | Self::Failed(_) => true,
        }
    }

    pub(crate) fn refuses_data(self) -> bool {
        self == Self::Open { refuses_data: true }
    }

    pub(crate) fn error(self) -> Option<ConnectionError> {
        match self {
            Self::Open { .. } | Self::Complete => None,
            Self::Failed(error) => Some(error),
        }
    }
}

impl Connection {
    /// The connection ends here: every subflow is reset.
    pub(crate) fn fail(&mut self, error: ConnectionError) {
        self.fail_and(error, Flow::reset);
    }

    /// The connection ends here; what becomes of each subflow is the caller's to say.
    pub(crate) fn fail_and(&mut self, error: ConnectionError, part: impl Fn(&mut Flow, ResetInfo)) {
        if self.life.is_over() {
            return;
        }
        log::debug!(?error, "connection fails");
        self.life = Life::Failed(error);
        let reset_info = self.last_words(error);
        for flow in &mut self.flows {
            part(flow, reset_info);
        }
        self.stop_everything();
        self.notices.closed(Some(error));
        self.notices.readable();
    }

    /// Both directions are through and acknowledged; subflows close in their own time.
    pub(crate) fn complete(&mut self, now: Instant) {
        if self.life.is_over() {
            return;
        }
        self.life = Life::Complete;
        for flow in &mut self.flows {
            match flow.state.stage {
                Stage::Open if flow.state.stall.is_none() => flow.leave(),
                Stage::Open | Stage::Opening | Stage::Unconfirmed { .. } => {
                    flow.reset(ResetInfo::because(ResetReason::Unspecified));
                }
                Stage::Leaving | Stage::Over => {}
            }
            flow.tcp.orphan(now);
        }
        self.stop_everything();
        self.notices.closed(None);
    }

    pub(crate) fn refuse_data(&mut self) {
        if let Life::Open { refuses_data } = &mut self.life {
            *refuses_data = true;
            self.tell_reader();
        }
    }

    /// The peer's DATA_FIN: its stream ends before `dsn`.
    pub(crate) fn on_data_fin(&mut self, index: usize, dsn: Dsn) {
        let Some(numbers) = self.protection.numbers() else { return };
        let offset = numbers.incoming.offset(dsn);
        let is_new = !self.incoming.has_fin();
        if !offset.is_some_and(|offset| self.incoming.finish(offset)) {
            log::debug!("DATA_FIN dropped: the stream ends elsewhere");
            self.counters.fin_conflicts += 1;
            return;
        }
        // Known already and not in order yet: an answer would say nothing new, and could be answered.
        if is_new || self.incoming.is_finished() {
            self.flows[index].tcp.request_ack();
        }
        self.tell_reader();
    }

    /// Sends what the end of writing calls for, and ends the connection when both sides are through.
    pub(crate) fn progress_closing(&mut self, now: Instant) {
        if self.life.is_over() || !self.outgoing.is_finished() {
            return;
        }
        match self.mode() {
            Mode::Opening => {}
            Mode::Plain(_) => {
                if self.outgoing.queued() == 0
                    && let Some(index) = self.plain_flow()
                    && self.flows[index].state.stage == Stage::Open
                {
                    self.flows[index].leave();
                }
            }
            Mode::Multipath => {
                if self.outgoing.fin().is_some() && !self.outgoing.is_fin_sent() {
                    self.send_data_fin(now);
                }
                if (self.outgoing.is_complete() && self.incoming.is_finished())
                    || self.is_agreed_for_long(now)
                {
                    self.complete(now);
                }
            }
        }
    }

    /// The ends of both streams have been verified for so long that nothing more is waited for. The peer may need our
    /// acknowledgment of its end until then; DATA_FIN, which says that it has it, may never get through.
    fn is_agreed_for_long(&mut self, now: Instant) -> bool {
        if !self.protection.has_both_ends(self.outgoing.acked()) {
            return false;
        }
        *self.agreed_since.get_or_insert(now) + MAX_PARTING <= now
    }

    /// When it ends without the last acknowledgment.
    pub(crate) fn parting_deadline(&self) -> Option<Instant> {
        Some(self.agreed_since.filter(|_| !self.life.is_over())? + MAX_PARTING)
    }

    /// DATA_FIN has no payload: it goes with an ACK on every subflow, so that the fastest counts, and is
    /// repeated by the data timer.
    fn send_data_fin(&mut self, now: Instant) {
        let mut was_sent = false;
        for flow in self.flows.iter_mut().filter(|flow| flow.is_open()) {
            flow.tcp.request_ack();
            was_sent = true;
        }
        if was_sent {
            self.outgoing.on_fin_sent();
            self.outgoing.follow_timer(now);
        }
    }

    fn stop_everything(&mut self) {
        self.outgoing.stop_timer();
        self.paths.stop();
    }

    /// What the resets say.
    fn last_words(&self, error: ConnectionError) -> ResetInfo {
        let reason = match error {
            ConnectionError::Protocol
            | ConnectionError::NotSealed
            | ConnectionError::HandshakeFailed
            | ConnectionError::NegotiationAltered => ResetReason::Mptcp,
            ConnectionError::Corrupted => ResetReason::MiddleboxInterference,
            ConnectionError::Aborted
            | ConnectionError::FastClose
            | ConnectionError::Refused
            | ConnectionError::TimedOut
            | ConnectionError::Unreachable
            | ConnectionError::Reset
            | ConnectionError::PlainRefused
            | ConnectionError::NotScrambled(_)
            | ConnectionError::NoTrustedPath
            | ConnectionError::AllPathsLost => ResetReason::Unspecified,
        };
        match self.mode() {
            // Without a session, or before there is one, nobody could read the options.
            Mode::Plain(_) | Mode::Opening => ResetInfo::default(),
            Mode::Multipath => {
                ResetInfo { fast_close: error != ConnectionError::FastClose, ..ResetInfo::because(reason) }
            }
        }
    }

    /// MP_FASTCLOSE: the peer ends the connection at once. `false` if the key is not ours, or too many were not on this
    /// subflow.
    pub(crate) fn on_fast_close(&mut self, index: usize, key: [u8; 8]) -> bool {
        let bad = &mut self.flows[index].state.bad_fast_closes;
        if *bad >= MAX_BAD_FAST_CLOSES
            || !self.protection.is_fast_close(&key)
            || self.protection.mode() != Mode::Multipath
        {
            log::debug!("MP_FASTCLOSE dropped: the key is wrong");
            *bad += 1;
            self.counters.bad_fast_closes += 1;
            return false;
        }
        self.fail(ConnectionError::FastClose);
        true
    }
}
