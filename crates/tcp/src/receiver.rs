//! The receiving half of a connection.

use base::{Duration, Instant, SeqNum};

use crate::Config;
use crate::ack_policy::AckPolicy;
use crate::receive_queue::{Block, ReceiveQueue};
use crate::receive_window::ReceiveWindow;

/// The round trip as the receiver of data sees it: from an acknowledgment to the first data that answers it, smoothed
/// like a sender's (RFC 6298, section 2.3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    /// Echo of the last sample: there is one for each value of our clock.
    echo: u32,
}

impl RoundTrip {
    /// Data came that echoes `echo`, `elapsed` after that value was sent.
    pub(crate) fn sample(&mut self, echo: u32, elapsed: Duration) {
        if self.smoothed.is_some() && self.echo == echo {
            return;
        }
        self.echo = echo;
        self.smoothed = Some(self.smoothed.map_or(elapsed, |smoothed| (smoothed * 7 + elapsed) / 8));
    }

    /// The estimate; `None` without timestamps or data.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

/// The receiving half.
pub(crate) struct Receiver {
    pub(crate) irs: SeqNum,
    pub(crate) queue: ReceiveQueue,
    pub(crate) window: ReceiveWindow,
    pub(crate) acks: AckPolicy,
    /// Offset of the peer's FIN, once one has arrived.
    pub(crate) fin: Option<u64>,
    /// It was reached.
    pub(crate) finished: bool,
    /// Last acknowledgment sent (Last.ACK.sent of RFC 7323).
    pub(crate) last_ack: u64,
    /// What arrived twice, to be reported (RFC 2883).
    pub(crate) duplicate: Option<Block>,
    pub(crate) last_arrival: Instant,
    pub(crate) keep_alives: u8,
    pub(crate) round_trip: RoundTrip,
}

impl Receiver {
    /// Before anything has arrived.
    pub(crate) fn new(now: Instant, config: &Config) -> Self {
        Self {
            irs: SeqNum::new(0),
            queue: ReceiveQueue::new(u64::from(config.max_receive_window)),
            window: ReceiveWindow::new(config.max_receive_window),
            acks: AckPolicy::default(),
            fin: None,
            finished: false,
            last_ack: 0,
            duplicate: None,
            last_arrival: now,
            keep_alives: 0,
            round_trip: RoundTrip::default(),
        }
    }

    /// RCV.NXT: the FIN counts.
    pub(crate) fn next(&self) -> u64 {
        self.queue.next() + u64::from(self.finished)
    }
}
