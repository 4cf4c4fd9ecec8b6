//! Limits of the bytes in flight: congestion window, the peer's window, pacing.

use plait_base::Instant;

use crate::Timer;
use crate::connection::Connection;
use crate::network::MOST_OPAQUE;
use crate::recovery::Phase;

impl Connection {
    /// Bytes on their way. Without SACK each duplicate acknowledgment stands for a segment that has arrived.
    pub(crate) fn pipe(&self) -> u64 {
        let arrived = u64::from(self.send.dup_acks) * u64::from(self.segment_payload(0));
        self.send.flight.in_flight().saturating_sub(arrived)
    }

    pub(crate) fn congestion_window(&self) -> u64 {
        match self.send.recovery.phase() {
            Phase::Open | Phase::Timeout => u64::from(self.send.congestion.window()),
            Phase::Fast(_) if self.send.congestion.leads_recovery() => self.send.congestion.window().into(),
            Phase::Fast(prr) => prr.window(),
        }
    }

    pub(crate) fn congestion_room(&self) -> u64 {
        let beside = if self.send.beside == 0 { 0 } else { self.beside() };
        (self.congestion_window() - beside).saturating_sub(self.pipe())
    }

    /// Offsets that the peer's window still takes.
    pub(crate) fn window_room(&self) -> u64 {
        (self.send.una + u64::from(self.send.window.size())).saturating_sub(self.send.next)
    }

    /// Whether this many bytes are a full segment, or the best that can be expected: half of the largest window that the peer has ever
    /// offered.
    pub(crate) fn is_worth_a_segment(&self, room: u64) -> bool {
        let full = u64::from(self.segment_payload(usize::from(MOST_OPAQUE)));
        let is_much = room >= u64::from(self.send.window.largest() / 2) || self.send.overriding;
        room >= full || (room > 0 && is_much && self.send.flight.is_empty() && self.send.unsent() == 0)
    }

    /// The rate follows the window and the round trip, which have changed.
    pub(crate) fn follow_pace(&mut self, now: Instant) {
        let segment = u64::from(self.segment_payload(0));
        let longest = self.config.max_super_segment.into();
        if let Some(rate) = self.send.congestion.own_rate() {
            self.send.pace.change_rate(now, rate, segment, longest);
            return;
        }
        if !self.config.pacing || self.send.congestion.leads_recovery() {
            return;
        }
        // The last sample if it is shorter: the smoothed one remembers an outage for long.
        let round_trip = self.send.rtt.smoothed().min(self.send.rtt.latest());
        let rate = self.send.congestion.pacing_rate(round_trip);
        self.send.pace.set_rate(now, rate, segment, longest);
    }

    /// Notes that this many bytes have left, for the first time or again.
    pub(crate) fn pace_sent(&mut self, now: Instant, bytes: u64) {
        self.send.pace.on_sent(now, bytes);
        match self.send.pace.budget(now) {
            Ok(_) => self.timers.stop(Timer::Pace),
            Err(at) => self.timers.set(Timer::Pace, at),
        }
    }
}
