//! Closing (RFC 9293, section 3.6), and the remaining actions of a connection that is over.

use plait_base::Instant;
use plait_wire::{Flags, Segment};

use crate::connection::Connection;
use crate::log;
use crate::sender::Finish;
use crate::{Closed, Event, State, Timer};

/// Steps of a FIN; each moves a connection towards its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Our FIN leaves for the first time.
    Sent,
    /// The peer has acknowledged it.
    Acked,
    /// The peer's FIN has arrived in order.
    Received,
}

impl State {
    /// Figure 5 of RFC 9293, the lower half.
    fn after(self, step: Step) -> Self {
        match (self, step) {
            (Self::Established, Step::Sent) => Self::FinWait1,
            (Self::CloseWait, Step::Sent) => Self::LastAck,
            (Self::FinWait1, Step::Acked) => Self::FinWait2,
            (Self::Closing, Step::Acked) => Self::TimeWait,
            (Self::LastAck, Step::Acked) => Self::Closed,
            (Self::Established, Step::Received) => Self::CloseWait,
            (Self::FinWait1, Step::Received) => Self::Closing,
            (Self::FinWait2, Step::Received) => Self::TimeWait,
            (state, Step::Sent | Step::Acked | Step::Received) => state,
        }
    }
}

impl Connection {
    pub(crate) fn fin_sent(&mut self, now: Instant) {
        self.send.finish = Finish::Sent;
        self.step(now, Step::Sent);
    }

    pub(crate) fn fin_acked(&mut self, now: Instant) {
        self.step(now, Step::Acked);
    }

    pub(crate) fn peer_finished(&mut self, now: Instant) {
        self.step(now, Step::Received);
    }

    fn step(&mut self, now: Instant, step: Step) {
        let before = self.state;
        self.state = before.after(step);
        if self.state == before {
            return;
        }
        match self.state {
            State::TimeWait => {
                self.timers.stop_all();
                self.timers.set(Timer::TimeWait, now + self.config.time_wait);
                self.report(Event::Closed(Closed::Finished));
            }
            State::Closed => self.close(Closed::Finished),
            State::FinWait2 if self.orphaned => {
                self.timers.set(Timer::TimeWait, now + self.config.time_wait);
            }
            State::FinWait2
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck => {}
        }
    }

    /// Ends the connection for this reason, unless its end was reported before.
    pub(crate) fn close(&mut self, reason: Closed) {
        let reported = self.state == State::TimeWait;
        log::debug!(?reason, state = ?self.state, "connection ends");
        self.state = State::Closed;
        self.timers.stop_all();
        self.send.queue.clear();
        self.receive.queue.clear_gaps();
        if !reported {
            self.report(Event::Closed(reason));
        }
    }

    /// Ends TIME-WAIT, or the wait for a FIN that never came.
    pub(crate) fn end_time_wait(&mut self) {
        match self.state {
            State::TimeWait => {
                self.state = State::Closed;
                self.timers.stop_all();
            }
            State::FinWait2 => self.close(Closed::TimedOut),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::Closed => {}
        }
    }

    /// Handles a repeated FIN of the peer: our last ACK was lost, and the wait restarts.
    pub(crate) fn old_segment_in_time_wait(&mut self, now: Instant, segment: &Segment) {
        if self.state == State::TimeWait && segment.flags.contains(Flags::FIN) {
            self.timers.set(Timer::TimeWait, now + self.config.time_wait);
        }
    }
}
