//! `plait check`, and `plait doctor --server`: what each path and carrier lets through to a server.

mod clock;
mod remarks;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plait::{
    Carrier, Carriers, Check as Ways, Fingerprint, Handshake, Identity, Interference, Measured, Path, Peer,
    Rebinding, Remote, Sealing, SharedAddress, SharedNetwork, Trust, Verdict, WayReport,
};
use plait_proxy::keys::KeyStore;
use plait_proxy::url::ServerUrl;
use serde::Serialize;

use self::clock::ClockReport;
use crate::exit::{self, BUSY, Exit, NOT_AUTHORIZED};
use crate::options::{named, seconds};
use crate::output;
use crate::protection::default_store;
use crate::status::SCHEMA;
use crate::system;

/// Try each path to the server alone, over TCP and over UDP, with a sealed connection for each: print what comes through, what is
/// stripped, and the round trip. It takes some seconds. Without root only UDP can be tried.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION_OF_CHECK)]
pub(crate) struct Check {
    /// The server, as `plait serve` prints it: plait://HOST:7443#FINGERPRINT; HOST[:PORT] is enough. A `plait listen` is a server, too.
    server: ServerUrl,
    #[command(flatten)]
    trial: Trial,
    /// Write one JSON object to standard output instead of the table.
    #[arg(long)]
    json: bool,
}

/// How the ways to a server are tried, by `plait check` and by `plait doctor --server`. Without a server this makes no sense, and is
/// refused unless a variable of the environment gives it.
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// A device to try (repeatable) [default: the devices of the default routes].
    #[arg(short, long = "path", value_name = "DEV")]
    pub(crate) paths: Vec<Path>,
    /// Carrier to try: tcp, udp, or auto for both.
    #[arg(long, default_value = "auto", value_name = "CARRIER", value_parser = named::<Carriers>, env = "PLAIT_CARRIER")]
    carrier: Carriers,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "ipv6", requires = "server")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6', requires = "server")]
    ipv6: bool,
    /// Give up a path that has no connection after so many seconds.
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds, requires = "server")]
    connect_timeout: Duration,
    /// Leave each connection idle for so many seconds, to see whether NATs keep its mapping; most forget UDP after 30 seconds or later.
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds, requires = "server")]
    idle: Duration,
    /// Directory of our key and of the keys of known servers [default: ~/.config/plait, and ~/.local/state/plait for known_peers, or as
    /// XDG_CONFIG_HOME and XDG_STATE_HOME say; for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS")]
    keys: Option<PathBuf>,
    /// Take the private addresses of the stack from this network, a /16 of IPv4 or a /48 of IPv6 (repeatable).
    #[arg(long = "range", value_name = "NETWORK", requires = "server")]
    ranges: Vec<std::net::IpAddr>,
}

/// No path to the server can be used. Its text gives the reason of each.
#[derive(Debug)]
pub(crate) struct NotUsable {
    words: String,
    exit: Exit,
}

impl fmt::Display for NotUsable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for NotUsable {}

/// The result for programs (docs/status.md).
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    schema: u32,
    /// `check`.
    kind: &'static str,
    server: String,
    /// Whether a connection is possible.
    usable: bool,
    key: KeyReport,
    ways: Vec<Way>,
    /// The paths that count as one.
    shared: Vec<SharedReport>,
    /// The fault of this machine's clock, or of that of the server; `null` if none is known.
    clock: Option<ClockReport>,
    /// The exit status if no path is usable.
    #[serde(skip)]
    obstacle: Option<NotUsable>,
}

/// The server's key.
#[derive(Debug, Serialize)]
struct KeyReport {
    /// The key shown on the first working path.
    shown: Option<String>,
    /// `given` with the server's name, `known` from before, `new`, or `none`.
    known: &'static str,
    /// Whether all working paths have led to the same key.
    agrees: bool,
}

/// Paths of one network.
#[derive(Debug, Serialize)]
struct SharedReport {
    paths: Vec<String>,
    /// For people.
    why: String,
}

/// A path and a carrier.
#[derive(Debug, Serialize)]
struct Way {
    path: String,
    carrier: String,
    /// `usable`, `unavailable`, `no-answer`, `dropped`, `refused`, `unreachable`, `stripped`, `broken`, `handshake`, `not-authorized` or
    /// `busy`.
    verdict: String,
    /// For people.
    reason: Option<String>,
    /// The changes of options on the path.
    options: Vec<OptionReport>,
    /// Our address, the server's, and ours as the server sees it.
    local: Option<String>,
    remote: Option<String>,
    seen_from: Option<String>,
    /// Whether a NAT is on the path, and whether the connection has outlived `--idle` behind it.
    nat: Option<bool>,
    outlives_idle: Option<bool>,
    /// Our address as the server has seen it before and after a NAT has changed it.
    rebound: Option<[String; 2]>,
    /// Longest packet that has arrived, in bytes, and the MTU of the device.
    mtu: Option<u16>,
    link_mtu: Option<u16>,
    /// Longest packet of the server that has arrived here, and the MTU of its device.
    received_mtu: Option<u16>,
    peer_link_mtu: Option<u16>,
    /// `to-server` or `from-server`: the direction in which only shorter packets pass.
    narrows: Option<String>,
    rtt_ms: Option<f64>,
    min_rtt_ms: Option<f64>,
    /// Fraction of the lost segments, 0 to 1.
    loss: Option<f64>,
    handshake: Option<&'static str>,
    key_exchange: Option<&'static str>,
    suite: Option<&'static str>,
    peer: Option<String>,
    /// Seconds by which the clock of the server is ahead.
    clock_ahead_s: Option<i64>,
}

/// An option that was changed on the path.
#[derive(Debug, Serialize)]
struct OptionReport {
    option: &'static str,
    /// `stripped`, `altered` or `dropped`.
    change: String,
    /// `syn`, `syn-ack`, `syn-or-syn-ack` or `later`.
    at: String,
    certain: bool,
}

impl Check {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let report = self.trial.run(&self.server).await?;
        let text = if self.json { serde_json::to_string(&report)? + "\n" } else { report.words() };
        output::result(text)?;
        report.usability()
    }
}

impl Trial {
    /// Tries all paths to `server`.
    ///
    /// # Errors
    /// No path could be tried at all. That no path can be used is in the report ([`Report::usability`]).
    pub(crate) async fn run(&self, server: &ServerUrl) -> anyhow::Result<Report> {
        let store = self.keys.clone().map_or_else(default_store, KeyStore::new);
        let known = store.known_peers().keys_of(&server.authority())?;
        let known: Vec<_> = known.into_iter().map(|known| known.fingerprint).collect();
        let keys = server.pin.map_or_else(|| known.clone(), |pin| vec![pin]);
        let mut sealing = match keys.is_empty() {
            false => Sealing::new(Trust::any_of(keys.iter().copied())),
            // No data is sent: the check only finds out which server answers.
            true => Sealing::new(Trust::anonymous()),
        };
        // Some servers accept certain clients only. An unknown server does not see our key.
        if !keys.is_empty() && store.path("identity").exists() {
            sealing = sealing.identity(&Identity::load(store.path("identity"))?);
        }
        let sealing = sealing.handshakes([Handshake::Tls13]).full_handshakes();
        let host = plait::Host::builder().address_ranges(self.ranges.iter().copied());
        let check = Ways::new(self.remote(server), sealing).host(host).carriers(self.carrier);
        let check = check.limit(self.connect_timeout).idle(self.idle);
        let mut ways = self.paths.iter().cloned().fold(check, Ways::path).run().await?;
        name_untracked(&mut ways, server.port).await?;
        let devices = ways.iter().map(|way| way.device.clone()).collect();
        let networks = tokio::task::spawn_blocking(move || networks_behind(devices)).await?;
        let shared = SharedReport::all(&networks, &ways);
        let clock = tokio::task::spawn_blocking(system::fault_of_clock).await?;
        let clock = ClockReport::of(clock, &ways);
        Ok(Report { shared, clock, ..Report::new(server, &known, &ways) })
    }

    fn remote(&self, server: &ServerUrl) -> Remote {
        let remote = Remote::from((server.host.as_str(), server.port));
        match (self.ipv4, self.ipv6) {
            (true, _) => remote.ipv4_only(),
            (false, true) => remote.ipv6_only(),
            (false, false) => remote,
        }
    }
}

impl NotUsable {
    fn new(server: &ServerUrl, ways: &[WayReport]) -> Self {
        let any = |verdicts: &[Verdict]| ways.iter().any(|way| verdicts.contains(&way.verdict));
        let exit = if any(&[Verdict::Handshake, Verdict::NotAuthorized]) {
            Exit::Identity
        } else if any(&[Verdict::Stripped, Verdict::Dropped, Verdict::Broken]) {
            Exit::Policy
        } else if any(&[Verdict::NoAnswer, Verdict::Refused, Verdict::Unreachable, Verdict::Busy]) {
            Exit::Unreachable
        } else {
            Exit::Missing
        };
        let mut words = format!("no way to {} can be used", server.authority());
        if any(&[Verdict::NotAuthorized]) {
            words += &format!("\n  fix: {NOT_AUTHORIZED}");
        } else if any(&[Verdict::Busy]) {
            words += &format!("\n  fix: {BUSY}");
        }
        Self { words, exit }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl Report {
    fn new(server: &ServerUrl, known: &[Fingerprint], ways: &[WayReport]) -> Self {
        let shown: Vec<&Peer> = ways.iter().filter_map(|way| Some(&way.measured.as_ref()?.peer)).collect();
        let key = KeyReport {
            shown: shown.first().map(ToString::to_string),
            known: match (server.pin, known, shown.first()) {
                (_, _, None) => "none",
                (Some(_), _, _) => "given",
                (None, [_, ..], _) => "known",
                (None, [], _) => "new",
            },
            agrees: shown.windows(2).all(|pair| pair[0] == pair[1]),
        };
        let usable = ways.iter().any(|way| way.verdict == Verdict::Usable);
        Self {
            schema: SCHEMA,
            kind: "check",
            server: server.to_string(),
            usable,
            key,
            ways: ways.iter().map(Way::from).collect(),
            shared: Vec::new(),
            clock: None,
            obstacle: (!usable).then(|| NotUsable::new(server, ways)),
        }
    }

    /// # Errors
    /// No path can be used.
    pub(crate) fn usability(self) -> anyhow::Result<()> {
        self.obstacle.map_or(Ok(()), |obstacle| Err(obstacle.into()))
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let header = ["PATH", "CARRIER", "RESULT", "RTT", "LOSS", "MTU", "NAT"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(self.ways.iter().map(Way::row));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        }
        for way in &self.ways {
            way.remarks(&mut text);
        }
        for SharedReport { paths: _, why } in &self.shared {
            let _ = writeln!(text, "{why}");
        }
        if let Some(ClockReport { why, fix }) = &self.clock {
            let _ = writeln!(text, "the clock of this machine: {why}\n  fix: {fix}");
        }
        if let Some(way) = self.ways.iter().find(|way| way.suite.is_some()) {
            let word = |word: Option<&'static str>| word.unwrap_or("nothing");
            let (suite, handshake, exchange) = (word(way.suite), word(way.handshake), word(way.key_exchange));
            let _ = writeln!(text, "sealed by {suite} after {handshake} ({exchange})");
        }
        if let Some(shown) = &self.key.shown {
            let known = match self.key.known {
                "given" => "as it was given",
                "known" => "as it is known from before",
                _ => "not known yet: compare it with what the server printed",
            };
            let _ = writeln!(text, "server's key {shown}: {known}");
        }
        if !self.key.agrees {
            text += "WARNING: the ways lead to different keys: an attacker is on one of them\n";
        }
        text
    }
}

/// Adds a rule of this machine that stops TCP to `port` to the reason of each way over TCP that was tried and cannot be used.
async fn name_untracked(ways: &mut [WayReport], port: u16) -> anyhow::Result<()> {
    let is_stopped = |way: &&mut WayReport| {
        way.carrier == Carrier::Tcp && !matches!(way.verdict, Verdict::Usable | Verdict::Unavailable)
    };
    let mut stopped = ways.iter_mut().filter(is_stopped).peekable();
    if stopped.peek().is_none() {
        return Ok(());
    }
    if let Some((why, fix)) = tokio::task::spawn_blocking(move || system::untracked(port)).await? {
        stopped.for_each(|way| way.reason += &format!("\n{why}\n  fix: {fix}"));
    }
    Ok(())
}

/// Returns the networks that several of the devices share. Blocks for some hundred milliseconds.
fn networks_behind(mut devices: Vec<String>) -> Vec<SharedNetwork> {
    devices.dedup();
    plait::shared_networks(&devices).unwrap_or_else(|error| {
        tracing::warn!(%error, "it is unknown whether the devices lead into one network");
        Vec::new()
    })
}

impl SharedReport {
    /// The paths that share a network according to this machine, or a public address according to the server.
    fn all(networks: &[SharedNetwork], ways: &[WayReport]) -> Vec<Self> {
        let networks = networks.iter().map(|network| (network.devices().to_vec(), network.to_string()));
        let addresses = SharedAddress::among(ways);
        let addresses = addresses.iter().map(|address| (address.devices().to_vec(), address.to_string()));
        networks.chain(addresses).map(|(paths, why)| Self { paths, why }).collect()
    }
}

impl From<&WayReport> for Way {
    fn from(way: &WayReport) -> Self {
        let measured = way.measured.as_ref();
        let millis = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
        let of = |what: fn(&Measured) -> Option<Duration>| millis(measured.and_then(what));
        Self {
            path: way.device.clone(),
            carrier: way.carrier.to_string(),
            verdict: way.verdict.to_string(),
            reason: (!way.reason.is_empty()).then(|| way.reason.clone()),
            options: way.interference.iter().map(OptionReport::from).collect(),
            local: measured.map(|measured| measured.local.ip().to_string()),
            remote: measured.map(|measured| measured.remote.to_string()),
            seen_from: measured.and_then(|measured| Some(measured.seen_from?.to_string())),
            nat: measured.and_then(|measured| measured.is_translated),
            outlives_idle: measured.and_then(|measured| measured.outlives_silence),
            rebound: measured
                .and_then(|measured| measured.rebound)
                .map(|Rebinding { before, after, .. }| [before, after].map(|seen| seen.to_string())),
            mtu: measured.map(|measured| measured.mtu),
            link_mtu: measured.map(|measured| measured.link_mtu),
            received_mtu: measured.and_then(|measured| measured.received_mtu),
            peer_link_mtu: measured.and_then(|measured| measured.peer_link_mtu),
            narrows: measured.and_then(|measured| Some(measured.narrow_direction()?.to_string())),
            rtt_ms: of(|measured| measured.round_trip),
            min_rtt_ms: of(|measured| measured.min_round_trip),
            loss: measured.map(|measured| measured.loss),
            handshake: measured.and_then(|measured| measured.handshake),
            key_exchange: measured.and_then(|measured| measured.key_exchange),
            suite: measured.and_then(|measured| measured.cipher_suite),
            peer: measured.map(|measured| measured.peer.to_string()),
            clock_ahead_s: measured.and_then(|measured| measured.clock_ahead),
        }
    }
}

impl From<&Interference> for OptionReport {
    fn from(interference: &Interference) -> Self {
        Self {
            option: interference.option,
            change: interference.change.to_string(),
            at: interference.at.to_string(),
            certain: interference.is_certain,
        }
    }
}

impl Way {
    fn row(&self) -> [String; 7] {
        let none = || "-".to_owned();
        [
            self.path.clone(),
            self.carrier.clone(),
            self.verdict.clone(),
            self.rtt_ms.map_or_else(none, |rtt| format!("{rtt:.1}ms")),
            self.loss.map_or_else(none, |loss| format!("{:.1}%", loss * 100.0)),
            self.mtu.map_or_else(none, |mtu| mtu.to_string()),
            match self.nat {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => none(),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(verdict: &str) -> Way {
        Way {
            path: "wan1".to_owned(),
            carrier: "tcp".to_owned(),
            verdict: verdict.to_owned(),
            reason: None,
            options: Vec::new(),
            local: None,
            remote: None,
            seen_from: None,
            nat: None,
            outlives_idle: None,
            rebound: None,
            mtu: None,
            link_mtu: None,
            received_mtu: None,
            peer_link_mtu: None,
            narrows: None,
            rtt_ms: None,
            min_rtt_ms: None,
            loss: None,
            handshake: None,
            key_exchange: None,
            suite: None,
            peer: None,
            clock_ahead_s: None,
        }
    }

    #[test]
    fn people_are_told_which_option_was_stripped_where_and_how_certain_that_is() {
        let stripped = |at: &str, certain| OptionReport {
            option: "TCP-ENO",
            change: "stripped".to_owned(),
            at: at.to_owned(),
            certain,
        };
        let ways =
            vec![Way { options: vec![stripped("syn", true), stripped("later", false)], ..way("stripped") }];
        let key = KeyReport { shown: None, known: "none", agrees: true };
        let report = Report {
            schema: SCHEMA,
            kind: "check",
            server: "gw:1".to_owned(),
            usable: false,
            key,
            ways,
            clock: Some(ClockReport { why: "it is 1970".to_owned(), fix: "date --set".to_owned() }),
            shared: vec![SharedReport { paths: Vec::new(), why: "wan1 and wan2 leave by one".to_owned() }],
            obstacle: None,
        };
        let text = report.words();
        assert!(text.contains("wan1  tcp      stripped  -"), "{text}");
        assert!(text.contains("wan1 over tcp: TCP-ENO stripped in the SYN\n"), "{text}");
        assert!(text.contains("wan1 over tcp: TCP-ENO stripped behind the SYN/ACK, as it seems\n"), "{text}");
        assert!(text.contains("\nwan1 and wan2 leave by one\n"), "{text}");
        assert!(text.contains("\nthe clock of this machine: it is 1970\n  fix: date --set\n"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }
}
