//! What a connection was, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use host::{
    Negotiated, Path, PathClass, PeerIdentity, PlainReason, ScrambleStart, ScrambleStatus, SealedStatus,
    Status, StatusCounters, SubflowStatus, TrustedPaths,
};
use serde::Serialize;

use crate::arguments::Options;

/// Tells about connections where the options ask for it.
pub(crate) struct Reporter {
    on_standard_error: bool,
    json: Option<File>,
}

/// One connection, as it is written to the file of `--status-json`.
#[derive(Debug, Serialize)]
struct Report {
    /// `multipath`, `plain` or `opening`.
    negotiated: &'static str,
    /// Version of Multipath TCP.
    version: Option<u8>,
    /// Whether data checksums are in use.
    checksum: bool,
    /// Why it is plain TCP, in one word.
    reason: Option<&'static str>,
    /// What protects the bytes; nothing if it is not there.
    sealed: Option<SealedReport>,
    /// The state of scrambling, which is obfuscation and not encryption.
    scrambling: Option<ScrambleReport>,
    /// The peer's address that it was opened to or from.
    peer: Option<SocketAddr>,
    /// Bytes of the application that the peer has acknowledged.
    bytes_delivered: u64,
    /// Bytes that the application has read.
    bytes_read: u64,
    /// Milliseconds since it was opened.
    age_ms: f64,
    /// What was dropped, refused or done again, by reason.
    counters: BTreeMap<&'static str, u64>,
    paths: Vec<PathReport>,
    subflows: Vec<SubflowReport>,
}

/// The subflows over one path together.
#[derive(Debug, Default, Serialize)]
struct PathReport {
    /// The device.
    name: String,
    /// `trusted`, `untrusted` or `never`.
    class: &'static str,
    backup: bool,
    up: bool,
    subflows: usize,
    /// Payload sent for the first time on this path, reinjections included.
    bytes_sent: u64,
    bytes_received: u64,
    bytes_retransmitted: u64,
    bytes_reinjected: u64,
    /// Sealed blocks of the peer that failed verification: somebody changes bytes on this path.
    blocks_failed: u64,
    /// Part of all bytes sent and received, 0 to 1.
    share: f64,
    /// Smallest of its subflows'.
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    segments_sent: u64,
    segments_lost: u64,
    /// Part of the segments sent that were lost, 0 to 1.
    loss: f64,
}

/// How the connection is scrambled.
#[derive(Debug, Serialize)]
struct ScrambleReport {
    /// `key8` or `hmac-sha1`.
    start: &'static str,
    /// `work`, `stalled` or `gone`.
    trusted_paths: &'static str,
    /// Whether it waits for a trusted path.
    stalled: bool,
    /// Bytes that untrusted paths carried because there was no trusted one.
    bytes_degraded: u64,
}

/// How the connection is sealed.
#[derive(Debug, Serialize)]
struct SealedReport {
    handshake: Option<&'static str>,
    suite: Option<&'static str>,
    key_exchange: Option<&'static str>,
    /// `anonymous`, `certificate`, or the fingerprint of the peer's key.
    peer: String,
    /// How often the keys were changed, ours and the peer's.
    generations: [u64; 2],
    /// Ours and the peer's.
    handshake_bytes: [u64; 2],
    blocks_sealed: u64,
    blocks_opened: u64,
    failure: Option<String>,
}

#[derive(Debug, Serialize)]
struct SubflowReport {
    id: u32,
    path: String,
    local: SocketAddr,
    remote: SocketAddr,
    usable: bool,
    backup: bool,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_retransmitted: u64,
    bytes_reinjected: u64,
    blocks_failed: u64,
    rtt_ms: Option<f64>,
    congestion_window: u32,
    segments_sent: u64,
    segments_received: u64,
    segments_lost: u64,
    segments_dropped: u64,
}

impl Reporter {
    /// Creates or empties the file, so that an error shows before anything else happens.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Self> {
        let create = |file: &std::path::PathBuf| {
            File::create(file).with_context(|| format!("cannot write the status to {}", file.display()))
        };
        let json = options.status_json.as_ref().map(create).transpose()?;
        Ok(Self { on_standard_error: options.status, json })
    }

    /// Tells about one connection.
    pub(crate) fn report(
        &mut self,
        paths: &[Path],
        peer: Option<SocketAddr>,
        status: &Status,
    ) -> anyhow::Result<()> {
        let report = Report::new(paths, peer, status);
        if self.on_standard_error {
            // Where standard error is closed nobody wants to know.
            let _ = io::stderr().write_all(report.words(status.negotiated).as_bytes());
        }
        if let Some(file) = &mut self.json {
            let mut line = serde_json::to_string(&report)?;
            line.push('\n');
            file.write_all(line.as_bytes()).context("cannot write the status")?;
        }
        Ok(())
    }
}

impl Report {
    fn new(paths: &[Path], peer: Option<SocketAddr>, status: &Status) -> Self {
        let Status { negotiated, scrambling, sealed, subflows, bytes_delivered, bytes_read, age, counters } =
            status;
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
            paths: paths.iter().map(|path| PathReport::new(path, subflows, total)).collect(),
            subflows: subflows.iter().map(|subflow| SubflowReport::new(subflow, paths)).collect(),
        }
    }

    /// For people.
    fn words(&self, negotiated: Negotiated) -> String {
        let what = match negotiated {
            Negotiated::Opening => "not yet open".to_owned(),
            Negotiated::Multipath { version, checksum } => {
                format!(
                    "Multipath TCP version {version}{}",
                    if checksum { ", with data checksums" } else { "" }
                )
            }
            Negotiated::Plain(reason) => format!("plain TCP: {}", explanation(reason)),
        };
        let peer = self.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
        let mut text = format!(
            "plait: connection{peer}: {what}; sent {}, received {} in {:.1} s\n",
            amount(self.bytes_delivered),
            amount(self.bytes_read),
            self.age_ms / 1000.0
        );
        match (&self.sealed, &self.scrambling) {
            (Some(sealed), _) => text += &sealed.words(),
            (None, Some(scrambling)) => text += &scrambling.words(),
            (None, None) => text += "  not sealed: everybody on the way can read and change the bytes\n",
        }
        let header = ["PATH", "STATE", "SUBFLOWS", "SENT", "RECEIVED", "SHARE", "RTT", "LOSS", "SENT AGAIN"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(self.paths.iter().map(PathReport::row));
        let widths: Vec<usize> = (0..header.len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        for row in rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
        }
        let unusual: Vec<_> = self.counters.iter().filter(|(_, count)| **count > 0).collect();
        if !unusual.is_empty() {
            let words: Vec<_> =
                unusual.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
            let _ = writeln!(text, "  counted: {}", words.join(", "));
        }
        text
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

    fn words(&self) -> String {
        let mut words = "  scrambled (obfuscation, not encryption)".to_owned();
        if self.bytes_degraded > 0 {
            let bytes = amount(self.bytes_degraded);
            let _ = write!(words, "; DEGRADED: {bytes} over untrusted paths without any trusted one");
        }
        words + "\n"
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
            failure: failure.clone(),
        }
    }

    /// For people.
    fn words(&self) -> String {
        let suite = self.suite.unwrap_or("nothing yet");
        let handshake = self.handshake.unwrap_or("no handshake yet");
        let peer = match self.peer.as_str() {
            "anonymous" => "encrypted, not authenticated".to_owned(),
            peer => format!("peer {peer}"),
        };
        format!(
            "  sealed: {suite} after {handshake}, {peer}, keys {}/{}\n",
            self.generations[0], self.generations[1]
        )
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
            report.segments_sent += tcp.segments_sent;
            report.segments_lost += tcp.segments_lost;
            report.rtt_ms = smaller(report.rtt_ms, tcp.srtt);
            report.min_rtt_ms = smaller(report.min_rtt_ms, tcp.min_rtt);
        }
        report.share = part(own, total);
        report.loss = part(report.segments_lost, report.segments_sent);
        report
    }

    fn row(&self) -> [String; 9] {
        let state = match (self.up, self.backup) {
            (false, _) => "down",
            (true, true) => "backup",
            (true, false) => "up",
        };
        [
            self.name.clone(),
            state.to_owned(),
            self.subflows.to_string(),
            amount(self.bytes_sent),
            amount(self.bytes_received),
            format!("{:.0}%", self.share * 100.0),
            self.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1}ms")),
            format!("{:.2}%", self.loss * 100.0),
            amount(self.bytes_retransmitted + self.bytes_reinjected),
        ]
    }
}

impl SubflowReport {
    fn new(subflow: &SubflowStatus, paths: &[Path]) -> Self {
        let SubflowStatus { id, path, tuple, usable, backup, tcp, reinjected, blocks_failed } = subflow;
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
            rtt_ms: tcp.srtt.map(millis),
            congestion_window: tcp.congestion_window,
            segments_sent: tcp.segments_sent,
            segments_received: tcp.segments_received,
            segments_lost: tcp.segments_lost,
            segments_dropped: tcp.segments_dropped,
        }
    }
}

fn class(class: PathClass) -> &'static str {
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

/// Bytes with a unit, three digits or so.
fn amount(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
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

fn explanation(reason: PlainReason) -> &'static str {
    match reason {
        PlainReason::NotOffered => "Multipath TCP was not offered here",
        PlainReason::PeerPlain => {
            "the peer did not offer Multipath TCP, or its offer was stripped on the way"
        }
        PlainReason::NotInSynAck => {
            "the peer does not speak Multipath TCP, or its answer was stripped on the way"
        }
        PlainReason::SynDropped => "something on the way drops SYNs that offer Multipath TCP",
        PlainReason::NotInAck => "the options of the handshake's last segment were stripped on the way",
        PlainReason::NoDss => "the options of data segments are stripped on the way",
        PlainReason::Unsupported => "the peer asks for a kind of Multipath TCP that is unknown here",
        PlainReason::ChecksumFailed => "data was changed on the way, and there was no other path",
        PlainReason::PeerFellBack => "the peer fell back",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, id: u8) -> Path {
        Path {
            id: host::PathId(id),
            name: name.to_owned(),
            class: PathClass::Trusted,
            backup: false,
            v4: None,
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up: true,
        }
    }

    fn status(negotiated: Negotiated) -> Status {
        Status {
            negotiated,
            scrambling: None,
            sealed: None,
            subflows: Vec::new(),
            bytes_delivered: 3 << 20,
            bytes_read: 512,
            age: Duration::from_millis(2500),
            counters: StatusCounters { stalls: 2, ..StatusCounters::default() },
        }
    }

    #[test]
    fn people_read_what_was_agreed_on_and_why_not_more() {
        let paths = [path("eth0", 0), path("wlan0", 1)];
        let multipath = Negotiated::Multipath { version: 1, checksum: true };
        let text = Report::new(&paths, None, &status(multipath)).words(multipath);
        let first = "plait: connection: Multipath TCP version 1, with data checksums; sent 3.0 MiB, received 512 B in 2.5 s\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("\n  wlan0  up "), "{text}");
        assert!(text.ends_with("\n  counted: stalls 2\n"), "{text}");
        let plain = Negotiated::Plain(PlainReason::NotInSynAck);
        let text = Report::new(&paths, None, &status(plain)).words(plain);
        assert!(text.contains("plain TCP: the peer does not speak Multipath TCP"), "{text}");
    }

    #[test]
    fn scrambling_is_never_called_more_than_it_is() {
        let negotiated = Negotiated::Multipath { version: 2, checksum: false };
        let scrambling = ScrambleStatus {
            start: ScrambleStart::Key8,
            trusted: TrustedPaths::Gone,
            stalled: false,
            degraded: 2048,
        };
        let status = Status { scrambling: Some(scrambling), ..status(negotiated) };
        let report = Report::new(&[path("eth0", 0)], None, &status);
        let text = report.words(negotiated);
        let words = "\n  scrambled (obfuscation, not encryption); DEGRADED: 2.0 KiB over untrusted paths";
        assert!(text.contains(words) && !text.contains("not sealed"), "{text}");
        let value = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            (&value["sealed"], &value["scrambling"]["start"]),
            (&serde_json::Value::Null, &"key8".into())
        );
        assert_eq!(value["paths"][0]["class"], "trusted");
    }

    #[test]
    fn programs_read_one_object_in_a_line() {
        let report = Report::new(&[path("eth0", 0)], None, &status(Negotiated::Plain(PlainReason::NoDss)));
        let line = serde_json::to_string(&report).expect("JSON");
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["negotiated"], "plain");
        assert_eq!(value["reason"], "no-dss");
        assert_eq!(value["paths"][0]["name"], "eth0");
    }

    #[test]
    fn amounts_have_the_unit_that_fits() {
        assert_eq!(amount(0), "0 B");
        assert_eq!(amount(1023), "1023 B");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(u64::MAX), "16777216.0 TiB");
    }
}
