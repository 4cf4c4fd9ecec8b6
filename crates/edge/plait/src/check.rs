//! Checks of what each path and carrier to a server lets through, each with a connection of its own.

mod judging;
mod measuring;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::attempt::Attempt;
use crate::connecting::ConnectOptions;
use crate::error::Error;
use crate::host::{Host, HostBuilder};
use crate::networks::path_obstacles;
use crate::path::Path;
use crate::protection::Protection;
use crate::remote::Remote;
use crate::status::Peer;
use crate::stream::Stream;
use crate::{Carrier, Carriers, PathObstacle};

/// How long a way may take to open a connection.
const LIMIT: Duration = Duration::from_secs(3);
/// For how long the rate is measured.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long a connection is left idle, to see whether NATs keep its mapping.
const IDLE: Duration = Duration::from_secs(2);
/// How long to wait for the reason of an unanswered connection. If there is a reason, it arrives sooner.
const REFUSAL: Duration = Duration::from_millis(100);

/// Tries each path of this host to a server, with each carrier alone. Each attempt uses a host of its own with that path only, so that no
/// packet takes another path. It takes some seconds, and leaves nothing behind.
///
/// ```no_run
/// # async fn example() -> Result<(), plait::Error> {
/// use plait::{Check, Trust};
///
/// for way in Check::new("gw.example.com:7443", Trust::anonymous()).run().await? {
///     println!("{} over {}: {}", way.device, way.carrier, way.verdict);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is run"]
pub struct Check {
    remote: Remote,
    /// An address of the server, once it is known.
    towards: Option<IpAddr>,
    protection: Protection,
    base: HostBuilder,
    paths: Vec<Path>,
    carriers: Carriers,
    limit: Duration,
    sample: Duration,
    idle: Duration,
}

/// The result of one path and carrier to the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WayReport {
    /// The device.
    pub device: String,
    /// The carrier.
    pub carrier: Carrier,
    /// The verdict, in a word.
    pub verdict: Verdict,
    /// The explanation for people; empty if the path can be used.
    pub reason: String,
    /// The changes of TCP options, as far as they can be detected.
    pub interference: Vec<Interference>,
    /// The measurements, if a connection was opened.
    pub measured: Option<Measured>,
}

/// The verdict on a path and carrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// A sealed connection works.
    Usable,
    /// This host or user cannot do it: no TUN device, no such path.
    Unavailable,
    /// No answer came.
    NoAnswer,
    /// SYNs with these options are dropped on the way, others are answered.
    Dropped,
    /// The SYN was refused.
    Refused,
    /// ICMP, or this host, reports the server as unreachable.
    Unreachable,
    /// Options were stripped or altered, so that nothing can be sealed.
    Stripped,
    /// The connection was established, and then cut off, silent or altered.
    Broken,
    /// The handshake failed: the server is not the expected one.
    Handshake,
    /// The server does not accept the key of this client, or requires one.
    NotAuthorized,
    /// The server is full or stopping, or refuses clients for a reason of its own.
    Busy,
}

/// A change of options on the path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Interference {
    /// The options.
    pub option: &'static str,
    /// The change.
    pub change: Change,
    /// In which message.
    pub at: Message,
    /// Whether this is the only possible explanation.
    pub is_certain: bool,
}

/// A change of an option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Removed.
    Stripped,
    /// Rewritten.
    Altered,
    /// The whole segment was dropped.
    Dropped,
}

/// A message of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Message {
    /// The first one, ours.
    Syn,
    /// The server's answer to it.
    SynAck,
    /// One of these two.
    SynOrSynAck,
    /// A later message.
    Later,
}

/// A change of our address by a NAT, as the server sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Rebinding {
    /// Our address on the first subflow, before the change.
    pub before: SocketAddr,
    /// Our address on the next subflow.
    pub after: SocketAddr,
}

/// The measurements of a connection over one path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// Our address.
    pub local: SocketAddr,
    /// The server's.
    pub remote: SocketAddr,
    /// Our address as the server sees it; `None` if it did not say.
    pub seen_from: Option<SocketAddr>,
    /// Whether a NAT has given us another address on the way.
    pub is_translated: Option<bool>,
    /// Whether the subflow outlived [`Check::idle`] without a word; `None` if it was not tried.
    pub outlives_silence: Option<bool>,
    /// Our addresses, if a NAT has given the first subflow another one during the check: the server then resets it.
    pub rebound: Option<Rebinding>,
    /// The longest packet that has arrived, at least, in bytes, IP header included.
    pub mtu: u16,
    /// The same for packets of the server; `None` if it has not sent long ones.
    pub received_mtu: Option<u16>,
    /// The MTU of our own device.
    pub link_mtu: u16,
    /// The MTU of the server's device, as its SYN/ACK has named it.
    pub peer_link_mtu: Option<u16>,
    /// The smallest and the smoothed round trip.
    pub min_round_trip: Option<Duration>,
    /// The smoothed one.
    pub round_trip: Option<Duration>,
    /// Fraction of our data segments that were lost, 0 to 1.
    pub loss: f64,
    /// The negotiated handshake, key agreement and cipher suite.
    pub handshake: Option<&'static str>,
    /// How the secret was agreed on.
    pub key_exchange: Option<&'static str>,
    /// The cipher suite of the blocks.
    pub cipher_suite: Option<&'static str>,
    /// The identity of the server.
    pub peer: Peer,
    /// Seconds by which the clock of the server is ahead of that of this machine; negative if it is behind, `None` if the server did not
    /// say. A second and a round trip of it may be the way of the answer.
    pub clock_ahead: Option<i64>,
}

/// A direction of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Direction {
    /// From this host.
    ToServer,
    /// To this host.
    FromServer,
}

/// Clocks that differ by less, besides a round trip, judge certificates alike.
const SAME_CLOCK: Duration = Duration::from_secs(30);

impl Measured {
    /// Seconds by which the clock of the server is ahead, if that is more than 30 seconds and a round trip, in either direction. One of both
    /// clocks is wrong then.
    #[must_use]
    pub fn clock_difference(&self) -> Option<i64> {
        let most = SAME_CLOCK + self.round_trip.unwrap_or_default();
        self.clock_ahead.filter(|ahead| ahead.unsigned_abs() > most.as_secs() + 1)
    }

    /// The direction in which shorter packets pass than in the other one, if the devices of both ends take longer ones.
    #[must_use]
    pub fn narrow_direction(&self) -> Option<Direction> {
        let passes = [self.mtu, self.received_mtu?];
        let ends = self.link_mtu.min(self.peer_link_mtu.unwrap_or(u16::MAX));
        match passes.map(|mtu| mtu.saturating_add(measuring::MAX_OPTIONS) < ends) {
            [true, false] => Some(Direction::ToServer),
            [false, true] => Some(Direction::FromServer),
            [true, true] | [false, false] => None,
        }
    }
}

impl Check {
    /// Returns a check of a server; `protection` is the protection of its connections. If only sealed connections are accepted, the report
    /// names what prevents sealing.
    pub fn new(remote: impl Into<Remote>, protection: impl Into<Protection>) -> Self {
        Self {
            remote: remote.into(),
            towards: None,
            protection: protection.into(),
            base: Host::builder(),
            paths: Vec::new(),
            carriers: Carriers::Auto,
            limit: LIMIT,
            sample: SAMPLE,
            idle: IDLE,
        }
    }

    /// Adds this path. Default: the paths of a host that is configured with none.
    pub fn path(mut self, path: Path) -> Self {
        self.paths.push(path);
        self
    }

    /// Sets the carriers. Default: both.
    pub fn carriers(self, carriers: Carriers) -> Self {
        Self { carriers, ..self }
    }

    /// Sets the configuration of the hosts that try the paths; it must have no paths yet.
    pub fn host(self, base: HostBuilder) -> Self {
        Self { base, ..self }
    }

    /// Sets how long each path may take to open a connection. Default: 3 seconds.
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sets how long connections are left idle to see whether NATs keep their mapping. Default: 2 seconds; zero skips the test.
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Tries all paths in parallel and the carriers of each in turn. Returns results in the order of the paths, TCP first.
    ///
    /// Dropping the future ends the attempts: their connections are reset, the network is restored, and there are no results.
    ///
    /// # Errors
    /// The server has no address, or there is no path to try. The failure of a path is in its report.
    pub async fn run(self) -> Result<Vec<WayReport>, Error> {
        let addresses = self.remote.resolve().await?;
        let towards = addresses.first().map(SocketAddr::ip);
        let paths = match &self.paths[..] {
            [] => Path::present(&Path::defaults(towards, self.carriers)?)?,
            paths => Path::present(paths)?,
        };
        let remote = self.remote.clone().at(addresses);
        let check = Self { remote, towards, ..self };
        let mut running = JoinSet::new();
        for (index, path) in paths.into_iter().enumerate() {
            let check = check.clone();
            running.spawn(async move { (index, check.path_alone(path).await) });
        }
        let mut done = Vec::new();
        while let Some(joined) = running.join_next().await {
            done.push(
                joined
                    .map_err(|error| Error::with_source(crate::ErrorKind::Other, error.to_string(), error))?,
            );
        }
        done.sort_by_key(|(index, _)| *index);
        let mut reports: Vec<WayReport> = done.into_iter().flat_map(|(_, reports)| reports).collect();
        judging::compare(&mut reports);
        Ok(reports)
    }

    /// One path, by each carrier.
    async fn path_alone(&self, path: Path) -> Vec<WayReport> {
        let mut reports = Vec::new();
        for &carrier in self.carriers.over(&path.devices()) {
            let mut report = self.way(path.clone(), carrier).await;
            if report.verdict != Verdict::Usable {
                report.name_obstacles(self.towards);
            }
            reports.push(report);
        }
        reports
    }

    async fn way(&self, path: Path, carrier: Carrier) -> WayReport {
        let device = path.devices();
        let report = |verdict, reason: String| WayReport {
            device: device.clone(),
            carrier,
            verdict,
            reason,
            interference: Vec::new(),
            measured: None,
        };
        let host = match self.base.clone().path(path).carriers(carrier.into()).start() {
            Ok(host) => host,
            Err(error) => return report(Verdict::Unavailable, error.to_string()),
        };
        if !host.paths().iter().any(crate::PathState::is_up) {
            let words = "the path is down: there is no such device, or it has no address";
            return report(Verdict::Unavailable, words.to_owned());
        }
        let opened = host.connect_with(self.remote.clone(), self.protection.clone(), &self.options()).await;
        let report = match opened {
            Ok(mut stream) => {
                let (measured, interference) = measuring::measure(&stream, self.sample, self.idle).await;
                // A server that refuses us says so in place of its first answer.
                let is_answered = measured.seen_from.is_some();
                let refusal = if is_answered { None } else { refusal_on(&mut stream).await };
                stream.abort();
                let (verdict, reason) = refusal
                    .map_or((Verdict::Usable, String::new()), |judged| (judged.verdict, judged.reason));
                WayReport { measured: Some(measured), interference, ..report(verdict, reason) }
            }
            Err(error) => {
                let answer = if judging::needs_plain_probe(carrier, &error) {
                    self.ask_plainly(&host).await
                } else {
                    None
                };
                let judged = judging::of(carrier, &error, answer);
                WayReport { interference: judged.interference, ..report(judged.verdict, judged.reason) }
            }
        };
        // Resets go out before the next host.
        let _ = timeout(Duration::from_millis(200), host.drained()).await;
        report
    }

    fn options(&self) -> ConnectOptions {
        ConnectOptions::new().within(self.limit)
    }

    /// Returns the result of a SYN without any of our options.
    async fn ask_plainly(&self, host: &Host) -> Option<judging::PlainAnswer> {
        match host.connect_with(self.remote.clone(), Protection::plain_tcp(), &self.options()).await {
            Ok(stream) => {
                stream.abort();
                Some(judging::PlainAnswer::Accepted)
            }
            Err(error) if error.attempts().iter().any(Attempt::is_established) => {
                Some(judging::PlainAnswer::Accepted)
            }
            Err(error) if error.kind() == crate::ErrorKind::Refused => Some(judging::PlainAnswer::Refused),
            Err(_) => None,
        }
    }
}

impl WayReport {
    /// Adds the obstacles on this machine to the explanation.
    fn name_obstacles(&mut self, towards: Option<IpAddr>) {
        // Without them the verdict stands all the same.
        let obstacles = path_obstacles(std::slice::from_ref(&self.device), towards).unwrap_or_default();
        let concerns = |obstacle: &&PathObstacle| obstacle.concerns(self.carrier);
        let words = obstacles.iter().filter(concerns).map(ToString::to_string);
        let is_cause = |obstacle: &PathObstacle| {
            matches!(obstacle, PathObstacle::RoutingDomain { .. }) && obstacle.concerns(self.carrier)
        };
        // The path over TCP is down because of its domain, not because of its addresses.
        let found = (!obstacles.iter().any(is_cause)).then(|| self.reason.clone());
        self.reason = found.into_iter().chain(words).collect::<Vec<_>>().join("\n");
    }
}

/// Returns the refusal that has ended the connection, if there is one.
async fn refusal_on(stream: &mut Stream) -> Option<judging::Judged> {
    match timeout(REFUSAL, stream.read_chunk()).await {
        Ok(Err(error)) => judging::refusal(error.into()),
        Ok(Ok(_)) | Err(_) => None,
    }
}

/// A name for programs, as `no-answer`.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usable => "usable",
            Self::Unavailable => "unavailable",
            Self::NoAnswer => "no-answer",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Stripped => "stripped",
            Self::Broken => "broken",
            Self::Handshake => "handshake",
            Self::NotAuthorized => "not-authorized",
            Self::Busy => "busy",
        })
    }
}

/// `stripped`, `altered` or `dropped`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stripped => "stripped",
            Self::Altered => "altered",
            Self::Dropped => "dropped",
        })
    }
}

/// A name for programs: `to-server` or `from-server`.
impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToServer => "to-server",
            Self::FromServer => "from-server",
        })
    }
}

/// A name for programs: `syn`, `syn-ack`, `syn-or-syn-ack` or `later`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syn => "syn",
            Self::SynAck => "syn-ack",
            Self::SynOrSynAck => "syn-or-syn-ack",
            Self::Later => "later",
        })
    }
}
