//! A connection beside others over shared bottlenecks: the throughput of each, and the queueing delay.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plait_base::{Duration, Instant};
use plait_endpoint::EndpointConfig;
use plait_mptcp::Config;
use plait_wire::IpVersion;

use crate::{
    CloseMode, Direction, Element, Families, Frame, HostIndex, Link, LinkConfig, Outlet, PathIndex, Workload,
    World, plain_link,
};

const PORT: u16 = 4433;
/// More than a connection can send in the time of a test.
const ENDLESS: u64 = 1 << 40;
/// Interval between reads of a queue.
const LOOK: Duration = Duration::from_millis(10);

/// A link shared by several paths.
#[derive(Clone)]
pub struct Bottleneck(Rc<RefCell<Link>>);

impl Bottleneck {
    /// Returns a bottleneck with the same rate in both directions.
    pub fn new(model: LinkConfig, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Link::new(model, seed))))
    }

    /// Bytes in the queue to the server at `now`.
    fn waiting(&self, now: Instant) -> u64 {
        self.0.borrow().waiting(now, Direction::Forward)
    }
}

impl Element for Bottleneck {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        self.0.borrow_mut().pass(now, direction, frame, out);
    }
}

/// The link in front of a bottleneck, with a delay that varies by two milliseconds. Without that, senders in step would all lose
/// packets in step, or only one of them would.
fn access(seed: u64) -> Box<dyn Element> {
    let model = LinkConfig { delay: Duration::ZERO, jitter: Duration::from_millis(2), ..plain_link() };
    Box::new(Link::new(model, seed))
}

/// Counts the bytes that arrive at the server.
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

/// The measurements of one path.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Bytes that the connection has carried.
    pub ours: u64,
    /// Bytes that the rivals over this path's bottleneck have carried.
    pub rivals: u64,
    /// Bytes in the queue of the bottleneck, one value each 10 ms, in ascending order.
    pub waiting: Vec<u64>,
}

impl Load {
    /// The connection's share of the bytes on the path, rivals included.
    pub fn share(&self) -> f64 {
        self.ours as f64 / (self.ours + self.rivals).max(1) as f64
    }
}

/// A connection that sends endlessly from a client to a server, over a path for each of some bottlenecks, and its rivals.
pub struct Fight {
    world: World,
    bottlenecks: Vec<Bottleneck>,
    /// Bytes of the connection and of its rivals, by path.
    carried: Vec<[Meter; 2]>,
    client: HostIndex,
}

impl Fight {
    /// Starts the connection. The client has `more` addresses of the server on its first path.
    ///
    /// # Panics
    /// If there is no bottleneck.
    pub fn new(seed: u64, bottlenecks: &[Bottleneck], more: usize, config: &Config) -> Self {
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
        world.serve(server, PORT, config.clone(), Workload::of(0).leaving(CloseMode::Waiting));
        let remote = (world.address(paths[0], 1, IpVersion::V4), PORT).into();
        world.open(client, config.clone(), &[remote], Workload::of(ENDLESS));
        Self { world, bottlenecks: bottlenecks.to_vec(), carried, client }
    }

    /// Starts a rival: a connection between hosts of its own sends endlessly over the bottleneck of path `number`.
    pub fn add_rival(&mut self, number: usize, config: &Config) {
        let world = &mut self.world;
        let (client, server) =
            (world.add_host(EndpointConfig::default()), world.add_host(EndpointConfig::default()));
        let path = world.add_path(client, server, Families::V4);
        let meter = self.carried[number][1].clone();
        let access = access(1000 + path.0 as u64);
        let bottleneck = self.bottlenecks[number].clone();
        world.set_chain(path, vec![access, Box::new(bottleneck), Box::new(meter)]);
        world.serve(server, PORT, config.clone(), Workload::of(0).leaving(CloseMode::Waiting));
        let remote = (world.address(path, 1, IpVersion::V4), PORT).into();
        world.open(client, config.clone(), &[remote], Workload::of(ENDLESS));
    }

    /// Runs for some time.
    pub fn run_for(&mut self, time: Duration) {
        self.world.run_for(time);
    }

    /// Runs for some time. Returns the bytes carried in it, by path.
    pub fn measure(&mut self, time: Duration) -> Vec<Load> {
        let bytes = |meters: &[Meter; 2]| [0, 1].map(|number: usize| meters[number].0.get());
        let before: Vec<_> = self.carried.iter().map(bytes).collect();
        let mut waiting = vec![Vec::new(); self.bottlenecks.len()];
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.world.run_for(LOOK.min(end.saturating_since(self.world.now())));
            for (looks, bottleneck) in waiting.iter_mut().zip(&self.bottlenecks) {
                looks.push(bottleneck.waiting(self.world.now()));
            }
        }
        let after = self.carried.iter().map(bytes);
        let carried = after.zip(before).zip(waiting);
        let load = |(([ours, rivals], before), mut waiting): (([u64; 2], [u64; 2]), Vec<u64>)| {
            waiting.sort_unstable();
            Load { ours: ours - before[0], rivals: rivals - before[1], waiting }
        };
        carried.map(load).collect()
    }

    /// The world of the connection, and its client.
    pub fn world(&self) -> (&World, HostIndex) {
        (&self.world, self.client)
    }
}
