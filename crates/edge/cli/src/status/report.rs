//! A connection as it is written to the file of `--status-json`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use plait::{
    Attempt, Both, CarrierChoice, Host, Negotiated, PathState, PathTotals, ScrambleStart, ScrambleStatus,
    SealStatus, SharedNetwork, Status, Subflow, TrustedPaths,
};
use serde::Serialize;

use super::datagrams::DatagramReport;
use crate::running::About;

/// The version of this format, which `plait status --json` also uses. An added name keeps the version; a removed name, or a changed
/// meaning, changes it.
pub(crate) const SCHEMA: u32 = 1;

/// One connection, as it is written to the file of `--status-json`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub(super) schema: u32,
    /// Its number in this process, counted from 0.
    pub(super) number: u64,
    /// The command that it belongs to.
    pub(super) kind: &'static str,
    /// When it was opened, as RFC 3339 writes it.
    pub(super) started: String,
    /// Its destination behind the server, if the client has sent it: `HOST:PORT`, `resolver` or `datagrams`.
    pub(super) destination: Option<String>,
    /// The client's identity, to a server.
    pub(super) client: Option<String>,
    /// `multipath`, `plain` or `opening`.
    pub(super) negotiated: &'static str,
    /// Version of Multipath TCP.
    pub(super) version: Option<u8>,
    /// Whether data checksums are in use.
    pub(super) checksum: bool,
    /// The reason of plain TCP, in one word.
    pub(super) reason: Option<&'static str>,
    /// The same for people.
    #[serde(skip)]
    pub(super) explanation: Option<String>,
    /// The protection of the bytes; absent without protection.
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
    /// Counts of dropped, refused and repeated things, by reason.
    pub(super) counters: BTreeMap<&'static str, u64>,
    /// The result of each attempt to open it, in the order of their start.
    pub(super) attempts: Vec<AttemptReport>,
    pub(super) paths: Vec<PathReport>,
    pub(super) subflows: Vec<SubflowReport>,
    /// The datagrams beside the stream; `null` if there were none, nor a flow.
    pub(super) datagrams: Option<DatagramReport>,
    /// The host, over all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<HostReport>,
}

/// The state that the host keeps, and the counters of segments of unknown peers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct HostReport {
    /// The current state.
    pub(super) now: BTreeMap<&'static str, u64>,
    /// Totals since it was started.
    pub(super) strangers: BTreeMap<&'static str, u64>,
}

/// One attempt to open the connection.
#[derive(Debug, Serialize)]
pub(super) struct AttemptReport {
    pub(super) path: String,
    /// `tcp` or `udp`.
    pub(super) carrier: String,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// How far it came.
    pub(super) stage: String,
    /// Whether it is the connection.
    pub(super) chosen: bool,
    /// The obstacle, in a word: `no-answer`, `refused`, `options` and others.
    pub(super) obstacle: Option<String>,
    /// The result, or the suspicion about its path.
    pub(super) verdict: String,
    /// Milliseconds from the beginning of the first attempt to the beginning of this one, and to its end.
    pub(super) began_ms: f64,
    pub(super) ended_ms: Option<f64>,
}

impl From<&Attempt> for AttemptReport {
    fn from(attempt: &Attempt) -> Self {
        Self {
            path: attempt.device().unwrap_or_default().to_owned(),
            carrier: attempt.carrier().to_string(),
            local: attempt.local_addr(),
            remote: attempt.peer_addr(),
            stage: attempt.stage(),
            chosen: attempt.is_chosen(),
            obstacle: attempt.obstacle().map(|obstacle| obstacle.to_string()),
            verdict: attempt.verdict(),
            began_ms: millis(attempt.began()),
            ended_ms: attempt.ended().map(millis),
        }
    }
}

/// The subflows over one path together.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathReport {
    /// The device.
    pub(super) name: String,
    /// `tcp` or `udp`.
    pub(super) carrier: String,
    /// `trusted`, `untrusted` or `never`.
    pub(super) class: String,
    pub(super) backup: bool,
    pub(super) up: bool,
    /// All that there were.
    pub(super) subflows: u64,
    /// Those that have not ended.
    pub(super) subflows_open: u64,
    /// Payload sent for the first time on this path, reinjections included.
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    pub(super) bytes_reinjected: u64,
    /// Sealed blocks of the peer that failed verification: an attacker changes bytes on this path.
    pub(super) blocks_failed: u64,
    /// Wrong option tags: an attacker guesses, or changes options on this path.
    pub(super) tags_failed: u64,
    /// Part of all bytes sent and received, 0 to 1.
    pub(super) share: f64,
    /// Smallest of its subflows'.
    pub(super) rtt_ms: Option<f64>,
    pub(super) min_rtt_ms: Option<f64>,
    pub(super) segments_sent: u64,
    /// Segments with data among them.
    pub(super) data_segments_sent: u64,
    pub(super) segments_lost: u64,
    /// Part of the segments with data that were lost, 0 to 1.
    pub(super) loss: f64,
    /// The carriers that are not in use here, and why.
    pub(super) not_used: BTreeMap<String, String>,
    /// The devices that count as one path with this one, and why, for people; `null` if there are none.
    pub(super) shares_network: Option<String>,
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
    /// Whether the handshake resumed an earlier session, in which the peer has proved its identity.
    pub(super) resumed: bool,
    /// How often the keys were changed, ours and the peer's.
    pub(super) generations: [u64; 2],
    /// Disjoint paths that have given a share to the keys, that of the handshake included: ours and the peer's.
    pub(super) mixed_paths: [usize; 2],
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
    /// `tcp` or `udp`.
    pub(super) carrier: String,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) usable: bool,
    /// How it has ended; `null` while it is open.
    pub(super) end: Option<&'static str>,
    pub(super) backup: bool,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    pub(super) bytes_reinjected: u64,
    pub(super) blocks_failed: u64,
    pub(super) tags_failed: u64,
    pub(super) rtt_ms: Option<f64>,
    pub(super) congestion_window: u32,
    /// Longest packet that is sent, in bytes, and the MTU of our device and of the peer's.
    pub(super) mtu: u16,
    pub(super) link_mtu: u16,
    pub(super) peer_link_mtu: Option<u16>,
    pub(super) segments_sent: u64,
    pub(super) data_segments_sent: u64,
    pub(super) segments_received: u64,
    pub(super) segments_lost: u64,
    pub(super) segments_dropped: u64,
}

impl Report {
    pub(crate) fn new(host: Option<&Host>, about: &About, status: &Status) -> Self {
        let (kind, version, checksum, reason) = match status.negotiated() {
            Negotiated::Multipath { version, checksum, .. } => ("multipath", Some(version), checksum, None),
            Negotiated::Plain(reason) => ("plain", None, false, Some(reason)),
            _ => ("opening", None, false, None),
        };
        let subflows = status.subflows();
        let About { number, kind: command, peer, client, destination, started } = about.clone();
        Self {
            schema: SCHEMA,
            number,
            kind: command,
            started,
            destination,
            client,
            negotiated: kind,
            version,
            checksum,
            reason: reason.map(plait::PlainReason::name),
            explanation: reason.map(|reason| reason.to_string()),
            sealed: status.sealed().as_ref().map(SealedReport::new),
            scrambling: status.scrambled().as_ref().map(ScrambleReport::new),
            peer,
            bytes_delivered: status.bytes_delivered(),
            bytes_read: status.bytes_read(),
            age_ms: millis(status.age()),
            counters: status.counters().iter().collect(),
            attempts: status.attempts().iter().map(AttemptReport::from).collect(),
            paths: PathReport::all(status, &subflows),
            subflows: subflows.iter().map(SubflowReport::from).collect(),
            datagrams: status.datagrams().map(DatagramReport::from),
            host: host.map(HostReport::from),
        }
    }
}

/// The network that this device shares with others, for people.
pub(crate) fn shared_network_of(device: &str, shared: &[SharedNetwork]) -> Option<String> {
    let network = shared.iter().find(|network| network.devices().iter().any(|member| member == device));
    network.map(SharedNetwork::to_string)
}

impl From<&Host> for HostReport {
    fn from(host: &Host) -> Self {
        Self { now: host.state().iter().collect(), strangers: host.totals().iter().collect() }
    }
}

impl ScrambleReport {
    fn new(status: &ScrambleStatus) -> Self {
        Self {
            start: match status.start() {
                ScrambleStart::HmacSha1 => "hmac-sha1",
                _ => "key8",
            },
            trusted_paths: match status.trusted_paths() {
                TrustedPaths::Work => "work",
                TrustedPaths::Stalled => "stalled",
                _ => "gone",
            },
            stalled: status.is_stalled(),
            bytes_degraded: status.bytes_degraded(),
        }
    }
}

impl SealedReport {
    fn new(sealed: &SealStatus) -> Self {
        Self {
            handshake: sealed.handshake(),
            suite: sealed.cipher_suite(),
            key_exchange: sealed.key_exchange(),
            peer: sealed.peer().to_string(),
            resumed: sealed.is_resumed(),
            generations: pair(sealed.generations()),
            mixed_paths: pair(sealed.mixed_paths()),
            handshake_bytes: pair(sealed.handshake_bytes()),
            blocks_sealed: sealed.blocks_sealed(),
            blocks_opened: sealed.blocks_opened(),
            blocks_elsewhere: sealed.blocks_elsewhere(),
            failure: sealed.failure().map(str::to_owned),
        }
    }
}

/// Ours, and the peer's.
fn pair<T>(both: Both<T>) -> [T; 2] {
    [both.ours, both.peers]
}

impl PathReport {
    /// Each device by the carriers that there were subflows by, or by one if there were none.
    fn all(status: &Status, subflows: &[Subflow]) -> Vec<Self> {
        let (totals, choices) = (status.path_totals(), status.carriers());
        let mut reports: Vec<Self> =
            status.paths().iter().map(|path| Self::new(path, &totals, subflows)).collect();
        let used: Vec<String> =
            reports.iter().filter(|report| report.subflows > 0).map(|report| report.name.clone()).collect();
        let mut told = Vec::new();
        reports.retain(|report| {
            let is_told = report.subflows > 0 || !used.contains(&report.name) && !told.contains(&report.name);
            told.push(report.name.clone());
            is_told
        });
        for report in &mut reports {
            let of_other = |choice: &&CarrierChoice| {
                choice.device == report.name && choice.carrier.to_string() != report.carrier
            };
            let why_not = choices
                .iter()
                .filter(of_other)
                .filter_map(|choice| Some((choice.carrier.to_string(), choice.why_not.clone()?)));
            report.not_used = why_not.collect();
            report.shares_network = shared_network_of(&report.name, status.shared_networks());
        }
        reports
    }

    fn new(path: &PathState, totals: &[PathTotals], subflows: &[Subflow]) -> Self {
        let mut report = Self {
            name: path.device().to_owned(),
            carrier: path.carrier().to_string(),
            class: path.trust_level().to_string(),
            backup: path.is_backup(),
            up: path.is_up(),
            ..Self::default()
        };
        let key = (path.device(), path.carrier());
        if let Some(own) = totals.iter().find(|own| (own.device.as_str(), own.carrier) == key) {
            report.subflows = own.subflows;
            report.bytes_sent = own.bytes_sent;
            report.bytes_received = own.bytes_received;
            report.bytes_retransmitted = own.bytes_retransmitted;
            report.bytes_reinjected = own.bytes_reinjected;
            report.blocks_failed = own.blocks_failed;
            report.tags_failed = own.tags_failed;
            report.segments_sent = own.segments_sent;
            report.data_segments_sent = own.data_segments_sent;
            report.segments_lost = own.segments_lost;
            report.share = part(carried(own), totals.iter().map(carried).sum());
        }
        for subflow in subflows.iter().filter(|subflow| (subflow.device(), subflow.carrier()) == key) {
            report.subflows_open += u64::from(subflow.end().is_none());
            report.rtt_ms = smaller(report.rtt_ms, subflow.round_trip_time());
            report.min_rtt_ms = smaller(report.min_rtt_ms, subflow.min_round_trip_time());
        }
        report.loss = part(report.segments_lost, report.data_segments_sent);
        report
    }
}

impl From<&Subflow> for SubflowReport {
    fn from(subflow: &Subflow) -> Self {
        Self {
            id: subflow.id(),
            path: subflow.device().to_owned(),
            carrier: subflow.carrier().to_string(),
            local: subflow.stack_addr(),
            remote: subflow.peer_addr(),
            usable: subflow.is_usable(),
            end: subflow.end(),
            backup: subflow.is_backup(),
            bytes_sent: subflow.bytes_sent(),
            bytes_received: subflow.bytes_received(),
            bytes_retransmitted: subflow.bytes_retransmitted(),
            bytes_reinjected: subflow.bytes_reinjected(),
            blocks_failed: subflow.blocks_failed(),
            tags_failed: subflow.tags_failed(),
            rtt_ms: subflow.round_trip_time().map(millis),
            congestion_window: subflow.congestion_window(),
            mtu: subflow.path_mtu(),
            link_mtu: subflow.link_mtu(),
            peer_link_mtu: subflow.peer_link_mtu(),
            segments_sent: subflow.segments_sent(),
            data_segments_sent: subflow.data_segments_sent(),
            segments_received: subflow.segments_received(),
            segments_lost: subflow.segments_lost(),
            segments_dropped: subflow.segments_dropped(),
        }
    }
}

fn carried(path: &PathTotals) -> u64 {
    path.bytes_sent + path.bytes_received
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
