//! Plain connections: families, closing, applications, links, paths that come and go.

use plait_base::{Duration, Instant};
use plait_mptcp::{Config, Fallback, Scheduler};
use plait_sim::{
    BlackHole, CloseMode, Element, Families, Link, LinkConfig, Loss, Moment, Pair, Reordering, Stripper,
    Workload, megabits, plain_link,
};

use crate::scenario::{SOME, Scenario, talk};
use crate::{ONE_V4, TWO_V4};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = families();
    all.extend(endings());
    all.extend(settings());
    all.extend(links());
    all.extend(paths());
    all
}

const FOREVER: Instant = Instant::from_millis(1 << 40);

fn both(bytes: u64) -> [Workload; 2] {
    [Workload::of(bytes), Workload::of(bytes)]
}

fn plain(name: &'static str, seed: u64, paths: (usize, Families), workloads: [Workload; 2]) -> Scenario {
    Scenario::talk(name, seed, paths, Config::default(), workloads)
}

fn families() -> Vec<Scenario> {
    vec![
        plain("one-path-v4", 1, ONE_V4, both(SOME)),
        plain("one-path-v6", 2, (1, Families::V6), both(SOME)),
        plain("two-paths-v4", 3, TWO_V4, both(2 * SOME)),
        plain("two-paths-v6", 4, (2, Families::V6), both(2 * SOME)),
        plain("two-paths-both-families", 5, (2, Families::Both), both(2 * SOME)),
        plain("three-paths", 6, (3, Families::V4), both(2 * SOME)),
        plain("nothing-to-send", 7, ONE_V4, both(0)),
        plain("one-byte", 8, TWO_V4, both(1)),
        Scenario::new("several-connections", 9, TWO_V4, |pair| {
            pair.serve(&Config::default(), Workload::of(20_000));
            for _ in 0..5 {
                pair.open(&Config::default(), Workload::of(10_000));
            }
            pair.world.run_for(Duration::from_secs(70));
        }),
    ]
}

/// Half-close, fast close, resets.
fn endings() -> Vec<Scenario> {
    let of = Workload::of;
    vec![
        plain("half-close-of-the-client", 20, TWO_V4, [of(100), of(2 * SOME)]),
        plain("half-close-of-the-server", 21, TWO_V4, [of(2 * SOME), of(0)]),
        plain("client-waits-for-the-end", 22, ONE_V4, [of(SOME).leaving(CloseMode::Waiting), of(SOME)]),
        plain("client-leaves-what-it-wrote", 23, TWO_V4, [of(SOME).leaving(CloseMode::Hasty), of(0)]),
        plain("fast-close", 24, TWO_V4, [of(1000).leaving(CloseMode::Hasty), of(4 * SOME)]),
        Scenario::new("abort", 25, TWO_V4, move |pair| {
            pair.serve(&Config::default(), of(SOME));
            let id = pair.open(&Config::default(), of(10 * SOME));
            pair.world.run_for(Duration::from_millis(150));
            pair.world.with_endpoint(pair.client, |now, endpoint| endpoint.abort(now, id));
            pair.world.run_for(Duration::from_secs(5));
        }),
        Scenario::new("everything-aborted", 26, TWO_V4, move |pair| {
            pair.serve(&Config::default(), of(10 * SOME));
            pair.open(&Config::default(), of(0));
            pair.world.run_for(Duration::from_millis(150));
            pair.world.with_endpoint(pair.server, |now, endpoint| endpoint.abort_all(now));
            pair.world.run_for(Duration::from_secs(5));
        }),
        Scenario::new("refused", 27, ONE_V4, move |pair| {
            pair.open(&Config::default(), of(1));
            pair.world.run_for(Duration::from_secs(10));
        }),
        plain("fin-lost-and-repeated", 28, ONE_V4, both(3000)).through(|pair| {
            let model = LinkConfig { loss: Loss::Bernoulli { probability: 0.3 }, ..plain_link() };
            pair.link(0, model);
        }),
    ]
}

fn settings() -> Vec<Scenario> {
    let with = |name, seed, config| Scenario::talk(name, seed, TWO_V4, config, both(SOME));
    let slow_second = |pair: &mut Pair| {
        pair.link(1, LinkConfig { delay: Duration::from_millis(30), ..plain_link() });
    };
    let small = Config { receive_buffer: 64 << 10, send_buffer: 64 << 10, ..Config::default() };
    vec![
        with("round-robin", 40, Config { scheduler: Scheduler::RoundRobin, ..Config::default() })
            .through(slow_second),
        with("redundant", 41, Config { scheduler: Scheduler::Redundant, ..Config::default() })
            .through(slow_second),
        with("checksum", 42, Config { checksum: true, ..Config::default() }).through(slow_second),
        with(
            "no-announcements",
            43,
            Config { announce: false, joins: plait_mptcp::Joins::None, ..Config::default() },
        ),
        with("not-multipath", 44, Config { multipath: false, ..Config::default() }),
        Scenario::new("server-without-multipath", 45, ONE_V4, |pair| {
            pair.serve(&Config { multipath: false, ..Config::default() }, Workload::of(SOME));
            pair.open(&Config::default(), Workload::of(SOME));
            pair.world.run_for(Duration::from_secs(10));
        }),
        with("plain-tcp-refused", 46, Config { fallback: Fallback::Refuse, ..Config::default() })
            .through(|pair| pair.chain_with(0, Stripper::all(Moment::SynAck))),
        Scenario::new("slow-reader", 47, ONE_V4, move |pair| {
            let awake = pair.in_time(Duration::from_secs(4));
            talk(pair, &small, [Workload::of(2 * SOME), Workload::of(0).reading_from(awake)]);
        }),
    ]
}

fn links() -> Vec<Scenario> {
    let loss = |probability| Loss::Bernoulli { probability };
    let reordering = Reordering { probability: 0.05, extra_delay: Duration::from_millis(5) };
    let models = [
        ("loss", Families::V4, LinkConfig { loss: loss(0.03), ..plain_link() }),
        ("loss-v6", Families::V6, LinkConfig { loss: loss(0.03), ..plain_link() }),
        ("burst-loss", Families::V4, LinkConfig { loss: Loss::bursts(0.03, 4.0), ..plain_link() }),
        ("reordering", Families::V4, LinkConfig { reordering, ..plain_link() }),
        ("jitter", Families::V6, LinkConfig { jitter: Duration::from_millis(15), ..plain_link() }),
        ("duplication", Families::V4, LinkConfig { duplication: 0.1, ..plain_link() }),
        ("bit-errors", Families::V4, LinkConfig { corruption: 0.02, ..plain_link() }),
        ("short-queue", Families::V4, LinkConfig { rate: megabits(10), queue_limit: 15_000, ..plain_link() }),
        (
            "everything-at-once",
            Families::Both,
            LinkConfig {
                delay: Duration::from_millis(25),
                jitter: Duration::from_millis(5),
                rate: megabits(30),
                loss: loss(0.02),
                reordering,
                duplication: 0.02,
                corruption: 0.01,
                ..plain_link()
            },
        ),
    ];
    let scenario = |(seed, (name, families, model)): (u64, (&'static str, Families, LinkConfig))| {
        plain(name, seed, (2, families), both(2 * SOME)).through(move |pair| {
            for path in 0..2 {
                pair.link(path, model.clone());
            }
        })
    };
    (60..).zip(models).map(scenario).collect()
}

fn paths() -> Vec<Scenario> {
    vec![
        plain("first-path-dead", 80, TWO_V4, both(SOME))
            .through(|pair| pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER })),
        Scenario::new("first-path-dead-and-both-addresses-known", 81, TWO_V4, |pair| {
            pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER });
            pair.serve(&Config::default(), Workload::of(SOME));
            let remotes = [pair.server_address(0), pair.server_address(1)];
            pair.world.open(pair.client, Config::default(), &remotes, Workload::of(SOME));
            pair.world.run_for(Duration::from_secs(10));
        }),
        in_mid_transfer("path-swallows", 82, |pair| hole(pair, 1, FOREVER)),
        in_mid_transfer("first-path-swallows", 83, |pair| hole(pair, 0, FOREVER)),
        in_mid_transfer("path-swallows-for-three-seconds", 84, |pair| {
            let end = pair.in_time(Duration::from_secs(3));
            hole(pair, 1, end);
        }),
        in_mid_transfer("all-paths-swallow-for-three-seconds", 85, |pair| {
            let end = pair.in_time(Duration::from_secs(3));
            hole(pair, 0, end);
            hole(pair, 1, end);
        }),
        in_mid_transfer("path-down", 86, |pair| {
            hole(pair, 0, FOREVER);
            pair.world.change_path(pair.client, pair.paths[0], |path| path.up = false);
        }),
        in_mid_transfer("path-removed", 87, |pair| pair.world.remove_path(pair.client, pair.paths[1])),
        in_mid_transfer("path-made-backup", 88, |pair| {
            pair.world.change_path(pair.client, pair.paths[1], |path| path.backup = true);
        }),
        in_mid_transfer("backup-needed", 89, |pair| hole(pair, 0, FOREVER))
            .through(|pair| pair.world.change_path(pair.client, pair.paths[1], |path| path.backup = true)),
        in_mid_transfer("path-comes-up", 90, |pair| {
            for host in [pair.server, pair.client] {
                pair.world.change_path(host, pair.paths[1], |path| path.up = true);
            }
        })
        .through(|pair| {
            for host in [pair.client, pair.server] {
                pair.world.change_path(host, pair.paths[1], |path| path.up = false);
            }
        }),
        plain("server-with-one-address", 91, ONE_V4, both(SOME)).through(|pair| {
            let beside = pair.world.add_path_beside(pair.client, pair.paths[0], Families::V4);
            pair.world.set_chain(beside, vec![Box::new(Link::new(plain_link(), 5))]);
        }),
    ]
}

/// A transfer of four hundred packets in both directions over two paths of 10 Mbit/s; after 200 ms this happens.
fn in_mid_transfer(name: &'static str, seed: u64, happens: impl Fn(&mut Pair) + 'static) -> Scenario {
    Scenario::new(name, seed, TWO_V4, move |pair| {
        pair.serve(&Config::default(), Workload::of(2 * SOME));
        pair.open(&Config::default(), Workload::of(3 * SOME));
        pair.world.run_for(Duration::from_millis(150));
        happens(pair);
        pair.world.run_talk(Duration::from_secs(100));
        pair.world.run_for(Duration::from_secs(2));
    })
    .through(|pair| {
        for path in 0..2 {
            pair.link(path, slow());
        }
    })
}

fn slow() -> LinkConfig {
    LinkConfig { rate: megabits(10), ..plain_link() }
}

/// From now on, until `end`, the path swallows everything that is not under way yet.
fn hole(pair: &mut Pair, path: usize, end: Instant) {
    let hole = BlackHole { during: pair.world.now()..end };
    let chain: Vec<Box<dyn Element>> = vec![Box::new(hole), Box::new(Link::new(slow(), path as u64))];
    pair.chain(path, chain);
}
