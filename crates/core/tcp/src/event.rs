//! Events of a connection.

use plait_base::Instant;

/// The result for an arriving segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Not acceptable: neither its content nor its options count.
    Dropped(DropReason),
    /// Acceptable (a duplicate may be): its options count.
    Accepted {
        /// Stream offset of its first payload byte (of where it would be, for an empty payload).
        offset: u64,
        /// The window it offers, scaled, in bytes.
        window: u32,
    },
}

/// The reason for which a segment was not acceptable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// Outside the receive window (RFC 9293, section 3.10.7.4, first step); answered by an ACK.
    OutOfWindow,
    /// Older timestamp than the connection has seen (PAWS, RFC 7323 section 5).
    Paws,
    /// Timestamps were agreed on and it has none (RFC 7323, section 3.2).
    MissingTimestamp,
    /// Acknowledges what was never sent, or what was acknowledged long ago (RFC 5961, section 5).
    UnacceptableAck,
    /// A SYN on a synchronised connection (RFC 5961, section 4); answered by a challenge ACK.
    UnexpectedSyn,
    /// A RST that is not exactly in place (RFC 5961, section 3); answered by a challenge ACK.
    InexactReset,
    /// No ACK bit where there must be one.
    MissingAck,
    /// The connection no longer takes anything.
    Closed,
}

/// Something the owner may want to act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is complete.
    Established,
    /// [`crate::Connection::read`] has something.
    Readable,
    /// The peer has acknowledged everything below this offset.
    Acked {
        /// First offset that is not acknowledged.
        offset: u64,
    },
    /// The peer has sent everything: a FIN arrived in order.
    Finished,
    /// The path was found to take smaller or larger packets; segments from now on are cut to this payload size (options
    /// not subtracted).
    MssChanged {
        /// New maximum segment size, in bytes.
        mss: u16,
    },
    /// The connection is over; nothing more comes (TIME-WAIT may still be running).
    Closed(Closed),
}

/// The way in which a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// Both sides have finished, and everything was acknowledged.
    Finished,
    /// The peer sent a RST.
    ResetByPeer,
    /// The peer answered the SYN with a RST.
    Refused,
    /// No answer came: to the SYN, to data, to a keep-alive, or within the user timeout.
    TimedOut,
    /// ICMP says that the peer cannot be reached; only while opening.
    Unreachable,
    /// [`crate::Connection::abort`].
    Aborted,
}

/// The next deadline of the connection, with its timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// When it expires; may lie in the past.
    pub at: Instant,
    /// The timer that expires then.
    pub timer: Timer,
}

/// The timers of one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Retransmission timeout (RFC 6298), SYN and SYN/ACK included.
    Retransmit,
    /// Tail loss probe (RFC 8985, section 7).
    LossProbe,
    /// Reordering timer of RACK (RFC 8985, section 6.3).
    Reorder,
    /// Delayed acknowledgment.
    DelayedAck,
    /// Zero-window probe.
    Persist,
    /// Next segment by pacing.
    Pace,
    /// Keep-alive probe.
    KeepAlive,
    /// User timeout.
    User,
    /// End of TIME-WAIT, or of waiting for a FIN that never comes.
    TimeWait,
}
