//! Beside one TCP connection on each path: what a connection takes of a path, however many subflows it has there, is what
//! one TCP connection takes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plait_base::{Duration, Instant};
use plait_endpoint::EndpointConfig;
use plait_mptcp::{Config, Joins};
use plait_sim::{
    CloseMode, Direction, Element, Families, Frame, Link, LinkConfig, Outlet, PathIndex, Workload, World,
    megabits, plain_link,
};
use plait_tcp::congestion::Algorithm;
use plait_wire::IpVersion;

const PORT: u16 = 4433;
/// More than anybody can say in the time of a test.
const ENDLESS: u64 = 1 << 34;
/// In which the connections come to terms.
const BEFORE: Duration = Duration::from_secs(15);
/// What is measured.
const MEASURED: Duration = Duration::from_secs(45);

/// A link that several paths lead over.
#[derive(Clone)]
struct Bottleneck(Rc<RefCell<Link>>);

impl Bottleneck {
    /// 10 Mbit/s, 40 ms there and back, and a queue of one product of both.
    fn new(seed: u64) -> Self {
        let delay = Duration::from_millis(20);
        let model = LinkConfig { rate: megabits(10), delay, queue_limit: 50 << 10, ..plain_link() };
        Self(Rc::new(RefCell::new(Link::new(model, seed))))
    }
}

impl Element for Bottleneck {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        self.0.borrow_mut().pass(now, direction, frame, out);
    }
}

/// What lies in front of a bottleneck: delays that wander by two milliseconds. Without that senders in step would lose in step, or
/// one of them only.
fn access(seed: u64) -> Box<dyn Element> {
    let model = LinkConfig { delay: Duration::ZERO, jitter: Duration::from_millis(2), ..plain_link() };
    Box::new(Link::new(model, seed))
}

/// Counts the bytes that get through towards the server.
#[derive(Clone, Default)]
struct Meter(Rc<Cell<u64>>);

impl Element for Meter {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if direction == Direction::Forward {
            self.0.set(self.0.get() + frame.bytes.len() as u64);
        }
        out.push(now, direction, frame);
    }
}

struct Fight {
    world: World,
    /// What the connection and its rivals have got through, by path.
    carried: Vec<[Meter; 2]>,
}

/// A client and a server with a path over each of these bottlenecks. The client has `more` addresses of the server behind its
/// first path.
fn fight(seed: u64, bottlenecks: &[Bottleneck], more: usize, plait: Config) -> Fight {
    let mut world = World::new(seed);
    let (client, server) =
        (world.add_host(EndpointConfig::default()), world.add_host(EndpointConfig::default()));
    let paths: Vec<PathIndex> =
        bottlenecks.iter().map(|_| world.add_path(client, server, Families::V4)).collect();
    let mut carried = Vec::new();
    for (number, (&path, bottleneck)) in (0..).zip(paths.iter().zip(bottlenecks)) {
        let both = [Meter::default(), Meter::default()];
        let access = access(10 * seed + number);
        world.set_chain(path, vec![access, Box::new(bottleneck.clone()), Box::new(both[0].clone())]);
        carried.push(both);
    }
    let own = world.address(paths[0], 0, IpVersion::V4);
    for _ in 0..more {
        let spare = world.add_path(client, server, Families::V4);
        let address = world.address(spare, 1, IpVersion::V4);
        world.change_path(client, spare, |path| path.up = false);
        world.route(own, address, paths[0], Direction::Forward);
        world.route(address, own, paths[0], Direction::Backward);
    }
    world.serve(server, PORT, plait.clone(), Workload::of(0).leaving(CloseMode::Waiting));
    let remote = (world.address(paths[0], 1, IpVersion::V4), PORT).into();
    world.open(client, plait, &[remote], Workload::of(ENDLESS));
    Fight { world, carried }
}

impl Fight {
    /// One TCP connection between hosts of its own over a bottleneck.
    fn add_rival(&mut self, number: usize, bottleneck: &Bottleneck, congestion: Algorithm) {
        let config = Config { multipath: false, ..with(congestion) };
        let world = &mut self.world;
        let (client, server) =
            (world.add_host(EndpointConfig::default()), world.add_host(EndpointConfig::default()));
        let path = world.add_path(client, server, Families::V4);
        let meter = self.carried[number][1].clone();
        let access = access(1000 + path.0 as u64);
        world.set_chain(path, vec![access, Box::new(bottleneck.clone()), Box::new(meter)]);
        world.serve(server, PORT, config.clone(), Workload::of(0).leaving(CloseMode::Waiting));
        let remote = (world.address(path, 1, IpVersion::V4), PORT).into();
        world.open(client, config, &[remote], Workload::of(ENDLESS));
    }

    /// What the connection and its rivals get through, by path.
    fn run(&mut self) -> Vec<[f64; 2]> {
        let bytes = |meters: &[Meter; 2]| [0, 1].map(|number: usize| meters[number].0.get() as f64);
        self.world.run_for(BEFORE);
        let before: Vec<_> = self.carried.iter().map(bytes).collect();
        self.world.run_for(MEASURED);
        let after = self.carried.iter().map(bytes);
        after.zip(before).map(|(after, before)| [after[0] - before[0], after[1] - before[1]]).collect()
    }

    /// What the connection takes of each path, of all that is carried there by it and its rival.
    fn shares(&mut self) -> Vec<f64> {
        self.run().iter().map(|[ours, rival]| ours / (ours + rival)).collect()
    }
}

fn with(congestion: Algorithm) -> Config {
    let mut config = Config::default();
    config.tcp.congestion = congestion;
    config
}

#[test]
fn beside_one_tcp_on_each_of_two_paths_it_takes_half_of_each() {
    for seed in 1..3 {
        let bottlenecks = [Bottleneck::new(seed), Bottleneck::new(seed + 100)];
        let mut fight = fight(seed, &bottlenecks, 0, Config::default());
        (0..2).for_each(|number| fight.add_rival(number, &bottlenecks[number], Algorithm::Cubic));
        let shares = fight.shares();
        println!("seed {seed}: {shares:.2?}");
        assert!(shares.iter().all(|share| (0.35..=0.65).contains(share)), "{shares:?}");
    }
}

/// A client with one path, and a server that has four addresses behind it.
#[test]
fn a_mesh_over_one_path_takes_the_share_of_one_tcp() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno] {
        for seed in 1..3 {
            let bottleneck = Bottleneck::new(seed);
            let mut fight = fight(
                seed,
                std::slice::from_ref(&bottleneck),
                3,
                Config { joins: Joins::Mesh, ..with(congestion) },
            );
            fight.add_rival(0, &bottleneck, congestion);
            let shares = fight.shares();
            println!("{congestion:?}, seed {seed}: {shares:.2?}");
            assert!(shares.iter().all(|share| (0.35..=0.65).contains(share)), "{shares:?}");
        }
    }
}

#[test]
fn coupled_over_a_bottleneck_that_both_paths_share_it_takes_no_more_than_one_tcp() {
    for congestion in [Algorithm::Lia, Algorithm::Olia] {
        for seed in 1..3 {
            let bottleneck = Bottleneck::new(seed);
            let mut fight = fight(seed, &[bottleneck.clone(), bottleneck.clone()], 0, with(congestion));
            fight.add_rival(0, &bottleneck, Algorithm::Cubic);
            let [[one, rival], [other, _]] = fight.run()[..] else { unreachable!("two paths") };
            let times = (one + other) / rival;
            println!("{congestion:?}, seed {seed}: {times:.2} times one TCP");
            assert!(times <= 1.2, "{times}");
        }
    }
}
