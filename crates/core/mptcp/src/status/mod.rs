//! Status of a connection for display.

mod attempts;
mod datagrams;
mod path_report;

use plait_base::{Duration, Instant, PathId, SubflowId};
use plait_protect::handshake::Instance;
use plait_protect::sealed::Seen;
use plait_tcp::FourTuple;

pub use attempts::{AttemptOutcome, AttemptStage, AttemptStatus};
pub use datagrams::DatagramCounters;
pub use path_report::{PathReport, PathReports};

use crate::{ScrambleStart, TrustedPaths};

/// The result of the negotiation.
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
    /// Plain TCP, for this reason.
    Plain(PlainReason),
}

/// The reason for which a connection is plain TCP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PlainReason {
    /// Not offered by us.
    NotOffered,
    /// The SYN had no MP_CAPABLE: the peer speaks plain TCP, or it was stripped.
    PeerPlain,
    /// The SYN/ACK had none: the peer does not support it, or it was stripped on the path.
    NotInSynAck,
    /// The peer answered only after MP_CAPABLE was left out of the SYN: the path drops SYNs that carry it.
    SynDropped,
    /// No MP_CAPABLE in the third ACK or the first data.
    NotInAck,
    /// Data without DSS at the start: options are stripped from data segments.
    NoDss,
    /// The peer's MP_CAPABLE requires a version or flag that we do not support.
    Unsupported,
    /// A checksum failed on the only subflow (MP_FAIL, infinite mapping).
    ChecksumFailed,
    /// The peer sent MP_FAIL or an infinite mapping.
    PeerFellBack,
}

/// One subflow, present or past.
#[derive(Clone, PartialEq, Debug)]
pub struct SubflowStatus {
    /// Its id.
    pub id: SubflowId,
    /// Its path.
    pub path: PathId,
    /// Addresses.
    pub tuple: FourTuple,
    /// Whether data can be sent on it now.
    pub usable: bool,
    /// When it was last verified that the peer has it; only on a sealed connection.
    pub verified: Option<Instant>,
    /// Whether several questions in a row have gone unanswered since. The subflow then does not count until it is verified again.
    pub doubted: bool,
    /// Whether we or the peer declared it a backup.
    pub backup: bool,
    /// Its TCP statistics.
    pub tcp: plait_tcp::Stats,
    /// Bytes of blocks that were first sent on another subflow.
    pub reinjected: u64,
    /// Sealed blocks from the peer that failed verification here.
    pub blocks_failed: u64,
    /// Option tags of segments without a block that were wrong here.
    pub tags_failed: u64,
    /// How it ended, if it has ended.
    pub end: Option<plait_tcp::Closed>,
    /// Its state at the peer, if the peer was asked ([`Connection::look`](crate::Connection::look)).
    pub seen: Option<Seen>,
    /// Number of the peer's answers about it.
    pub times_seen: u64,
    /// TCP's own options in the SYN or SYN/ACK of the peer.
    pub peer_syn: Option<plait_tcp::PeerSyn>,
}

/// Status of scrambling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleStatus {
    /// The start value.
    pub start: ScrambleStart,
    /// The present state of the trusted paths.
    pub trusted: TrustedPaths,
    /// Whether it waits for a trusted path at present.
    pub stalled: bool,
    /// Bytes that untrusted paths carried because there was no trusted one ([`WithoutTrusted::Degrade`](crate::WithoutTrusted::Degrade)).
    pub degraded: u64,
}

/// The authenticated identity of the peer of a sealed connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PeerIdentity {
    /// None: encrypted, not authenticated.
    #[default]
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key in the format of files of known keys.
        line: String,
        /// Its fingerprint.
        fingerprint: String,
        /// Whether it is a key that the configuration lists.
        is_known: bool,
    },
    /// The owner of a certificate that our root certificates verify.
    Certificate,
}

/// Status of sealing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SealedStatus {
    /// Name of the negotiated handshake.
    pub handshake: Option<&'static str>,
    /// The cipher suite of the blocks. Blocks are sealed if there is one.
    pub suite: Option<&'static str>,
    /// The key exchange.
    pub key_exchange: Option<&'static str>,
    /// The identity of the peer.
    pub peer: PeerIdentity,
    /// The instance of the server, if the peer is the server.
    pub instance: Option<Instance>,
    /// The date at the peer in its last answer, in seconds since 1970, if the peer was asked ([`Connection::look`](crate::Connection::look)).
    pub peer_date: Option<u64>,
    /// The handshake has resumed an earlier session: the peer has the identity that was authenticated then.
    pub is_resumed: bool,
    /// Generations of the keys: ours and the peer's.
    pub generations: [u64; 2],
    /// Number of disjoint paths with a share in the keys, including that of the handshake: in the keys of our direction, and in those of
    /// the peer's.
    pub mixed_paths: [usize; 2],
    /// Whether fewer paths than required are in the keys: no byte of the application is sent or delivered yet.
    pub waits_for_paths: bool,
    /// Bytes of the handshake: ours and the peer's.
    pub handshake_bytes: [u64; 2],
    /// Blocks encrypted: each block counts once, however often it is sent.
    pub sealed_blocks: u64,
    /// Blocks decrypted.
    pub opened_blocks: u64,
    /// Of both, the number done by jobs: see [`crate::Connection::poll_crypto`].
    pub blocks_elsewhere: u64,
    /// The reason for which there is no sealed connection: a stripped or altered option, a refusal, or a failure.
    pub failure: Option<String>,
}

/// Status of the whole connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// The result of the negotiation.
    pub negotiated: Negotiated,
    /// Scrambling, if it is in use.
    pub scrambling: Option<ScrambleStatus>,
    /// Sealing, if it was requested and not given up. Without it the bytes are not sealed.
    pub sealed: Option<SealedStatus>,
    /// The result of each attempt to open the connection, if this host opened it, in the order of their start.
    pub attempts: Vec<AttemptStatus>,
    /// All subflows, present and past, at most [`Status::MAX_SUBFLOWS`]; the oldest are dropped.
    pub subflows: Vec<SubflowStatus>,
    /// Totals of the subflows that were dropped from that list. [`Status::path_reports`] includes them.
    pub forgotten: PathReports,
    /// Bytes written by the application and acknowledged by the peer.
    pub bytes_delivered: u64,
    /// Bytes read by the application.
    pub bytes_read: u64,
    /// Time since it was opened.
    pub age: Duration,
    /// Datagrams, if this host has sent one, has a flow, or has received a datagram.
    pub datagrams: Option<DatagramStatus>,
    /// Events that were dropped, refused or repeated, by reason.
    pub counters: Counters,
}

/// Datagrams of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatagramStatus {
    /// Flows that have not ended at both ends.
    pub flows: usize,
    /// Totals.
    pub counters: DatagramCounters,
    /// Those of each present subflow that has carried some.
    pub subflows: Vec<DatagramsOnSubflow>,
}

/// Datagrams over one subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramsOnSubflow {
    /// The subflow.
    pub id: SubflowId,
    /// Its path.
    pub path: PathId,
    /// Sent over it.
    pub sent: u64,
    /// Arrived over it, for the first time on it.
    pub arrived: u64,
    /// Sent over it, and lost by the peer's reports.
    pub lost: u64,
    /// Bytes in flight.
    pub in_flight: u32,
}

/// Events that were dropped, refused or repaired, by reason; totals of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Segments that TCP did not accept.
    pub segments_refused: u64,
    /// Options that could not be read.
    pub malformed_options: u64,
    /// Third ACKs with keys that are not those of the handshake.
    pub bad_keys: u64,
    /// Joins with a wrong or missing HMAC.
    pub bad_join_hmacs: u64,
    /// Joins that were answered without MP_JOIN.
    pub joins_unanswered: u64,
    /// Joins of the peer that were refused.
    pub joins_refused: u64,
    /// ADD_ADDR with a wrong HMAC.
    pub bad_address_hmacs: u64,
    /// Addresses not kept: impossible ones, ids in use, or too many.
    pub addresses_refused: u64,
    /// REMOVE_ADDR for the last subflow that works.
    pub removals_ignored: u64,
    /// MP_FASTCLOSE with a wrong key.
    pub bad_fast_closes: u64,
    /// Data-ACKs for data that was never sent; on a sealed connection also those without a tag.
    pub forged_acks: u64,
    /// Mappings that contradict earlier ones.
    pub mapping_conflicts: u64,
    /// Mappings beyond the limit, and segments dropped because there was no room for their mappings.
    pub mappings_refused: u64,
    /// DATA_FINs at impossible places.
    pub fin_conflicts: u64,
    /// Bytes outside the window, dropped.
    pub bytes_outside: u64,
    /// Bytes that came more than once.
    pub bytes_duplicate: u64,
    /// Number of times that two copies of the same bytes differed.
    pub content_conflicts: u64,
    /// DSS checksums that did not match.
    pub checksum_failures: u64,
    /// Subflows on which options or mappings were missing.
    pub stripped: u64,
    /// Number of times that a subflow made no progress and others took over.
    pub stalls: u64,
    /// Subflows closed because they stalled for too long.
    pub stalled_closed: u64,
    /// Timeouts at data level.
    pub data_timeouts: u64,
    /// Sealed blocks from the peer that failed verification, including runs of unmapped bytes.
    pub blocks_failed: u64,
    /// Blocks of ours that TCP delivered and the peer did not accept. They were sent again.
    pub blocks_repaired: u64,
    /// Subflows closed because too many blocks failed on them.
    pub attacked_closed: u64,
    /// Option tags of segments without a block (Data-ACKs, ends of the stream) that were wrong.
    pub tags_failed: u64,
    /// Subflows closed because too many option tags were wrong on them.
    pub guessed_closed: u64,
    /// Subflows that three questions in a row have not shown to be alive.
    pub subflows_doubted: u64,
    /// Subflows that the peer no longer had, while TCP considered them alive.
    pub subflows_gone: u64,
}

impl Status {
    /// Largest number of subflows listed.
    pub const MAX_SUBFLOWS: usize = 64;
}
