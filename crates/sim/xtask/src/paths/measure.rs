//! One run: a client that sends to a server over one path or two.

use core::num::NonZeroU16;
use plait_base::{Duration, Instant, SeededRandom};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, PathClass, Protect, Scheduler, SealedSettings};
use plait_sim::{Application, CloseMode, Families, Pair, Workload, World};
use plait_tcp::congestion::Algorithm;
use std::sync::Arc;

use super::course::Leg;

/// The settings of a connection over both paths and over each alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Settings {
    pub(crate) congestion: Congestion,
    pub(crate) protection: Protection,
    pub(crate) rule: Rule,
    pub(crate) size: Size,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) pacing: Option<bool>,
    pub(crate) seed: u64,
}

impl Settings {
    /// The common settings of the cells of one table.
    pub(crate) fn table(&self) -> (Congestion, Protection, Rule) {
        (self.congestion, self.protection, self.rule)
    }
}

/// Congestion controllers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Congestion {
    /// CUBIC on clean paths, BBR on those that lose segments or vary in delay without a queue.
    Adaptive,
    /// RFC 9438.
    Cubic,
    /// Linked increases (RFC 6356).
    Lia,
    /// Opportunistic linked increases.
    Olia,
    /// A model of each path (draft-ietf-ccwg-bbr).
    Bbr,
}

/// Protections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protection {
    /// Regular Multipath TCP.
    Plain,
    /// Sealed, by TLS 1.3.
    Sealed,
}

/// Schedulers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rule {
    /// The default.
    LowestRtt,
    /// One after the other.
    RoundRobin,
    /// Visits of 64 bytes on the second path, which is not trusted.
    Dispersed,
}

/// Sizes of transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Size {
    /// 1 MiB.
    #[value(name = "1")]
    OneMib,
    /// 10 MiB.
    #[value(name = "10")]
    TenMib,
    /// 20 MB, as published measurements have it.
    #[value(name = "20MB")]
    TwentyMb,
    /// 100 MiB.
    #[value(name = "100")]
    HundredMib,
    /// Without end, after the time that controllers take to settle.
    Steady,
}

impl Congestion {
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::Adaptive => Algorithm::Adaptive,
            Self::Cubic => Algorithm::Cubic,
            Self::Lia => Algorithm::Lia,
            Self::Olia => Algorithm::Olia,
            Self::Bbr => Algorithm::Bbr,
        }
    }
}

impl Protection {
    pub(crate) fn settings(self) -> Protect {
        match self {
            Self::Plain => Protect::Plain,
            Self::Sealed => sealed(),
        }
    }
}

impl Size {
    pub(crate) const ALL: [Self; 4] = [Self::OneMib, Self::TenMib, Self::HundredMib, Self::Steady];

    /// Bytes; `None` without end.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::OneMib => Some(1 << 20),
            Self::TenMib => Some(10 << 20),
            Self::TwentyMb => Some(20_000_000),
            Self::HundredMib => Some(100 << 20),
            Self::Steady => None,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    /// Mbit/s of the application's bytes, from the first SYN to the last byte read; in steady state over the time measured. 0 if
    /// not all bytes have arrived in an hour.
    pub(crate) goodput: f64,
    /// Payload that each path carried, retransmissions included, as a part of what all did.
    pub(crate) shares: Vec<f64>,
    /// Bytes that were sent on a further subflow, as a part of those that were said.
    pub(crate) reinjected: f64,
}

/// No run takes longer, in simulated time.
const LIMIT: Duration = Duration::from_secs(3600);

/// Lays the paths. What happens on a path by chance is the same where it is alone.
pub(crate) fn lay(pair: &mut Pair, seed: u64, paths: &[Leg]) {
    for (number, path) in paths.iter().enumerate() {
        let seed = seed ^ path.model.rate << 32 ^ path.model.round_trip << 16;
        pair.chain(number, vec![path.element(seed)]);
    }
}

/// Sends over these paths.
pub(crate) fn measure(settings: &Settings, paths: &[Leg]) -> Figure {
    let mut pair = Pair::new(settings.seed, paths.len(), Families::V4);
    lay(&mut pair, settings.seed, paths);
    if settings.rule == Rule::Dispersed && paths.len() > 1 {
        let second = pair.paths[1];
        pair.world.change_path(pair.client, second, |path| path.class = PathClass::Untrusted);
    }
    let config = settings.config();
    pair.serve(&config, Workload::of(0).leaving(CloseMode::Waiting));
    let begin = pair.world.now();
    let goodput = match settings.size.bytes() {
        Some(bytes) => {
            pair.open(&config, Workload::of(bytes));
            let server = pair.server;
            let is_over = pair.world.run_until(LIMIT, |world| heard(world, server) == bytes);
            if is_over { rate(bytes, begin, pair.world.now()) } else { 0.0 }
        }
        None => {
            pair.open(&config, Workload::of(u64::MAX));
            steady(&mut pair, paths)
        }
    };
    figure(&pair, paths.len(), goodput)
}

/// Goodput after the time that controllers take to settle; over recordings, from their beginning to the end of the longest.
fn steady(pair: &mut Pair, paths: &[Leg]) -> f64 {
    if let Some(length) = paths.iter().filter_map(Leg::length).max() {
        let since = pair.world.now();
        pair.world.run_for(length);
        return rate(heard(&pair.world, pair.server), since, pair.world.now());
    }
    let longest = paths.iter().map(|path| path.model.round_trip).max().unwrap_or(0);
    pair.world.run_for(Duration::from_secs(10) + Duration::from_millis(20 * longest));
    let (since, before) = (pair.world.now(), heard(&pair.world, pair.server));
    pair.world.run_for(Duration::from_secs(20) + Duration::from_millis(20 * longest));
    rate(heard(&pair.world, pair.server) - before, since, pair.world.now())
}

fn heard(world: &World, server: plait_sim::HostIndex) -> u64 {
    world.accepted(server).next().map_or(0, Application::heard)
}

/// Mbit/s.
pub(crate) fn rate(bytes: u64, since: Instant, until: Instant) -> f64 {
    bytes as f64 * 8e-6 / until.saturating_since(since).as_secs_f64().max(1e-9)
}

fn figure(pair: &Pair, paths: usize, goodput: f64) -> Figure {
    let now = pair.world.now();
    let opened = pair.world.applications(pair.client).next();
    let status = opened.and_then(|(id, application)| {
        let over = application.outcome().map(|outcome| outcome.status.clone());
        over.or_else(|| pair.world.endpoint(pair.client).status(now, id))
    });
    let mut carried = vec![0.0; paths];
    let mut reinjected = 0;
    for subflow in status.iter().flat_map(|status| &status.subflows) {
        if let Some(bytes) = carried.get_mut(usize::from(subflow.path.0)) {
            *bytes += (subflow.tcp.bytes_sent + subflow.tcp.bytes_retransmitted) as f64;
        }
        reinjected += subflow.reinjected;
    }
    let all = carried.iter().sum::<f64>().max(1.0);
    let said = opened.map_or(1, |(_, application)| application.said()).max(1);
    Figure {
        goodput,
        shares: carried.iter().map(|bytes| bytes / all).collect(),
        reinjected: reinjected as f64 / said as f64,
    }
}

impl Settings {
    fn config(&self) -> Config {
        let mut config = Config {
            scheduler: match self.rule {
                Rule::LowestRtt => Scheduler::LowestRtt,
                Rule::RoundRobin => Scheduler::RoundRobin,
                Rule::Dispersed => Scheduler::Dispersed { max_exposure: MAX_EXPOSURE },
            },
            protect: self.protection.settings(),
            ..Config::default()
        };
        config.tcp.congestion = self.congestion.algorithm();
        if let Some(is_paced) = self.pacing {
            config.tcp.pacing = is_paced;
        }
        if let Some(bytes) = self.send_buffer {
            config.send_buffer = bytes;
        }
        config
    }
}

/// As `plait` has it where nothing else is said.
const MAX_EXPOSURE: NonZeroU16 = NonZeroU16::new(64).expect("not zero");

fn sealed() -> Protect {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let trust = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let name = ServerName::try_from("gw.example.com").expect("a name");
    Protect::Sealed(SealedSettings {
        teps: vec![Tep::Tls13],
        opener: Some(Arc::new(OpenerSettings::new(name, trust))),
        ..SealedSettings::listener(Arc::new(ListenerSettings::new(identity)))
    })
}
