//! The receiving half of a connection.

use plait_base::{Duration, Instant, SeqNum};

use crate::Config;
use crate::ack_policy::AckPolicy;
use crate::earlier_acks::{Duplicate, EarlierAcks};
use crate::receive_queue::ReceiveQueue;
use crate::receive_window::ReceiveWindow;

/// The clock of timestamps has no finer steps.
const CLOCK_STEP: Duration = Duration::from_millis(1);

/// The round trip as the receiver of data measures it: from an acknowledgment to the first data that answers it, smoothed like a sender's
/// (RFC 6298, section 2.3).
///
/// Data answers an acknowledgment at once only while the peer has more to send. That shows in data without a pause as long as a round trip:
/// a *run*. The first data of a run may have waited at the peer for any time, so it can only show that the round trip is shorter than
/// assumed. The result of an earlier run is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    /// Echo of the last sample: there is one for each value of our clock.
    echo: u32,
    /// When the run began, and when the last data of it came.
    since: Instant,
    last: Instant,
}

impl RoundTrip {
    fn new(now: Instant) -> Self {
        Self { smoothed: None, echo: 0, since: now, last: now }
    }

    /// Data came that echoes `echo`, `elapsed` after that value was sent. `usual` is the round trip of our own data.
    pub(crate) fn on_data(&mut self, now: Instant, echo: u32, elapsed: Duration, usual: Option<Duration>) {
        let elapsed = elapsed.max(CLOCK_STEP);
        let known = self.current(now);
        if known.is_none() {
            self.since = now;
        }
        self.last = now;
        if known.is_some() && self.echo == echo {
            return;
        }
        self.echo = echo;
        let answers_run = now - elapsed >= self.since;
        let sample = match known.or(usual) {
            Some(known) if answers_run => (known * 7 + elapsed) / 8,
            Some(known) => known.min(elapsed),
            None => elapsed,
        };
        self.smoothed = Some(sample);
    }

    /// The estimate; `None` where no data has come for as long as a round trip.
    pub(crate) fn current(&self, now: Instant) -> Option<Duration> {
        self.smoothed.filter(|&smoothed| now.saturating_since(self.last) <= smoothed)
    }
}

/// The receiving half.
pub(crate) struct Receiver {
    pub(crate) irs: SeqNum,
    pub(crate) queue: ReceiveQueue,
    pub(crate) window: ReceiveWindow,
    pub(crate) acks: AckPolicy,
    /// Bytes from here on are not acknowledged yet.
    pub(crate) held: Option<u64>,
    /// Offset of the peer's FIN, once one has arrived.
    pub(crate) fin: Option<u64>,
    /// It was reached.
    pub(crate) finished: bool,
    /// Last acknowledgment sent (Last.ACK.sent of RFC 7323).
    pub(crate) last_ack: u64,
    /// What arrived twice, to be reported.
    pub(crate) duplicate: Option<Duplicate>,
    /// Acknowledgments still owed to segments before the last one.
    pub(crate) earlier_acks: EarlierAcks,
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
            held: None,
            fin: None,
            finished: false,
            last_ack: 0,
            duplicate: None,
            earlier_acks: EarlierAcks::default(),
            last_arrival: now,
            keep_alives: 0,
            round_trip: RoundTrip::new(now),
        }
    }

    /// Returns the offset that a segment leaving now acknowledges.
    pub(crate) fn to_acknowledge(&self) -> u64 {
        let next = self.next();
        match self.held {
            Some(held) if !self.queue.has_gaps() => held.max(self.last_ack).min(next),
            Some(_) | None => next,
        }
    }

    /// Whether all that an acknowledgment could report is held back.
    pub(crate) fn says_nothing_new(&self) -> bool {
        self.held.is_some() && self.to_acknowledge() == self.last_ack && self.last_ack < self.next()
    }

    /// RCV.NXT: the FIN counts.
    pub(crate) fn next(&self) -> u64 {
        self.queue.next() + u64::from(self.finished)
    }
}
