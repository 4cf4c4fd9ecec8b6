//! Round trips counted by what is delivered (section 5.5.1): one is over when something is acknowledged that left after it had
//! begun. Neither an idle time nor a timeout counts as one.

use super::PathAck;

/// The count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    count: u64,
    /// Bytes delivered so far.
    delivered: u64,
    /// It ends with the delivery of data that leaves after this many bytes are delivered.
    ends_beyond: u64,
    begins: bool,
}

impl Rounds {
    pub(super) fn on_ack(&mut self, ack: &PathAck) {
        self.begins = ack.sample.prior >= self.ends_beyond;
        self.delivered = ack.sample.total;
        if self.begins {
            self.begin();
            self.count += 1;
        }
    }

    /// Notes the number of bytes delivered so far.
    pub(super) fn note_delivered(&mut self, delivered: u64) {
        self.delivered = delivered;
    }

    /// One begins now.
    pub(super) fn begin(&mut self) {
        self.ends_beyond = self.delivered;
    }

    /// Whether one has begun with the acknowledgment that is being looked at.
    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}
