//! Events and errors of a connection.

use plait_base::SubflowId;
use plait_protect::sealed::RefusalReason;
use plait_tcp::FourTuple;

/// An event on which the owner has to act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A subflow with these addresses now exists. Segments for them belong to this connection.
    SubflowOpened {
        /// The subflow.
        id: SubflowId,
        /// Its addresses.
        tuple: FourTuple,
    },
    /// The subflow is gone. The four-tuple may be used again.
    SubflowClosed {
        /// The subflow.
        id: SubflowId,
        /// Its addresses.
        tuple: FourTuple,
    },
    /// Data can flow, with Multipath TCP or plain TCP ([`crate::Status`] tells which). If paths are required in the keys, they are there.
    Connected,
    /// The required paths are in the keys of both directions, see [`SealedStatus::waits_for_paths`](crate::SealedStatus::waits_for_paths).
    /// Data flows from now on.
    PathsMixed,
    /// There is something to read (data, end, or error).
    Readable,
    /// Room to write after a refusal.
    Writable,
    /// A flow of datagrams, a datagram, or the end of a flow has arrived.
    Datagrams,
    /// Nothing more arrives and nothing can be sent; `None` for an orderly end. Subflows may still have to finish closing. The owner must
    /// poll the connection until [`crate::Connection::is_done`].
    Closed(Option<ConnectionError>),
}

/// The reason for which a connection failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConnectionError {
    /// The peer refused it (RST to the SYN).
    Refused,
    /// No answer came on any path.
    TimedOut,
    /// No path can reach the peer (address family, path class, routes).
    Unreachable,
    /// The peer reset it.
    Reset,
    /// The peer closed it at once (MP_FASTCLOSE).
    FastClose,
    /// This host aborted it.
    Aborted,
    /// Only plain TCP was possible, and the configuration refuses that.
    PlainRefused,
    /// All subflows were lost and no new one was opened in time. The data is not complete.
    AllPathsLost,
    /// This host did not run for so long that the peer has given the connection up: each path to it answers, and the peer knows the
    /// connection no more. The data is not complete.
    Forgotten,
    /// Every byte of both directions and the peer's end have arrived and are acknowledged. The peer is gone, and may not have received our
    /// end.
    EndUnacknowledged,
    /// Every byte of the peer has arrived, and its end. Verified subflows over several paths were all reset, and whether the peer has our
    /// last bytes is not known.
    TailUnacknowledged,
    /// The peer broke the protocol.
    Protocol,
    /// Scrambling is configured and the peer does not support it. No byte of data was sent.
    NotScrambled(Unscrambled),
    /// Scrambling is configured, and no usable path may carry the first data.
    NoTrustedPath,
    /// Sealing is required and could not be agreed on, for the reason in
    /// [`SealedStatus::failure`](crate::SealedStatus::failure); no byte of data was sent.
    NotSealed,
    /// The handshake of a sealed connection failed, for the reason in [`SealedStatus::failure`](crate::SealedStatus::failure).
    HandshakeFailed,
    /// The handshake of a sealed connection succeeded, but no block could be verified after it. Either the two ends have different keys
    /// because the negotiation was rewritten on the path, or each block was changed. No byte of data was delivered.
    NegotiationAltered,
    /// The peer has refused the connection after the handshake, in a sealed record. No byte of data was delivered.
    RefusedByPeer(RefusalReason),
    /// Fewer paths than are required have given a share to the keys, for the reason in
    /// [`SealedStatus::failure`](crate::SealedStatus::failure); no byte of data was sent.
    PathsMissing,
    /// The connection was not established, but the first bytes of the application may have been delivered. They were sent to one instance
    /// of the server, which did not answer in time on any path. They were repeated to no other instance, because that could deliver them a
    /// second time. [`SealedSettings::may_repeat`](crate::SealedSettings::may_repeat) allows the repetition.
    PerhapsDelivered,
    /// A data checksum failed and no other subflow is left (RFC 8684, section 3.7).
    Corrupted,
}

/// The protocol that was found in place of scrambling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unscrambled {
    /// The peer speaks Multipath TCP without scrambling (version 1, or without flag D).
    Multipath,
    /// The peer speaks plain TCP, or the path strips all options.
    Plain,
    /// Scrambling was negotiated, and later the options no longer got through.
    Stripped,
}

/// The reason for which a read returns no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// Nothing to read now. [`Event::Readable`] follows.
    WouldBlock,
    /// The end of the stream: all bytes of the peer were read.
    End,
    /// The connection failed before the end.
    Failed(ConnectionError),
}
