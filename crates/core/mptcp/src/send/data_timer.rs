//! The retransmission timer of the data level: data that TCP has delivered and that no Data-ACK covers is sent again.

use plait_base::{Duration, Instant};

/// Time after which data that is acknowledged by TCP but not at data level is sent again; at least two retransmission timeouts.
const MIN_DATA_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_DATA_TIMEOUT: Duration = Duration::from_secs(30);

/// The timer of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataTimer {
    /// When it was started, if it runs.
    since: Option<Instant>,
    /// The moment since which nothing was acknowledged.
    stuck_since: Option<Instant>,
    /// Timeouts in a row.
    tries: u8,
    /// Whether it restarts at the next known moment.
    moved: bool,
}

impl DataTimer {
    pub(super) fn start(&mut self, now: Instant) {
        if self.since.is_none() {
            *self = Self { since: Some(now), stuck_since: Some(now), tries: 0, moved: false };
        }
    }

    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Notes that new data was acknowledged.
    pub(super) fn on_progress(&mut self) {
        self.moved = true;
        self.tries = 0;
    }

    /// Starts, restarts or stops the timer as the stream requires.
    pub(super) fn follow(&mut self, now: Instant, awaits_ack: bool) {
        if !awaits_ack || self.moved {
            self.stop();
        }
        if awaits_ack {
            self.start(now);
        }
    }

    /// This host did not run until now: the wait begins anew.
    pub(super) fn resume(&mut self, now: Instant) {
        if self.since.take().is_some() {
            self.start(now);
        }
    }

    /// Notes that it has expired.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.since = Some(now);
        self.tries = self.tries.saturating_add(1);
    }

    /// Returns when it expires, given the longest retransmission timeout of the subflows in use.
    pub(super) fn deadline(&self, slowest: Option<Duration>) -> Option<Instant> {
        let base = (2 * slowest.unwrap_or(MIN_DATA_TIMEOUT)).max(MIN_DATA_TIMEOUT);
        let wait = base * 2u32.pow(u32::from(self.tries.min(6)));
        Some(self.since? + wait.min(MAX_DATA_TIMEOUT))
    }

    /// Returns the moment since which nothing was acknowledged, if an acknowledgment is due.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }
}
