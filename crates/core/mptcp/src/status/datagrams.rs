//! Datagrams of a connection, counted.

/// Datagrams of a connection, counted: one copy, or one piece, is one datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramCounters {
    /// Sent beside the stream.
    pub sent: u64,
    /// Sent inside the stream.
    pub sent_in_stream: u64,
    /// Given to a flow of this host's application.
    pub received: u64,
    /// Sent, and lost by the peer's reports.
    pub lost: u64,
    /// Sent, and not reported in time.
    pub unreported: u64,
    /// Arrived after the end of their flow.
    pub late: u64,
    /// Arrived more than once, or too late to know.
    pub repeated: u64,
    /// Arrived with a wrong tag, malformed, or without keys.
    pub forged: u64,
    /// Arrived before this host may take them: too early for the opening or for the required paths, or over an unverified subflow.
    pub early: u64,
    /// Dropped before they were sent, because they had waited too long (CoDel).
    pub dropped_waiting: u64,
    /// Dropped before they were sent, because too many waited.
    pub dropped_full: u64,
    /// Dropped before they were sent, because the path had become too narrow.
    pub dropped_long: u64,
    /// Dropped after they had arrived, because the application did not read them.
    pub dropped_unread: u64,
    /// Dropped after they had arrived: their flow was not open yet, and too many waited for that; or pieces were missing.
    pub dropped_waiting_in: u64,
}
