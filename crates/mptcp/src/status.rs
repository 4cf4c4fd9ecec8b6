//! What a person wants to know about a connection.

use base::{Duration, PathId, SubflowId};
use tcp::FourTuple;

/// What was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Negotiated {
    /// Not yet known.
    Opening,
    /// Multipath TCP of this version.
    Multipath {
        /// Protocol version.
        version: u8,
        /// DSS checksums in use.
        checksum: bool,
    },
    /// Plain TCP, and why.
    Plain(PlainReason),
}

/// Why a connection is plain TCP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PlainReason {
    /// Not offered by us.
    NotOffered,
    /// The SYN had no MP_CAPABLE: the peer speaks plain TCP, or it was stripped.
    PeerPlain,
    /// The SYN/ACK had none: the peer does not speak it, or it was stripped on the way.
    NotInSynAck,
    /// Answered only when MP_CAPABLE was left out of the SYN: something drops SYNs that carry it.
    SynDropped,
    /// No MP_CAPABLE in the third ACK or the first data.
    NotInAck,
    /// Data without DSS at the start: options are stripped from data segments.
    NoDss,
    /// The peer's MP_CAPABLE asks for something we lack (version, flag).
    Unsupported,
    /// A checksum failed on the only subflow (MP_FAIL, infinite mapping).
    ChecksumFailed,
    /// The peer sent MP_FAIL or an infinite mapping.
    PeerFellBack,
}

/// One subflow, present or past.
#[derive(Clone, PartialEq, Debug)]
pub struct SubflowStatus {
    /// Which.
    pub id: SubflowId,
    /// Over which path.
    pub path: PathId,
    /// Addresses.
    pub tuple: FourTuple,
    /// Whether data can be sent on it now.
    pub usable: bool,
    /// Backup, said by us or by the peer.
    pub backup: bool,
    /// Its TCP figures.
    pub tcp: tcp::Stats,
    /// Bytes of blocks that were first sent on another subflow.
    pub reinjected: u64,
}

/// The whole connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// All subflows that there ever were, at most [`Status::MAX_SUBFLOWS`], oldest dropped.
    pub subflows: Vec<SubflowStatus>,
    /// Bytes written by the application and acknowledged by the peer.
    pub bytes_delivered: u64,
    /// Bytes read by the application.
    pub bytes_read: u64,
    /// Time since it was opened.
    pub age: Duration,
}

impl Status {
    /// Subflows that are remembered.
    pub const MAX_SUBFLOWS: usize = 64;
}
