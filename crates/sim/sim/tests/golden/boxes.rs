//! Plain connections through boxes that strip, cut, merge, rewrite and forge.

use plait_base::Duration;
use plait_mptcp::Config;
use plait_sim::{
    AckLoss, CloseMode, Coalescer, Corruptor, Cutter, Direction, Element, Families, Firewall, Forger,
    Forgery, Link, Moment, Mutator, NarrowLink, Nat, Pair, SequenceRewriter, Stripper, Workload, plain_link,
};

use crate::scenario::{SOME, Scenario};
use crate::{ONE_V4, TWO_V4, on_paths};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = stripped();
    all.extend(reshaped());
    all.extend(forged());
    all
}

/// In both directions; bytes that a box has changed are accepted.
fn through<E: Element + 'static>(
    name: &'static str,
    seed: u64,
    paths: (usize, Families),
    config: Config,
    element: impl Fn() -> E + 'static,
) -> Scenario {
    let workload = Workload::of(SOME).counting_wrong_bytes();
    Scenario::talk(name, seed, paths, config, [workload, workload]).through(on_paths(0..paths.0, element))
}

fn stripped() -> Vec<Scenario> {
    let strip = |name, seed, box_: fn() -> Stripper| through(name, seed, ONE_V4, Config::default(), box_);
    vec![
        strip("stripped-syn", 100, || Stripper::all(Moment::Syn)),
        strip("stripped-syn-ack", 101, || Stripper::all(Moment::SynAck)),
        strip("stripped-behind-the-syns", 102, || Stripper::all(Moment::Later)),
        strip("stripped-behind-the-syns-forward", 103, || {
            Stripper::all(Moment::Later).only(Direction::Forward)
        }),
        strip("stripped-behind-the-syns-backward", 104, || {
            Stripper::all(Moment::Later).only(Direction::Backward)
        }),
        strip("stripped-data", 105, || Stripper::all(Moment::Data)),
        strip("stripped-dss", 106, || Stripper::subtype(Moment::Later, 2)),
        Scenario::talk(
            "stripped-fastclose",
            107,
            TWO_V4,
            Config::default(),
            [Workload::of(1000).leaving(CloseMode::Hasty), Workload::of(4 * SOME)],
        )
        .through(on_paths(0..2, || Stripper::subtype(Moment::Always, 7))),
        through("syn-with-option-dropped", 108, ONE_V4, Config::default(), || Firewall {
            moment: Moment::Syn,
        }),
        Scenario::talk(
            "stripped-on-the-second-path",
            109,
            TWO_V4,
            Config::default(),
            [Workload::of(SOME); 2],
        )
        .through(on_paths([1], || Stripper::all(Moment::Always))),
        Scenario::talk(
            "second-path-begins-to-strip",
            110,
            TWO_V4,
            Config::default(),
            [Workload::of(8 * SOME); 2],
        )
        .through(|pair| {
            let since = pair.in_time(Duration::from_millis(100));
            pair.chain_with(1, Stripper::all(Moment::Later).since(since));
        }),
    ]
}

fn reshaped() -> Vec<Scenario> {
    let plain = Config::default;
    vec![
        through("segments-cut", 120, TWO_V4, plain(), || Cutter { size: 500 }),
        through("segments-merged-on-the-wire", 121, TWO_V4, plain(), || Coalescer::wire(4000)),
        through("segments-merged-by-receive-offload", 122, (2, Families::V6), plain(), Coalescer::offload),
        through("sequence-numbers-rewritten", 123, TWO_V4, plain(), || SequenceRewriter {
            forward: 0x9000_0001,
            backward: 77,
        }),
        through("acknowledgments-lost", 124, TWO_V4, plain(), || AckLoss::new(0.4, 1)),
        through("small-mtu-with-icmp", 125, TWO_V4, plain(), || NarrowLink { mtu: 1300, speaks: true }),
        through("small-mtu-with-icmp-v6", 126, (2, Families::V6), plain(), || NarrowLink {
            mtu: 1300,
            speaks: true,
        }),
        through("small-mtu-in-silence", 127, (1, Families::V6), plain(), || NarrowLink {
            mtu: 1300,
            speaks: false,
        }),
        Scenario::talk("addresses-translated", 128, TWO_V4, plain(), [Workload::of(SOME); 2])
            .through(translate),
    ]
}

fn translate(pair: &mut Pair) {
    for path in 0..2 {
        let public = format!("203.0.113.{}", path + 1).parse().expect("an address");
        let server = pair.server_address(path).ip();
        pair.world.route(server, public, pair.paths[path], Direction::Backward);
        pair.chain_with(path, Nat::new(public));
    }
}

fn forged() -> Vec<Scenario> {
    let checksum = || Config { checksum: true, ..Config::default() };
    let forger = |name, seed, forgery| {
        Scenario::talk(name, seed, TWO_V4, Config::default(), [Workload::of(3 * SOME), Workload::of(SOME)])
            .through(on_paths([0], move || Forger::new(Direction::Forward, forgery, 40)))
    };
    vec![
        forger("forged-reset", 140, Forgery::Reset),
        forger("forged-fin", 141, Forgery::Fin),
        forger("forged-data", 142, Forgery::Data),
        Scenario::talk("payload-changed-with-checksum", 143, TWO_V4, checksum(), [Workload::of(3 * SOME); 2])
            .through(|pair| corrupt(pair, 1)),
        through("payload-changed-on-the-only-path", 144, ONE_V4, checksum(), || NoBox)
            .through(|pair| corrupt(pair, 0)),
        through("payload-changed-without-checksum", 145, ONE_V4, Config::default(), || NoBox)
            .through(|pair| corrupt(pair, 0)),
        mutated("headers-mutated", 146, Config::default()),
        mutated("headers-mutated-with-checksum", 147, checksum()),
    ]
}

/// One segment with payload is changed, and its TCP checksum mended.
fn corrupt(pair: &mut Pair, path: usize) {
    let since = pair.in_time(Duration::from_millis(70));
    pair.chain_with(path, Corruptor::new(Direction::Forward, since, 1));
}

fn mutated(name: &'static str, seed: u64, config: Config) -> Scenario {
    let workload = Workload::of(SOME).counting_wrong_bytes();
    Scenario::talk(name, seed, TWO_V4, config, [workload, workload]).through(|pair| {
        let during = pair.world.now()..pair.in_time(Duration::from_secs(5));
        for path in 0..2 {
            let mutator = Mutator::new(0.03, during.clone(), 7 + path as u64);
            pair.chain(path, vec![Box::new(mutator), Box::new(Link::new(plain_link(), path as u64))]);
        }
    })
}

/// A box that does nothing.
struct NoBox;

impl Element for NoBox {
    fn pass(
        &mut self,
        now: plait_base::Instant,
        direction: Direction,
        frame: plait_sim::Frame,
        out: &mut plait_sim::Outlet,
    ) {
        out.push(now, direction, frame);
    }
}
