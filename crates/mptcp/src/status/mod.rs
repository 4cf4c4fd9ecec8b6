//! What a person wants to know about a connection.

mod attempts;
mod path_report;

use plait_base::{Duration, Instant, PathId, SubflowId};
use plait_protect::handshake::Instance;
use plait_protect::sealed::Seen;
use plait_tcp::FourTuple;

pub use attempts::{AttemptOutcome, AttemptStage, AttemptStatus};
pub use path_report::{PathReport, PathReports};

use crate::{ScrambleStart, TrustedPaths};

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
    /// When something last verified that the peer has it: only on a sealed connection.
    pub verified: Option<Instant>,
    /// Whether several questions in a row have gone unanswered since: it does not count, as long as nothing verifies it.
    pub doubted: bool,
    /// Backup, said by us or by the peer.
    pub backup: bool,
    /// Its TCP figures.
    pub tcp: plait_tcp::Stats,
    /// Bytes of blocks that were first sent on another subflow.
    pub reinjected: u64,
    /// Sealed blocks from the peer that failed verification here.
    pub blocks_failed: u64,
    /// Option tags of segments without a block that were wrong here.
    pub tags_failed: u64,
    /// How it ended, if it has.
    pub end: Option<plait_tcp::Closed>,
    /// How it looks to the peer, if it was asked ([`Connection::look`](crate::Connection::look)), and how often it has answered.
    pub seen: Option<Seen>,
    /// Answers of the peer about it.
    pub times_seen: u64,
    /// What the SYN or SYN/ACK of the peer had of TCP's own options.
    pub peer_syn: Option<plait_tcp::PeerSyn>,
}

/// What a scrambled connection says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleStatus {
    /// The start value.
    pub start: ScrambleStart,
    /// The trusted paths, now.
    pub trusted: TrustedPaths,
    /// Whether it waits for a trusted path, now.
    pub stalled: bool,
    /// Bytes that untrusted paths carried because there was no trusted one ([`WithoutTrusted::Degrade`](crate::WithoutTrusted::Degrade)).
    pub degraded: u64,
}

/// The identity of the peer of a sealed connection, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PeerIdentity {
    /// None: encrypted, not authenticated.
    #[default]
    Anonymous,
    /// The owner of a raw public key.
    Key {
        /// The key as it stands in files of known keys.
        line: String,
        /// What names it.
        fingerprint: String,
        /// Whether it was one that we had asked for.
        is_known: bool,
    },
    /// The owner of a certificate that our roots vouch for.
    Certificate,
}

/// What there is to say about sealing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SealedStatus {
    /// The handshake agreed on, by name.
    pub handshake: Option<&'static str>,
    /// The cipher suite of the blocks. Blocks are sealed if there is one.
    pub suite: Option<&'static str>,
    /// How the secret was agreed on.
    pub key_exchange: Option<&'static str>,
    /// The identity of the peer.
    pub peer: PeerIdentity,
    /// Which run of the server this is, where the peer is the server.
    pub instance: Option<Instance>,
    /// The handshake has continued an earlier session: the peer is who proved to be that then.
    pub is_resumed: bool,
    /// Generations of the keys: ours and the peer's.
    pub generations: [u64; 2],
    /// Disjoint paths that have given a share to the keys, that of the handshake included: to the keys of what we send, and of
    /// what the peer does.
    pub mixed_paths: [usize; 2],
    /// Fewer of them than are required: no byte of the application is sent, or taken, yet.
    pub waits_for_paths: bool,
    /// Bytes of the handshake: ours and the peer's.
    pub handshake_bytes: [u64; 2],
    /// Blocks encrypted: each once, however often it was sent.
    pub sealed_blocks: u64,
    /// Blocks decrypted.
    pub opened_blocks: u64,
    /// Of both, those that were done elsewhere: see [`crate::Connection::poll_crypto`].
    pub blocks_elsewhere: u64,
    /// Why there is no sealed connection: what was stripped, altered, refused, or failed.
    pub failure: Option<String>,
}

/// The whole connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// Scrambling, where it is in use.
    pub scrambling: Option<ScrambleStatus>,
    /// About sealing, where it was asked for and not given up: without it the bytes are not sealed.
    pub sealed: Option<SealedStatus>,
    /// What each attempt to open it met, if we opened it, in the order of their beginning.
    pub attempts: Vec<AttemptStatus>,
    /// All subflows that there ever were, at most [`Status::MAX_SUBFLOWS`], oldest dropped.
    pub subflows: Vec<SubflowStatus>,
    /// Totals of the subflows that were dropped from that list: [`Status::path_reports`] has those of all.
    pub forgotten: PathReports,
    /// Bytes written by the application and acknowledged by the peer.
    pub bytes_delivered: u64,
    /// Bytes read by the application.
    pub bytes_read: u64,
    /// Time since it was opened.
    pub age: Duration,
    /// What was dropped, refused or done again, by reason.
    pub counters: Counters,
}

/// Things that were dropped, refused or repaired, by reason; totals of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Segments that TCP did not accept.
    pub segments_refused: u64,
    /// Options that could not be read.
    pub malformed_options: u64,
    /// Third ACKs with keys that are not those of the handshake.
    pub bad_keys: u64,
    /// Joins with a wrong HMAC, or without one.
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
    /// Data-ACKs for what was never sent; on a sealed connection also those without a tag.
    pub forged_acks: u64,
    /// Mappings that contradict earlier ones.
    pub mapping_conflicts: u64,
    /// Mappings beyond the limit, and segments that were dropped as there was no room for theirs.
    pub mappings_refused: u64,
    /// DATA_FINs at impossible places.
    pub fin_conflicts: u64,
    /// Bytes outside the window, dropped.
    pub bytes_outside: u64,
    /// Bytes that came more than once.
    pub bytes_duplicate: u64,
    /// Times that two copies of the same bytes differed.
    pub content_conflicts: u64,
    /// DSS checksums that did not fit.
    pub checksum_failures: u64,
    /// Subflows on which options or mappings were missing.
    pub stripped: u64,
    /// Times that a subflow made no progress and others took over.
    pub stalls: u64,
    /// Subflows closed because they stalled for too long.
    pub stalled_closed: u64,
    /// Timeouts of the data level.
    pub data_timeouts: u64,
    /// Sealed blocks from the peer that failed verification, runs of bytes without a mapping included.
    pub blocks_failed: u64,
    /// Blocks of ours that TCP delivered and the peer did not accept, so that they were sent again.
    pub blocks_repaired: u64,
    /// Subflows closed because too many blocks failed on them.
    pub attacked_closed: u64,
    /// Option tags of segments without a block (Data-ACKs, ends of the stream) that were wrong.
    pub tags_failed: u64,
    /// Subflows closed because too many option tags were wrong on them.
    pub guessed_closed: u64,
    /// Subflows that three questions in a row have not shown to be alive.
    pub subflows_doubted: u64,
    /// Subflows that the peer said it has no more while TCP took them for alive.
    pub subflows_gone: u64,
}

impl Status {
    /// Subflows that are remembered.
    pub const MAX_SUBFLOWS: usize = 64;
}
