//! The end of the connection: applies the decisions of [`Closing`](crate::closing::Closing).

use crate::log;
use plait_base::{Dsn, Instant};

use crate::closing::{Ends, ForReader, Step};
use crate::protection::Mode;
use crate::subflows::{ResetInfo, Stage, Subflow};
use crate::{Connection, ConnectionError};

/// Wrong keys on one subflow from which on none is looked at there any more. They are believed outside the window too, where
/// any host could guess forever; the other subflows, and resets without a key, are not affected.
const MAX_BAD_FAST_CLOSES: u64 = 64;
impl Connection {
    /// Fails the connection and resets every subflow.
    pub(crate) fn fail(&mut self, error: ConnectionError) {
        self.fail_and(error, Subflow::reset);
    }

    /// The connection ends here; what becomes of each subflow is the caller's to say.
    pub(crate) fn fail_and(&mut self, error: ConnectionError, part: impl Fn(&mut Subflow, ResetInfo)) {
        let mode = self.mode();
        let Some(reset_info) = self.closing.fail(error, mode) else { return };
        log::debug!(?error, "connection fails");
        for subflow in self.subflows.touch_all() {
            part(subflow, reset_info);
        }
        self.stop_everything();
        self.notices.closed(Some(error));
        self.notices.readable();
    }

    /// Both directions are through and acknowledged; subflows close in their own time.
    pub(crate) fn complete(&mut self, now: Instant) {
        if self.closing.complete() {
            self.subflows.touch_all().for_each(|subflow| subflow.part(now));
            self.stop_everything();
            self.notices.closed(None);
        }
    }

    pub(crate) fn refuse_data(&mut self) {
        if self.closing.refuse_data() {
            self.tell_reader();
        }
    }

    /// Reports arrived bytes to the application, unless it does not read any more.
    pub(crate) fn tell_reader(&mut self) {
        match self.closing.for_reader(self.incoming.is_readable(), self.incoming.is_exhausted()) {
            ForReader::Nothing => {}
            ForReader::Tell => self.notices.readable(),
            ForReader::Refuse => self.fail(ConnectionError::Aborted),
        }
    }

    /// The peer's DATA_FIN: its stream ends before `dsn`.
    pub(crate) fn on_data_fin(&mut self, index: usize, dsn: Dsn) {
        let Some(numbers) = self.protection.numbers() else { return };
        let offset = numbers.incoming.offset(dsn);
        let (is_new, was_finished) = (!self.incoming.has_fin(), self.incoming.is_finished());
        if !offset.is_some_and(|offset| self.incoming.finish(offset)) {
            log::debug!("DATA_FIN dropped: the stream ends elsewhere");
            self.counters.fin_conflicts += 1;
            return;
        }
        if self.incoming.is_finished() && !was_finished {
            self.acknowledge_end();
        } else if is_new || was_finished {
            // Known already and not in order yet: an answer would say nothing new, and could be answered.
            self.subflows.touch(index).tcp.request_ack();
        }
        self.tell_reader();
    }

    /// All of the peer's stream is here. That is said on every subflow: what the last of it came over may be dead on the way back.
    /// A repeated DATA_FIN is answered only on its own subflow, so that one segment cannot cause several.
    pub(crate) fn acknowledge_end(&mut self) {
        for subflow in self.subflows.touch_all().filter(|subflow| subflow.is_open()) {
            subflow.tcp.request_ack();
        }
    }

    /// Sends the end of our stream when it is due, and ends the connection when both sides have finished.
    pub(crate) fn progress_closing(&mut self, now: Instant) {
        let ends = Ends {
            is_finished: self.outgoing.is_finished(),
            is_given: self.outgoing.queued() == 0,
            owes_fin: self.outgoing.fin().is_some() && !self.outgoing.is_fin_sent(),
            is_acked: self.outgoing.is_complete(),
            is_received: self.incoming.is_finished(),
            is_verified: self.protection.has_both_ends(self.outgoing.acked()),
            lacks_last_ack: self.protection.lacks_last_ack(self.outgoing.acked()),
            may_have_all: self.outgoing.queued() == 0 && self.protection.may_have_both_ends(),
            heard: self.subflows.heard(),
        };
        match self.closing.next_step(now, self.mode(), &ends) {
            Step::Wait => {}
            Step::SendFin => self.send_fin(),
            Step::SendDataFin => self.send_data_fin(now),
            Step::Complete => self.complete(now),
            Step::GiveUp(error) => self.fail(error),
        }
    }

    /// Plain TCP: nothing follows on the only subflow.
    fn send_fin(&mut self) {
        if let Some(index) = self.plain_subflow()
            && self.subflows[index].state.stage() == Stage::Open
        {
            self.subflows.touch(index).leave();
        }
    }

    /// DATA_FIN has no payload: it goes with an ACK on every subflow, so that the fastest counts, and is
    /// repeated by the data timer.
    fn send_data_fin(&mut self, now: Instant) {
        let mut was_sent = false;
        for subflow in self.subflows.touch_all().filter(|subflow| subflow.is_open()) {
            subflow.tcp.request_ack();
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

    /// MP_FASTCLOSE: the peer ends the connection at once. `false` if the key is not ours, or too many were not on this
    /// subflow.
    pub(crate) fn on_fast_close(&mut self, index: usize, key: [u8; 8]) -> bool {
        let state = &mut self.subflows.touch(index).state;
        if state.bad_fast_closes() >= MAX_BAD_FAST_CLOSES
            || !self.protection.is_fast_close(&key)
            || self.protection.mode() != Mode::Multipath
        {
            log::debug!("MP_FASTCLOSE dropped: the key is wrong");
            state.on_bad_fast_close();
            self.counters.bad_fast_closes += 1;
            return false;
        }
        self.fail(ConnectionError::FastClose);
        true
    }
}
