//! Expiry of timers.

use plait_base::{Duration, Instant};

use crate::acknowledgment::clamp;
use crate::connection::{AckProbe, Connection};
use crate::flight::{Fate, Sent};
use crate::handshake::SYN_ACK_RETRIES;
use crate::log;
use crate::mtu_probe::Losses;
use crate::recovery::Phase;
use crate::tail_probe::TailProbe;
use crate::{Closed, State, Timer};

/// Longest time between two window probes (RFC 9293, section 3.8.6.1, leaves it to us).
const MAX_PERSIST: Duration = Duration::from_secs(60);

impl Connection {
    pub(crate) fn run_timers(&mut self, now: Instant) {
        if self.timers.expire(Timer::Reorder, now) {
            self.reorder_expired(now);
        }
        if self.timers.expire(Timer::LossProbe, now) && self.send.recovery.is_open() {
            self.send.probe.due = true;
            self.restart_rto(now);
        }
        if self.timers.expire(Timer::Retransmit, now) {
            self.retransmit_expired(now);
        }
        if self.timers.expire(Timer::DelayedAck, now) {
            self.receive.held = None;
            self.receive.acks.on_timeout();
        }
        if self.timers.expire(Timer::Persist, now) {
            self.persist_expired(now);
        }
        // Pacing only needs the wake-up.
        self.timers.expire(Timer::Pace, now);
        if self.timers.expire(Timer::KeepAlive, now) {
            self.keep_alive_expired(now);
        }
        if self.timers.expire(Timer::User, now) {
            self.give_up();
        }
        if self.timers.expire(Timer::TimeWait, now) {
            self.end_time_wait();
        }
    }

    fn reorder_expired(&mut self, now: Instant) {
        let in_flight = self.pipe();
        let before = self.stats.segments_lost;
        self.detect_losses(now);
        if self.stats.segments_lost == before {
            return;
        }
        if self.send.recovery.is_open() {
            self.enter_recovery(now, in_flight, 0);
            self.follow_pace(now);
        } else {
            let pipe = self.pipe();
            self.send.recovery.on_ack(0, pipe, false);
        }
    }

    fn retransmit_expired(&mut self, now: Instant) {
        match self.state {
            State::SynSent | State::SynReceived => {
                let answers = self.state == State::SynReceived;
                let retries = if answers { SYN_ACK_RETRIES } else { u8::MAX }.min(self.config.syn_retries);
                if self.send.rtt.backoff() >= retries {
                    self.close(Closed::TimedOut);
                    return;
                }
                let since = now.saturating_since(self.opening.began_at);
                if answers || since >= self.config.steady_syns {
                    self.send.rtt.back_off();
                }
                log::debug!(attempts = self.opening.attempts, state = ?self.state, "no answer to the SYN");
                self.opening.due = true;
                self.flow_label.draw(now);
            }
            State::Established | State::FinWait1 | State::CloseWait | State::Closing | State::LastAck => {
                self.data_expired(now);
            }
            State::FinWait2 | State::TimeWait | State::Closed => {}
        }
    }

    /// RFC 6298, section 5.4 to 5.6, with the selection of RFC 8985, section 6.3.
    fn data_expired(&mut self, now: Instant) {
        if self.send.flight.is_empty() {
            return;
        }
        if self.send.timeouts >= self.config.retries {
            self.give_up();
            return;
        }
        let in_flight = self.pipe();
        // A closed window does not indicate congestion.
        if self.send.timeouts == 0 && self.send.window.size() > 0 {
            self.send.congestion.on_timeout(now, clamp(in_flight));
            self.follow_pace(now);
        }
        if self.send.timeouts == 0 {
            self.ecn.on_timeout(self.send.next);
        }
        self.send.timeouts += 1;
        self.send.rtt.back_off();
        self.flow_label.draw(now);
        log::debug!(
            una = self.send.una,
            in_flight,
            timeouts = self.send.timeouts,
            window = self.send.congestion.window(),
            "retransmission timeout"
        );
        self.send.path.forget_probe(now);
        self.shrink_black_hole(now);
        if self.send.flight.first().is_some_and(|first| first.fate == Fate::Delivered) {
            // The peer had it and does not acknowledge it: it has dropped it.
            self.send.flight.renege();
        }
        let una = self.send.una;
        let first_end = una + u64::from(self.segment_payload(0));
        let next = self.send.next;
        let cutoff = self.send.rack.lost_on_timeout(now, &self.send.rtt);
        let all = !self.sack;
        let headers = (self.send.path.headers() + self.stamp_len()) as u64;
        let mut losses = Losses::default();
        let (flight, path) = (&mut self.send.flight, &mut self.send.path);
        let (rate, congestion) = (&mut self.send.delivery_rate, &mut self.send.congestion);
        let mut on_loss = |sent: &Sent| {
            if losses.add(sent, path, headers) {
                rate.on_lost(sent);
                congestion.on_lost(now, sent, rate.lost(), rate.delivered());
            }
        };
        flight.lose(una, first_end.min(next), |_| true, &mut on_loss);
        flight.lose(una, next, |sent| all || sent.at <= cutoff, &mut on_loss);
        if self.send.timeouts == 1 {
            self.send.congestion.on_timeout_judged(clamp(self.pipe()));
        }
        self.stats.segments_lost += losses.segments;
        self.send.recovery.enter_timeout(una, next);
        self.send.dup_acks = 0;
        self.send.forced = true;
        self.send.probe.reset();
        self.timers.stop(Timer::LossProbe);
        self.timers.stop(Timer::Reorder);
        self.restart_rto(now);
    }

    /// This host did not run for a while, and runs again. The silence of that time is not the peer's: each count of unanswered segments
    /// begins anew. What waits for an acknowledgment is sent again at once, or else a probe asks for one.
    pub fn resume(&mut self, now: Instant) {
        if matches!(self.state, State::TimeWait | State::Closed) {
            return;
        }
        self.send.rtt.resume(now);
        self.send.timeouts = self.send.timeouts.min(1);
        (self.send.window_probes, self.send.persist_backoff, self.receive.keep_alives) = (0, 0, 0);
        if self.timers.is_set(Timer::KeepAlive) {
            self.watch_silence(now);
        }
        self.watch_user_timeout(now, true);
        if self.timers.is_set(Timer::Retransmit) {
            self.timers.set(Timer::Retransmit, now);
        } else if self.timers.is_set(Timer::Persist) {
            self.timers.set(Timer::Persist, now);
        } else {
            self.probe();
        }
    }

    /// Gives the connection up, because the peer no longer answers.
    fn give_up(&mut self) {
        match self.state {
            State::SynSent | State::SynReceived | State::Closed | State::TimeWait => {}
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.reset = Some((self.send.seq(self.send.next), true)),
        }
        if self.state != State::Closed {
            self.close(Closed::TimedOut);
        }
    }

    /// The peer's window stays closed, or too small: probe it, or use what there is (RFC 9293, section 3.8.6.1 and 3.8.6.2.1). The probe
    /// carries no data, like those of other hosts today. The peer answers it all the same, and no record is cut at an odd place.
    fn persist_expired(&mut self, now: Instant) {
        if !self.send.flight.is_empty() {
            return;
        }
        if self.window_room() > 0 {
            self.send.overriding = self.send.owes();
            return;
        }
        if self.send.window_probes >= self.config.retries {
            self.give_up();
            return;
        }
        self.send.window_probes += 1;
        self.send.persist_backoff = self.send.persist_backoff.saturating_add(1);
        log::debug!(probes = self.send.window_probes, "window probe");
        self.ack_probe = AckProbe::Due;
        self.timers.set(Timer::Persist, now + self.persist_wait());
    }

    pub(crate) fn persist_wait(&self) -> Duration {
        let doubled = self.send.rtt.base_rto().saturating_mul(1 << self.send.persist_backoff.min(10));
        doubled.min(MAX_PERSIST)
    }

    /// Starts the keep-alive timer, if it is configured.
    pub(crate) fn watch_silence(&mut self, now: Instant) {
        if let Some(keep_alive) = self.config.keep_alive {
            self.timers.set(Timer::KeepAlive, now + keep_alive.idle);
        }
    }

    /// RFC 9293, section 3.8.4. While data is outstanding its own timers do the work.
    fn keep_alive_expired(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        let wake = self.receive.last_arrival + keep_alive.idle;
        if self.receive.keep_alives == 0 && wake > now {
            self.timers.set(Timer::KeepAlive, wake);
            return;
        }
        if self.send.owes() {
            self.timers.set(Timer::KeepAlive, now + keep_alive.idle);
            return;
        }
        if self.receive.keep_alives >= keep_alive.probes {
            self.give_up();
            return;
        }
        self.receive.keep_alives += 1;
        log::debug!(probes = self.receive.keep_alives, "keep-alive probe");
        self.ack_probe = AckProbe::Due;
        self.timers.set(Timer::KeepAlive, now + keep_alive.interval);
    }

    /// Starts the user timeout with the first outstanding byte; `anew` after progress.
    pub(crate) fn watch_user_timeout(&mut self, now: Instant, anew: bool) {
        let Some(limit) = self.config.user_timeout else { return };
        if anew {
            self.timers.stop(Timer::User);
        }
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        if opening || self.send.owes() {
            self.timers.start(Timer::User, now + limit);
        }
    }

    /// After an acknowledgment: the retransmission timer starts again with progress (RFC 6298, section 5.2
    /// and 5.3), and the probe timer with every acknowledgment (RFC 8985, section 7.2).
    pub(crate) fn arm_after_ack(&mut self, now: Instant, advanced: bool) {
        if self.send.flight.is_empty() {
            self.timers.stop(Timer::Retransmit);
            self.timers.stop(Timer::LossProbe);
            self.timers.stop(Timer::Reorder);
            self.send.progress_at = now;
            self.watch_user_timeout(now, true);
        } else if advanced {
            self.restart_rto(now);
        }
        if self.window_room() > 0 && self.timers.is_set(Timer::Persist) && !self.send.overriding {
            // The window has opened. Whether it suffices is checked when data is cut.
            self.timers.stop(Timer::Persist);
            self.send.persist_backoff = 0;
        }
        if self.send.flight.is_empty() && self.window_room() == 0 && self.may_send_data() && self.send.owes()
        {
            self.timers.start(Timer::Persist, now + self.persist_wait());
        }
        self.arm_probe(now);
    }

    /// Sets the probe timer where a tail loss could go unnoticed.
    pub(crate) fn arm_probe(&mut self, now: Instant) {
        let flight = &self.send.flight;
        let open = match self.send.recovery.phase() {
            Phase::Open => true,
            Phase::Fast(_) | Phase::Timeout => false,
        };
        let eligible = open
            && self.sack
            && !flight.is_empty()
            && flight.delivered() == 0
            && flight.lost() == 0
            && !self.send.probe.is_outstanding()
            && self.send.timeouts == 0;
        self.send.probe.due = false;
        let rto = self.send.rtt.rto();
        if !eligible {
            if self.timers.is_set(Timer::LossProbe) {
                self.timers.stop(Timer::LossProbe);
                self.restart_rto(now);
            }
            return;
        }
        let one = flight.in_flight() <= u64::from(self.segment_payload(0));
        // One probe comes before the timeout, which then waits for its answer (RFC 8985, section 7.2).
        let at = (now + TailProbe::timeout(&self.send.rtt, one)).min(self.send.rto_from + rto).max(now);
        self.timers.set(Timer::LossProbe, at);
        self.timers.set(Timer::Retransmit, at + rto);
    }

    /// Restarts the retransmission timer now.
    pub(crate) fn restart_rto(&mut self, now: Instant) {
        self.send.rto_from = now;
        self.timers.set(Timer::Retransmit, now + self.send.rtt.rto());
    }
}
