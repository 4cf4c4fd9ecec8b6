//! What a connection reports.

use plait_base::SubflowId;
use plait_protect::sealed::RefusalReason;
use plait_tcp::FourTuple;

/// Something the owner has to act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A subflow with these addresses exists from now on: segments for them are this connection's.
    SubflowOpened {
        /// Which.
        id: SubflowId,
        /// Its addresses.
        tuple: FourTuple,
    },
    /// It is gone; the four-tuple may be used again.
    SubflowClosed {
        /// Which.
        id: SubflowId,
        /// Its addresses.
        tuple: FourTuple,
    },
    /// Data can flow (Multipath TCP or plain, [`crate::Status`] tells), once the paths are in the keys that are required, if any are.
    Connected,
    /// The paths that are required are in the keys of both directions, see [`SealedStatus::waits_for_paths`](crate::SealedStatus::waits_for_paths):
    /// data flows from now on.
    PathsMixed,
    /// There is something to read (data, end, or error).
    Readable,
    /// Room to write after a refusal.
    Writable,
    /// Nothing more comes and nothing can be sent; `None` for an orderly end. Subflows may still have to
    /// finish closing: the connection is to be polled until [`crate::Connection::is_done`].
    Closed(Option<ConnectionError>),
}

/// How a connection failed.
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
    /// We did.
    Aborted,
    /// Only plain TCP was to be had and the configuration refuses that.
    PlainRefused,
    /// All subflows were lost and none came back in time: not an end of the data.
    AllPathsLost,
    /// Every byte of both directions has arrived and is acknowledged, and so has the peer's end; the peer is gone, and whether it has
    /// heard of our end is not known.
    EndUnacknowledged,
    /// Every byte of the peer has arrived, and its end; every subflow and every join was reset, and whether the peer has our last bytes
    /// is not known.
    TailUnacknowledged,
    /// The peer broke the protocol.
    Protocol,
    /// Scrambling was asked for and the peer does not do it; no byte of data was sent.
    NotScrambled(Unscrambled),
    /// Scrambling was asked for, and no path that the first data may take can be used.
    NoTrustedPath,
    /// Sealing is required and could not be agreed on, for the reason in
    /// [`SealedStatus::failure`](crate::SealedStatus::failure); no byte of data was sent.
    NotSealed,
    /// The handshake of a sealed connection failed; the reason is there, too.
    HandshakeFailed,
    /// The handshake of a sealed connection went through, and then not one block could be verified: the two ends have
    /// different keys as the negotiation was rewritten on the way, or each block was changed. No byte of
    /// data was delivered.
    NegotiationAltered,
    /// The peer has refused the connection behind the handshake, in a sealed record; no byte of data was delivered.
    RefusedByPeer(RefusalReason),
    /// Fewer paths than are required have given a share to the keys, for the reason in
    /// [`SealedStatus::failure`](crate::SealedStatus::failure); no byte of data was sent.
    PathsMissing,
    /// The connection did not come about, and what the application has said first may have been delivered all the same: it was sent to one
    /// instance of the server, which did not answer in time on any path. It was repeated to no other instance, as that could deliver it a
    /// second time. [`SealedSettings::may_repeat`](crate::SealedSettings::may_repeat) allows that.
    PerhapsDelivered,
    /// A data checksum failed and there is no other subflow to carry on with (RFC 8684, section 3.7).
    Corrupted,
}

/// What there is in place of a scrambled connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unscrambled {
    /// The peer speaks Multipath TCP without scrambling (version 1, or without flag D).
    Multipath,
    /// The peer speaks TCP, or everything else is stripped on the way.
    Plain,
    /// Scrambling was agreed on, and then the options no longer got through.
    Stripped,
}

/// Why a read gives no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// Nothing there now; [`Event::Readable`] will tell.
    WouldBlock,
    /// The end of the stream: the peer has sent everything and all was read.
    End,
    /// The connection failed before the end.
    Failed(ConnectionError),
}
