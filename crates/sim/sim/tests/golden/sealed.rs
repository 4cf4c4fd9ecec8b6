//! Sealed connections, by both handshakes.

use core::fmt::Write as _;
use plait_base::{Duration, Instant, SeededRandom};
use plait_handshake::{
    Identity, KeyLog, ListenerSettings, OpenerSettings, Policy, ServerName, ServerTrust, Tep,
};
use plait_mptcp::{Config, Protect, SealedSettings};
use plait_sim::{
    BlackHole, CloseMode, Coalescer, Corruptor, Cutter, Direction, Families, Forger, Forgery, Link,
    LinkConfig, Loss, Moment, Pair, Reordering, SequenceRewriter, Stripper, Workload, megabits, plain_link,
};
use std::sync::{Arc, Mutex};

use crate::scenario::{SOME, Scenario};
use crate::{ONE_V4, TWO_V4, on_paths};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = tcpcrypt();
    all.extend(tls().into_iter().map(Scenario::outlined));
    all
}

fn tcpcrypt() -> Vec<Scenario> {
    let x25519 = || sealed(Tep::TcpcryptCurve25519);
    let of = Workload::of;
    let both = [of(SOME), of(SOME)];
    let two = |name, seed| Scenario::talk(name, seed, TWO_V4, x25519(), both);
    let jobs = Config { crypto_jobs: 4, ..x25519() };
    vec![
        Scenario::talk("tcpcrypt-one-path", 300, ONE_V4, x25519(), both),
        two("tcpcrypt-two-paths", 301),
        Scenario::talk("tcpcrypt-two-paths-v6", 302, (2, Families::V6), x25519(), both),
        Scenario::talk("tcpcrypt-p256", 303, TWO_V4, sealed(Tep::TcpcryptP256), both),
        two("tcpcrypt-bad-links", 304).through(bad_links),
        two("tcpcrypt-payload-changed", 305).through(|pair| corrupt(pair, 1)),
        two("tcpcrypt-payload-changed-on-the-first-path", 306).through(|pair| corrupt(pair, 0)),
        two("tcpcrypt-forged-reset", 307)
            .through(on_paths([1], || Forger::new(Direction::Forward, Forgery::Reset, 20))),
        two("tcpcrypt-forged-data", 308)
            .through(on_paths([0], || Forger::new(Direction::Forward, Forgery::Data, 20))),
        two("tcpcrypt-stripped-later", 309).through(strip_later),
        Scenario::talk("tcpcrypt-stripped-always", 310, ONE_V4, x25519(), both)
            .through(on_paths([0], || Stripper::all(Moment::Always))),
        two("tcpcrypt-cut", 311).through(on_paths(0..2, || Cutter { size: 500 })),
        two("tcpcrypt-merged", 312).through(on_paths(0..2, || Coalescer::wire(9000))),
        two("tcpcrypt-renumbered", 313)
            .through(on_paths(0..2, || SequenceRewriter { forward: 77_777, backward: 0xffff_0000 })),
        Scenario::talk("tcpcrypt-jobs", 314, TWO_V4, jobs, both)
            .through(|pair| pair.world.set_longest_job(Duration::from_millis(10))),
        Scenario::talk("tcpcrypt-half-close", 315, TWO_V4, x25519(), [of(10), of(2 * SOME)]),
        Scenario::talk(
            "tcpcrypt-fast-close",
            316,
            TWO_V4,
            x25519(),
            [of(1000).leaving(CloseMode::Hasty), of(4 * SOME)],
        ),
        path_lost("tcpcrypt-path-swallows", 317, x25519()),
        Scenario::talk("tcpcrypt-preferred-and-stripped", 318, TWO_V4, preferred(), both)
            .through(on_paths(0..2, || Stripper::all(Moment::Syn))),
        Scenario::talk("tcpcrypt-preferred-and-stripped-from-the-syn-ack", 319, ONE_V4, preferred(), both)
            .through(on_paths([0], || Stripper::all(Moment::SynAck))),
        unsealed_listener("tcpcrypt-to-a-plain-listener", 320, x25519()),
    ]
}

fn tls() -> Vec<Scenario> {
    let tls = || sealed(Tep::Tls13);
    let of = Workload::of;
    let both = [of(SOME), of(SOME)];
    let two = |name, seed| Scenario::talk(name, seed, TWO_V4, tls(), both);
    vec![
        Scenario::talk("tls-one-path", 400, ONE_V4, tls(), both),
        two("tls-two-paths", 401),
        Scenario::talk("tls-two-paths-v6", 402, (2, Families::V6), tls(), both),
        two("tls-bad-links", 403).through(bad_links),
        two("tls-payload-changed", 404).through(|pair| corrupt(pair, 1)),
        two("tls-forged-reset", 405)
            .through(on_paths([1], || Forger::new(Direction::Forward, Forgery::Reset, 20))),
        two("tls-stripped-later", 406).through(strip_later),
        two("tls-cut", 407).through(on_paths(0..2, || Cutter { size: 500 })),
        Scenario::talk("tls-half-close", 408, TWO_V4, tls(), [of(10), of(2 * SOME)]),
        Scenario::talk(
            "tls-fast-close",
            409,
            TWO_V4,
            tls(),
            [of(1000).leaving(CloseMode::Hasty), of(4 * SOME)],
        ),
        path_lost("tls-path-swallows", 410, tls()),
        Scenario::new("tls-first-path-dead", 411, TWO_V4, move |pair| {
            pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER });
            pair.serve(&tls(), of(SOME));
            let remotes = [pair.server_address(0), pair.server_address(1)];
            pair.world.open(pair.client, tls(), &remotes, of(SOME));
            pair.world.run_for(Duration::from_secs(10));
        }),
        unsealed_listener("tls-to-a-plain-listener", 412, tls()),
    ]
}

/// The lines of a key log with the secrets of the openers of all scenarios that have run in this process.
static SECRETS: Mutex<String> = Mutex::new(String::new());

/// The key log of all scenarios.
pub(crate) fn key_log() -> String {
    SECRETS.lock().expect("no thread panics with it").clone()
}

/// Adds to [`SECRETS`].
#[derive(Debug)]
struct Logged;

impl KeyLog for Logged {
    fn log(&self, label: &str, name: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let mut lines = SECRETS.lock().expect("no thread panics with it");
        let _ = writeln!(lines, "{label} {} {}", hex(name), hex(secret));
    }
}

/// For three seconds, both paths swallow everything: the joins behind that have data in their SYNs. It is not one of the frozen ones.
pub(crate) fn outage() -> Scenario {
    let workloads = [Workload::of(4 * SOME), Workload::of(SOME)];
    Scenario::talk("tcpcrypt-outage", 330, TWO_V4, sealed(Tep::TcpcryptCurve25519), workloads).through(
        |pair| {
            let model = LinkConfig { rate: megabits(10), ..plain_link() };
            for path in 0..2 {
                let hole = BlackHole {
                    during: pair.in_time(Duration::from_millis(200))..pair.in_time(Duration::from_secs(3)),
                };
                pair.chain(path, vec![Box::new(hole), Box::new(Link::new(model.clone(), path as u64))]);
            }
        },
    )
}

const FOREVER: Instant = Instant::from_millis(1 << 40);

pub(crate) fn sealed(tep: Tep) -> Config {
    Config { protect: Protect::Sealed(settings(tep)), ..Config::default() }
}

fn settings(tep: Tep) -> SealedSettings {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let pinned = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let trust = if tep.proves_identity() { pinned } else { ServerTrust::AcceptNew };
    let name = ServerName::try_from("gw.example.com").expect("a name");
    // A scenario runs more than once, and each time as if it were the first.
    let opener =
        OpenerSettings { tickets: None, key_log: Arc::new(Logged), ..OpenerSettings::new(name, trust) };
    SealedSettings {
        teps: vec![tep],
        opener: Some(Arc::new(opener)),
        ..SealedSettings::listener(Arc::new(ListenerSettings::new(identity)))
    }
}

/// Sealed where the way allows it.
fn preferred() -> Config {
    let settings = SealedSettings { policy: Policy::Prefer, ..settings(Tep::TcpcryptCurve25519) };
    Config { protect: Protect::Sealed(settings), ..Config::default() }
}

fn bad_links(pair: &mut Pair) {
    for path in 0..2 {
        let model = LinkConfig {
            loss: Loss::Bernoulli { probability: 0.03 },
            reordering: Reordering { probability: 0.05, extra_delay: Duration::from_millis(15) },
            duplication: 0.02,
            ..plain_link()
        };
        pair.link(path, model);
    }
}

/// The payload of three segments is changed, and their TCP checksums mended.
fn corrupt(pair: &mut Pair, path: usize) {
    let since = pair.in_time(Duration::from_millis(120));
    pair.chain_with(path, Corruptor::new(Direction::Forward, since, 3));
}

fn strip_later(pair: &mut Pair) {
    let since = pair.in_time(Duration::from_millis(120));
    pair.chain_with(1, Stripper::all(Moment::Later).since(since));
}

/// One of two paths of 10 Mbit/s swallows everything from 200 ms on.
fn path_lost(name: &'static str, seed: u64, config: Config) -> Scenario {
    let workloads = [Workload::of(3 * SOME), Workload::of(SOME)];
    Scenario::talk(name, seed, TWO_V4, config, workloads).through(|pair| {
        let since = pair.in_time(Duration::from_millis(200));
        let model = LinkConfig { rate: megabits(10), ..plain_link() };
        let hole = BlackHole { during: since..FOREVER };
        pair.link(0, model.clone());
        pair.chain(1, vec![Box::new(hole), Box::new(Link::new(model, 1))]);
    })
}

/// A sealed connection is asked for, and the listener knows of none.
fn unsealed_listener(name: &'static str, seed: u64, config: Config) -> Scenario {
    Scenario::new(name, seed, ONE_V4, move |pair| {
        pair.serve(&Config::default(), Workload::of(10));
        pair.open(&config, Workload::of(10));
        pair.world.run_for(Duration::from_secs(30));
    })
}
