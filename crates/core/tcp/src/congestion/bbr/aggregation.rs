//! Aggregation of acknowledgments (section 5.5.9): bytes acknowledged beyond those that the rate gives in the time. The window is larger by
//! that number, so that sending goes on while nothing is acknowledged.

use plait_base::Instant;

use super::PathAck;
use super::model::volume;

/// Round trips for which a surplus is remembered; one while the rate is searched for.
const FILTER_ROUNDS: u64 = 10;

/// The estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    since: Option<Instant>,
    /// Bytes acknowledged since.
    acked: u64,
    /// Largest surplus of this span of round trips and of the one before it, and the round trip in which this began.
    most: [u64; 2],
    span_from: u64,
}

impl Aggregation {
    /// Counting begins anew.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = Some(now);
        self.acked = 0;
    }

    pub(super) fn on_ack(&mut self, ack: &PathAck, rate: u64, window: u64, round: u64, is_full: bool) {
        let since = self.since.unwrap_or(ack.now);
        let mut expected = volume(rate, ack.now.saturating_since(since));
        if self.since.is_none() || self.acked <= expected {
            self.restart(ack.now);
            expected = 0;
        }
        self.acked += ack.bytes;
        let surplus = self.acked.saturating_sub(expected).min(window);
        // Two spans of half the length remember for between one half and all of it.
        let span = if is_full { FILTER_ROUNDS / 2 } else { 1 };
        if round >= self.span_from + span {
            self.most = [self.most[1], 0];
            self.span_from = round;
        }
        self.most[1] = self.most[1].max(surplus);
    }

    /// Bytes.
    pub(super) fn surplus(&self) -> u64 {
        self.most[0].max(self.most[1])
    }
}
