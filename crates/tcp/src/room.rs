//! How much may be in flight: congestion window, the peer's window, pacing.

use crate::network::MOST_OPAQUE;
use crate::pace::Rate;
use crate::recovery::Phase;
use crate::subflow::Subflow;

impl Subflow {
    /// Bytes on their way. Without SACK each duplicate acknowledgment stands for a segment that has arrived.
    pub(crate) fn pipe(&self) -> u64 {
        let arrived = u64::from(self.send.dup_acks) * u64::from(self.segment_payload(0));
        self.send.flight.in_flight().saturating_sub(arrived)
    }

    pub(crate) fn congestion_window(&self) -> u64 {
        match self.send.recovery.phase() {
            Phase::Open | Phase::Timeout => u64::from(self.send.congestion.window()),
            Phase::Fast(prr) => prr.window(),
        }
    }

    pub(crate) fn congestion_room(&self) -> u64 {
        self.congestion_window().saturating_sub(self.pipe())
    }

    /// Offsets that the peer's window still takes.
    pub(crate) fn window_room(&self) -> u64 {
        (self.send.una + u64::from(self.send.window.size())).saturating_sub(self.send.next)
    }

    /// Whether so many bytes are a full segment, or the most that can be hoped for: half of the largest window that the peer
    /// has ever offered.
    pub(crate) fn is_worth_a_segment(&self, room: u64) -> bool {
        let full = u64::from(self.segment_payload(usize::from(MOST_OPAQUE)));
        let is_much = room >= u64::from(self.send.window.largest() / 2) || self.send.overriding;
        room >= full || (room > 0 && is_much && self.send.flight.is_empty() && self.send.unsent() == 0)
    }

    pub(crate) fn rate(&self) -> Rate {
        Rate {
            window: u64::from(self.send.congestion.window()),
            srtt: self.send.rtt.smoothed(),
            slow_start: self.send.congestion.is_slow_start(),
            segment: u64::from(self.segment_payload(0)),
        }
    }
}
