//! A connection as it is written to the file of `--status-json`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use plait_host::{
    AttemptOutcome, AttemptStatus, Negotiated, Path, PathClass, PeerIdentity, PlainReason, ScrambleStart,
    ScrambleStatus, SealedStatus, Status, StatusCounters, SubflowStatus, TrustedPaths,
};
use serde::Serialize;

/// One connection, as it is written to the file of `--status-json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// `multipath`, `plain` or `opening`.
    pub(super) negotiated: &'static str,
    /// Version of Multipath TCP.
    pub(super) version: Option<u8>,
    /// Whether data checksums are in use.
    pub(super) checksum: bool,
    /// Why it is plain TCP, in one word.
    pub(super) reason: Option<&'static str>,
    /// What protects the bytes; nothing if it is not there.
    pub(super) sealed: Option<SealedReport>,
    /// The state of scrambling, which is obfuscation and not encryption.
    pub(super) scrambling: Option<ScrambleReport>,
    /// The peer's address that it was opened to or from.
    pub(super) peer: Option<SocketAddr>,
    /// Bytes of the application that the peer has acknowledged.
    pub(super) bytes_delivered: u64,
    /// Bytes that the application has read.
    pub(super) bytes_read: u64,
    /// Milliseconds since it was opened.
    pub(super) age_ms: f64,
    /// What was dropped, refused or done again, by reason.
    pub(super) counters: BTreeMap<&'static str, u64>,
    /// What each attempt to open it met, in the order of their beginning.
    pub(super) attempts: Vec<AttemptReport>,
    pub(super) paths: Vec<PathReport>,
    pub(super) subflows: Vec<SubflowReport>,
}

/// One attempt to open the connection.
#[derive(Debug, Serialize)]
pub(super) struct AttemptReport {
    pub(super) path: String,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// How far it came.
    pub(super) stage: String,
    /// Whether it is the connection.
    pub(super) chosen: bool,
    /// What became of it, or what is suspected of its path.
    pub(super) verdict: String,
    /// Milliseconds from the beginning of the first attempt to the beginning of this one, and to its end.
    pub(super) began_ms: f64,
    pub(super) ended_ms: Option<f64>,
}

impl AttemptReport {
    fn new(attempt: &AttemptStatus, paths: &[Path]) -> Self {
        let name = paths.iter().find(|path| path.id == attempt.path).map(|path| path.name.clone());
        Self {
            path: name.unwrap_or_default(),
            local: attempt.local,
            remote: attempt.remote,
            stage: attempt.stage.to_string(),
            chosen: attempt.outcome == AttemptOutcome::Chosen,
            verdict: attempt.to_string(),
            began_ms: millis(attempt.began),
            ended_ms: attempt.ended.map(millis),
        }
    }
}

/// The subflows over one path together.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathReport {
    /// The device.
    pub(super) name: String,
    /// `trusted`, `untrusted` or `never`.
    pub(super) class: &'static str,
    pub(super) backup: bool,
    pub(super) up: bool,
    pub(super) subflows: usize,
    /// Payload sent for the first time on this path, reinjections included.
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    pub(super) bytes_reinjected: u64,
    /// Sealed blocks of the peer that failed verification: somebody changes bytes on this path.
    pub(super) blocks_failed: u64,
    /// Option tags that were wrong: somebody guesses, or changes options on this path.
    pub(super) tags_failed: u64,
    /// Part of all bytes sent and received, 0 to 1.
    pub(super) share: f64,
    /// Smallest of its subflows'.
    pub(super) rtt_ms: Option<f64>,
    pub(super) min_rtt_ms: Option<f64>,
    pub(super) segments_sent: u64,
    pub(super) segments_lost: u64,
    /// Part of the segments sent that were lost, 0 to 1.
    pub(super) loss: f64,
}

/// How the connection is scrambled.
#[derive(Debug, Serialize)]
pub(super) struct ScrambleReport {
    /// `key8` or `hmac-sha1`.
    pub(super) start: &'static str,
    /// `work`, `stalled` or `gone`.
    pub(super) trusted_paths: &'static str,
    /// Whether it waits for a trusted path.
    pub(super) stalled: bool,
    /// Bytes that untrusted paths carried because there was no trusted one.
    pub(super) bytes_degraded: u64,
}

/// How the connection is sealed.
#[derive(Debug, Serialize)]
pub(super) struct SealedReport {
    pub(super) handshake: Option<&'static str>,
    pub(super) suite: Option<&'static str>,
    pub(super) key_exchange: Option<&'static str>,
    /// `anonymous`, `certificate`, or the fingerprint of the peer's key.
    pub(super) peer: String,
    /// How often the keys were changed, ours and the peer's.
    pub(super) generations: [u64; 2],
    /// Ours and the peer's.
    pub(super) handshake_bytes: [u64; 2],
    pub(super) blocks_sealed: u64,
    pub(super) blocks_opened: u64,
    /// Of both, those that other threads did.
    pub(super) blocks_elsewhere: u64,
    pub(super) failure: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct SubflowReport {
    pub(super) id: u32,
    pub(super) path: String,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) usable: bool,
    pub(super) backup: bool,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    pub(super) bytes_reinjected: u64,
    pub(super) blocks_failed: u64,
    pub(super) tags_failed: u64,
    pub(super) rtt_ms: Option<f64>,
    pub(super) congestion_window: u32,
    pub(super) segments_sent: u64,
    pub(super) segments_received: u64,
    pub(super) segments_lost: u64,
    pub(super) segments_dropped: u64,
}

impl Report {
    pub(super) fn new(paths: &[Path], peer: Option<SocketAddr>, status: &Status) -> Self {
        let Status {
            negotiated,
            scrambling,
            sealed,
            attempts,
            subflows,
            bytes_delivered,
            bytes_read,
            age,
            counters,
        } = status;
        let (kind, version, checksum, reason) = match negotiated {
            Negotiated::Opening => ("opening", None, false, None),
            Negotiated::Multipath { version, checksum } => ("multipath", Some(*version), *checksum, None),
            Negotiated::Plain(reason) => ("plain", None, false, Some(word(*reason))),
        };
        let total: u64 = subflows.iter().map(carried).sum();
        Self {
            negotiated: kind,
            version,
            checksum,
            reason,
            sealed: sealed.as_ref().map(SealedReport::new),
            scrambling: scrambling.as_ref().map(ScrambleReport::new),
            peer,
            bytes_delivered: *bytes_delivered,
            bytes_read: *bytes_read,
            age_ms: millis(*age),
            counters: named(counters),
            attempts: attempts.iter().map(|attempt| AttemptReport::new(attempt, paths)).collect(),
            paths: paths.iter().map(|path| PathReport::new(path, subflows, total)).collect(),
            subflows: subflows.iter().map(|subflow| SubflowReport::new(subflow, paths)).collect(),
        }
    }
}

impl ScrambleReport {
    fn new(status: &ScrambleStatus) -> Self {
        Self {
            start: match status.start {
                ScrambleStart::Key8 => "key8",
                ScrambleStart::HmacSha1 => "hmac-sha1",
            },
            trusted_paths: match status.trusted {
                TrustedPaths::Work => "work",
                TrustedPaths::Stalled => "stalled",
                TrustedPaths::Gone => "gone",
            },
            stalled: status.stalled,
            bytes_degraded: status.degraded,
        }
    }
}

impl SealedReport {
    fn new(sealed: &SealedStatus) -> Self {
        let SealedStatus {
            handshake,
            suite,
            key_exchange,
            peer,
            generations,
            handshake_bytes,
            sealed_blocks,
            opened_blocks,
            blocks_elsewhere,
            failure,
        } = sealed;
        Self {
            handshake: *handshake,
            suite: *suite,
            key_exchange: *key_exchange,
            peer: match peer {
                PeerIdentity::Anonymous => "anonymous".to_owned(),
                PeerIdentity::Certificate => "certificate".to_owned(),
                PeerIdentity::Key { line: _, fingerprint, is_known: _ } => fingerprint.clone(),
            },
            generations: *generations,
            handshake_bytes: *handshake_bytes,
            blocks_sealed: *sealed_blocks,
            blocks_opened: *opened_blocks,
            blocks_elsewhere: *blocks_elsewhere,
            failure: failure.clone(),
        }
    }
}

impl PathReport {
    fn new(path: &Path, subflows: &[SubflowStatus], total: u64) -> Self {
        let mut report = Self {
            name: path.name.clone(),
            class: class(path.class),
            backup: path.backup,
            up: path.up,
            ..Self::default()
        };
        let mut own = 0;
        for subflow in subflows.iter().filter(|subflow| subflow.path == path.id) {
            let tcp = &subflow.tcp;
            own += carried(subflow);
            report.subflows += 1;
            report.bytes_sent += tcp.bytes_sent;
            report.bytes_received += tcp.bytes_received;
            report.bytes_retransmitted += tcp.bytes_retransmitted;
            report.bytes_reinjected += subflow.reinjected;
            report.blocks_failed += subflow.blocks_failed;
            report.tags_failed += subflow.tags_failed;
            report.segments_sent += tcp.segments_sent;
            report.segments_lost += tcp.segments_lost;
            report.rtt_ms = smaller(report.rtt_ms, tcp.srtt);
            report.min_rtt_ms = smaller(report.min_rtt_ms, tcp.min_rtt);
        }
        report.share = part(own, total);
        report.loss = part(report.segments_lost, report.segments_sent);
        report
    }
}

impl SubflowReport {
    fn new(subflow: &SubflowStatus, paths: &[Path]) -> Self {
        let SubflowStatus {
            id,
            path,
            tuple,
            usable,
            backup,
            tcp,
            reinjected,
            blocks_failed,
            tags_failed,
            end: _,
        } = subflow;
        let name = paths.iter().find(|other| other.id == *path).map(|path| path.name.clone());
        Self {
            id: id.0,
            path: name.unwrap_or_default(),
            local: tuple.local,
            remote: tuple.remote,
            usable: *usable,
            backup: *backup,
            bytes_sent: tcp.bytes_sent,
            bytes_received: tcp.bytes_received,
            bytes_retransmitted: tcp.bytes_retransmitted,
            bytes_reinjected: *reinjected,
            blocks_failed: *blocks_failed,
            tags_failed: *tags_failed,
            rtt_ms: tcp.srtt.map(millis),
            congestion_window: tcp.congestion_window,
            segments_sent: tcp.segments_sent,
            segments_received: tcp.segments_received,
            segments_lost: tcp.segments_lost,
            segments_dropped: tcp.segments_dropped,
        }
    }
}

pub(crate) fn class(class: PathClass) -> &'static str {
    match class {
        PathClass::Trusted => "trusted",
        PathClass::Untrusted => "untrusted",
        PathClass::Never => "never",
    }
}

/// All counters by name: a new one does not compile until it is told about.
fn named(counters: &StatusCounters) -> BTreeMap<&'static str, u64> {
    let StatusCounters {
        segments_refused,
        malformed_options,
        bad_keys,
        bad_join_hmacs,
        joins_unanswered,
        joins_refused,
        bad_address_hmacs,
        addresses_refused,
        removals_ignored,
        bad_fast_closes,
        forged_acks,
        mapping_conflicts,
        mappings_refused,
        fin_conflicts,
        bytes_outside,
        bytes_duplicate,
        content_conflicts,
        checksum_failures,
        stripped,
        stalls,
        stalled_closed,
        data_timeouts,
        blocks_failed,
        blocks_repaired,
        attacked_closed,
        tags_failed,
        guessed_closed,
    } = *counters;
    BTreeMap::from([
        ("segments_refused", segments_refused),
        ("malformed_options", malformed_options),
        ("bad_keys", bad_keys),
        ("bad_join_hmacs", bad_join_hmacs),
        ("joins_unanswered", joins_unanswered),
        ("joins_refused", joins_refused),
        ("bad_address_hmacs", bad_address_hmacs),
        ("addresses_refused", addresses_refused),
        ("removals_ignored", removals_ignored),
        ("bad_fast_closes", bad_fast_closes),
        ("forged_acks", forged_acks),
        ("mapping_conflicts", mapping_conflicts),
        ("mappings_refused", mappings_refused),
        ("fin_conflicts", fin_conflicts),
        ("bytes_outside", bytes_outside),
        ("bytes_duplicate", bytes_duplicate),
        ("content_conflicts", content_conflicts),
        ("checksum_failures", checksum_failures),
        ("stripped", stripped),
        ("stalls", stalls),
        ("stalled_closed", stalled_closed),
        ("data_timeouts", data_timeouts),
        ("blocks_failed", blocks_failed),
        ("blocks_repaired", blocks_repaired),
        ("attacked_closed", attacked_closed),
        ("tags_failed", tags_failed),
        ("guessed_closed", guessed_closed),
    ])
}

fn carried(subflow: &SubflowStatus) -> u64 {
    subflow.tcp.bytes_sent + subflow.tcp.bytes_received
}

fn part(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn smaller(known: Option<f64>, sample: Option<Duration>) -> Option<f64> {
    let sample = sample.map(millis);
    match (known, sample) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn word(reason: PlainReason) -> &'static str {
    match reason {
        PlainReason::NotOffered => "not-offered",
        PlainReason::PeerPlain => "peer-plain",
        PlainReason::NotInSynAck => "not-in-syn-ack",
        PlainReason::SynDropped => "syn-dropped",
        PlainReason::NotInAck => "not-in-ack",
        PlainReason::NoDss => "no-dss",
        PlainReason::Unsupported => "unsupported",
        PlainReason::ChecksumFailed => "checksum-failed",
        PlainReason::PeerFellBack => "peer-fell-back",
    }
}
