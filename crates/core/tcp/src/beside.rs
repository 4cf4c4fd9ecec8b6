//! Bytes that the owner sends beside the stream, on the same path, under the same congestion control.
//!
//! The owner knows what it has in flight and what became of it. TCP leaves room for it, and its controller learns what arrived and what was
//! lost. It never takes so much that the stream cannot go on: the owner may never learn what became of its bytes.

use plait_base::Instant;

use crate::congestion::Ack;
use crate::connection::Connection;

/// Segments of the window that are always left to the stream.
const LEFT_TO_STREAM: u64 = 2;

impl Connection {
    /// Sets the number of bytes in flight beside the stream.
    pub fn set_beside(&mut self, bytes: u32) {
        self.send.beside = bytes;
    }

    /// Returns the part of the congestion window that they take: at most half of it, and never the last two segments.
    pub(crate) fn beside(&self) -> u64 {
        let window = self.congestion_window();
        let left = LEFT_TO_STREAM * u64::from(self.segment_payload(0));
        u64::from(self.send.beside).min(window / 2).min(window.saturating_sub(left))
    }

    /// Notes that this many bytes beside the stream have arrived. `is_limited`: more would have been sent if the window had allowed it.
    /// BBR measures the path by the stream only.
    pub fn on_beside_delivered(&mut self, now: Instant, bytes: u32, is_limited: bool) {
        if !self.send.recovery.is_open() || bytes == 0 {
            return;
        }
        let in_flight = u32::try_from(self.pipe()).unwrap_or(u32::MAX).saturating_add(bytes);
        self.send.congestion.on_ack(&Ack {
            now,
            bytes,
            in_flight,
            srtt: self.send.rtt.smoothed(),
            min_rtt: self.send.rtt.minimum(),
            latest_rtt: self.send.rtt.latest(),
            window_limited: is_limited,
        });
        self.follow_pace(now);
    }

    /// Notes a loss among the bytes beside the stream: it counts as a mark of congestion. The owner calls it once in a round trip.
    pub fn on_beside_lost(&mut self, now: Instant) {
        if self.send.recovery.is_open() {
            let in_flight = self.pipe() + u64::from(self.send.beside);
            let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
            self.send.congestion.on_congestion_experienced(now, in_flight);
            self.follow_pace(now);
        }
    }
}
