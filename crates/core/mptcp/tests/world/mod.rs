//! Two hosts with one connection between them, over several paths, in memory.
//!
//! Path number `p` joins address 10.0.p.1 of the client with everything that the server has, its own address
//! there being 10.0.p.2. A tap sees every wire segment and may change, drop or note it.

#![allow(dead_code, reason = "no test file needs everything")]

mod crypto_workers;
mod host;
pub(crate) mod segments;

use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU64;
use crypto_workers::CryptoWorkers;
use host::TestHost;
use plait_base::{Duration, Instant, PathId, Random, SeededRandom, SubflowId};
use plait_link::{Decision, LinkConfig, Loss, Reordering};
use plait_mptcp::{
    Association, Capabilities, Config, ConnectionError, Event, Instance, Introduction, OpeningClaim, Path,
    PathClass, Paths, ReadError, Status,
};
use plait_tcp::FourTuple;
use plait_wire::{Flags, Segment};
use segments::{Mptcp, mptcp_options, reset_for};
use std::collections::{BTreeMap, VecDeque};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;
pub(crate) const PORT: u16 = 443;

/// Configuration and traffic of a path. The crate `link` decides about each segment.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// One way.
    pub(crate) delay: Duration,
    /// Bytes per second, each way.
    pub(crate) rate: Option<u64>,
    /// Bytes that wait in front of a slow link before the rest is dropped.
    pub(crate) queue: u64,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// Probability of being held back for one more delay.
    pub(crate) reorder: f64,
    /// Drops everything.
    pub(crate) is_black_hole: bool,
    /// Bytes of payload carried, by direction (from client, from server).
    pub(crate) carried: [u64; 2],
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            rate: None,
            queue: 256 << 10,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            is_black_hole: false,
            carried: [0; 2],
        }
    }
}

impl Link {
    /// The model of each direction.
    fn model(&self) -> LinkConfig {
        LinkConfig {
            rate: self.rate.and_then(|rate| NonZeroU64::new(8 * rate)),
            queue_limit: self.queue,
            mtu: u32::MAX,
            delay: self.delay,
            loss: Loss::Bernoulli { probability: self.loss },
            reordering: Reordering { probability: self.reorder, extra_delay: self.delay },
            duplication: self.duplicate,
            ..LinkConfig::default()
        }
    }
}

pub(crate) struct Side {
    pub(crate) host: TestHost,
    pub(crate) config: Config,
    pub(crate) connection: Option<Association>,
    pub(crate) owners: BTreeMap<FourTuple, SubflowId>,
    pub(crate) events: Vec<Event>,
    pub(crate) outbox: VecDeque<Bytes>,
    pub(crate) finishes: bool,
    /// Reads nothing while set.
    pub(crate) is_paused: bool,
    pub(crate) received: Vec<u8>,
    /// When bytes were received: the longest time without any, and since when.
    pub(crate) longest_gap: Duration,
    last_received: Instant,
    pub(crate) ended: bool,
    pub(crate) failed: Option<ConnectionError>,
    has_finished: bool,
}

/// The action of a tap on a segment.
pub(crate) enum Fate {
    Pass,
    Drop,
    /// In its place both ends get a reset, the sender after so long.
    Reset {
        back_after: Duration,
    },
}

type Tap = Box<dyn FnMut(usize, &mut Segment) -> Fate>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) sides: [Side; 2],
    /// A test may change them at any time.
    pub(crate) links: Vec<Link>,
    /// Both directions of each, from the client first.
    lanes: Vec<[plait_link::Link; 2]>,
    pub(crate) random: SeededRandom,
    pub(crate) tap: Tap,
    /// Resets sent for segments without a connection.
    pub(crate) stray_resets: usize,
    air: BTreeMap<(Instant, u64), (usize, Segment)>,
    sent: u64,
    pub(crate) crypto_workers: CryptoWorkers,
}

pub(crate) fn address(path: usize, side: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, side as u8 + 1).into()
}

pub(crate) fn path(number: usize, side: usize) -> Path {
    let IpAddr::V4(v4) = address(number, side) else { unreachable!("it is one") };
    Path {
        id: PathId(number as u8),
        name: format!("path{number}"),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: Some(v4),
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    }
}

impl World {
    /// A client with one path per link; the server has as many addresses as `server_paths`.
    pub(crate) fn new(seed: u64, links: Vec<Link>, server_paths: usize) -> Self {
        let side = |number: usize, paths: usize| {
            let mut all = Paths::default();
            (0..paths).for_each(|p| all.insert(path(p, number)));
            Side {
                host: TestHost {
                    paths: all,
                    secrets: SeededRandom::from_number(seed * 4 + number as u64),
                    wire: SeededRandom::from_number(seed * 4 + 2 + number as u64),
                    next_port: 40_000,
                    taken_tokens: 0,
                    keys_drawn: 0,
                    syn_data_dropped: Vec::new(),
                    claim: OpeningClaim::Granted,
                    knows_several_instances: false,
                    introduction: Introduction {
                        capabilities: Capabilities::OURS,
                        instance: Instance::new([number as u8; Instance::LEN]),
                    },
                    claims: 0,
                },
                config: Config::default(),
                connection: None,
                owners: BTreeMap::new(),
                events: Vec::new(),
                outbox: VecDeque::new(),
                finishes: false,
                is_paused: false,
                received: Vec::new(),
                longest_gap: Duration::ZERO,
                last_received: Instant::ZERO,
                ended: false,
                failed: None,
                has_finished: false,
            }
        };
        Self {
            now: Instant::from_millis(1000),
            sides: [side(CLIENT, links.len()), side(SERVER, server_paths)],
            lanes: links.iter().zip(1..).map(|(link, number)| lanes(link, 1000 * seed + number)).collect(),
            links,
            random: SeededRandom::from_number(seed),
            tap: Box::new(|_, _| Fate::Pass),
            stray_resets: 0,
            air: BTreeMap::new(),
            sent: 0,
            crypto_workers: CryptoWorkers::default(),
        }
    }

    pub(crate) fn config(&mut self, change: impl Fn(&mut Config)) -> &mut Self {
        self.sides.iter_mut().for_each(|side| change(&mut side.config));
        self
    }

    /// Sets the data that `side` will send; then it finishes.
    pub(crate) fn send(&mut self, side: usize, data: &[u8]) -> &mut Self {
        let pieces = data.chunks(50_000).map(Bytes::copy_from_slice);
        self.sides[side].outbox.extend(pieces);
        self.sides[side].finishes = true;
        self
    }

    pub(crate) fn connect(&mut self) -> &mut Self {
        let remotes = [SocketAddr::new(address(0, SERVER), PORT)];
        self.connect_to(&remotes)
    }

    pub(crate) fn connect_to(&mut self, remotes: &[SocketAddr]) -> &mut Self {
        let side = &mut self.sides[CLIENT];
        let connection = Association::connect(self.now, side.config.clone(), remotes, &mut side.host);
        side.connection = Some(connection);
        side.last_received = self.now;
        self.serve(CLIENT);
        self
    }

    pub(crate) fn of(&mut self, side: usize) -> &mut Association {
        self.sides[side].connection.as_mut().expect("the connection was opened")
    }

    pub(crate) fn status(&mut self, side: usize) -> Status {
        let now = self.now;
        self.of(side).status(now)
    }

    /// Lets the side act on what a test has done to its connection directly.
    pub(crate) fn serve(&mut self, side: usize) {
        self.serve_application(side);
        while let Some(segment) =
            self.sides[side].connection.as_mut().and_then(|connection| connection.poll_transmit(self.now))
        {
            for wire_segment in segment.split() {
                self.transmit(side, wire_segment);
            }
        }
        self.drain_events(side);
        self.take_jobs(side);
    }

    fn drain_events(&mut self, number: usize) {
        let side = &mut self.sides[number];
        while let Some(event) = side.connection.as_mut().and_then(Association::poll_event) {
            match &event {
                Event::SubflowOpened { id, tuple } => {
                    assert_eq!(side.owners.insert(*tuple, *id), None, "{tuple:?} is in use");
                }
                Event::SubflowClosed { id, tuple } => {
                    assert_eq!(side.owners.remove(tuple), Some(*id));
                }
                Event::Connected
                | Event::PathsMixed
                | Event::Datagrams
                | Event::Readable
                | Event::Writable
                | Event::Closed(_) => {}
            }
            side.events.push(event);
        }
    }

    fn serve_application(&mut self, number: usize) {
        let now = self.now;
        let side = &mut self.sides[number];
        let Some(connection) = &mut side.connection else { return };
        while let Some(data) = side.outbox.pop_front() {
            let taken = connection.write(now, data.clone());
            if taken < data.len() {
                side.outbox.push_front(data.slice(taken..));
                break;
            }
        }
        if side.finishes && side.outbox.is_empty() && !side.has_finished {
            side.has_finished = true;
            connection.finish(now);
        }
        while !side.is_paused {
            match connection.read(now) {
                Ok(data) => {
                    side.longest_gap = side.longest_gap.max(now.saturating_since(side.last_received));
                    side.last_received = now;
                    side.received.extend_from_slice(&data);
                }
                Err(ReadError::WouldBlock) => break,
                Err(ReadError::End) => {
                    side.ended = true;
                    break;
                }
                Err(ReadError::Failed(error)) => {
                    side.failed = Some(error);
                    break;
                }
            }
        }
    }

    /// Puts a segment on its path.
    pub(crate) fn transmit(&mut self, from: usize, mut segment: Segment) {
        match (self.tap)(from, &mut segment) {
            Fate::Pass => {}
            Fate::Drop => return,
            Fate::Reset { back_after } => {
                self.sent += 1;
                self.air.insert((self.now + back_after, self.sent), (from, reset_for(&segment)));
                segment.flags = Flags::RST.with(Flags::ACK);
                segment.options.clear();
                segment.payload = Bytes::new();
            }
        }
        let client = if from == CLIENT { segment.source.ip() } else { segment.destination.ip() };
        let IpAddr::V4(client) = client else { unreachable!("all tests speak IPv4") };
        let number = usize::from(client.octets()[2]);
        let Some(link) = self.links.get_mut(number) else { return };
        if link.is_black_hole {
            return;
        }
        let (lane, model) = (&mut self.lanes[number][from], link.model());
        if *lane.config() != model {
            lane.set_config(self.now, model);
        }
        let length = (segment.header_len() + segment.payload.len()) as u32;
        let decision = lane.offer(self.now, length);
        let Decision::Deliver { at, duplicate_at, corrupt: None } = decision else { return };
        link.carried[from] += segment.payload.len() as u64;
        for arrival in [Some(at), duplicate_at].into_iter().flatten() {
            self.sent += 1;
            self.air.insert((arrival, self.sent), (1 - from, segment.clone()));
        }
    }

    /// Hands a segment to a side as if it had arrived.
    pub(crate) fn deliver(&mut self, to: usize, segment: &Segment) {
        let now = self.now;
        let tuple = FourTuple { local: segment.destination, remote: segment.source };
        let side = &mut self.sides[to];
        if let (Some(&id), Some(connection)) = (side.owners.get(&tuple), &mut side.connection) {
            connection.handle_segment(now, id, segment, &mut side.host);
            self.serve(to);
            return;
        }
        let is_opening = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let joins = mptcp_options(segment).iter().any(|option| matches!(option, Mptcp::Join));
        if is_opening && joins && to_has(side) {
            let connection = side.connection.as_mut().expect("looked at above");
            if connection.handle_join(now, segment, &mut side.host).is_ok() {
                self.serve(to);
                return;
            }
        } else if is_opening && !joins && to == SERVER && side.connection.is_none() {
            let connection = Association::accept(now, side.config.clone(), segment, &mut side.host);
            side.connection = Some(connection);
            side.last_received = now;
            self.serve(to);
            return;
        }
        if !segment.flags.contains(Flags::RST) {
            self.stray_resets += 1;
            let reset = reset_for(segment);
            self.transmit(to, reset);
        }
    }

    /// Goes on until nothing is left to do, `until` says so, or `limit` has passed. Returns the time taken.
    pub(crate) fn run(&mut self, limit: Duration, until: impl Fn(&mut Self) -> bool) -> Duration {
        let start = self.now;
        let end = self.now + limit;
        let mut steps = 0u32;
        while !until(self) {
            steps += 1;
            assert!(steps < 3_000_000, "it does not come to rest");
            let timer = |side: &Side| side.connection.as_ref().and_then(Association::poll_timeout);
            let timers = [CLIENT, SERVER].map(|side| timer(&self.sides[side]));
            let arrival = self.air.first_key_value().map(|(&(at, _), _)| at);
            let result = self.crypto_workers.next_result();
            let Some(next) = timers.into_iter().chain([arrival, result]).flatten().min() else { break };
            if next > end {
                self.now = end;
                break;
            }
            self.now = self.now.max(next);
            if result == Some(next) {
                self.return_result();
                continue;
            }
            if arrival == Some(next) {
                let (_, (to, segment)) = self.air.pop_first().expect("just looked");
                self.deliver(to, &segment);
                continue;
            }
            for side in [CLIENT, SERVER] {
                if timers[side].is_some_and(|at| at <= self.now) {
                    self.fire(side);
                }
            }
        }
        self.now.saturating_since(start)
    }

    pub(crate) fn fire(&mut self, number: usize) {
        let now = self.now;
        let side = &mut self.sides[number];
        if let Some(connection) = &mut side.connection {
            connection.handle_timeout(now, &mut side.host);
        }
        self.serve(number);
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, millis: u64) {
        self.run(Duration::from_millis(millis), |_| false);
    }

    /// Runs until both have read the end of the stream.
    pub(crate) fn finish(&mut self, seconds: u64) -> Duration {
        self.run(Duration::from_secs(seconds), |world| {
            world.sides.iter().all(|side| side.ended || side.failed.is_some())
        })
    }

    pub(crate) fn change_path(&mut self, number: usize, path: Path) {
        let now = self.now;
        let side = &mut self.sides[number];
        side.host.paths.insert(path);
        if let Some(connection) = &mut side.connection {
            connection.handle_paths(now, &mut side.host);
        }
        self.serve(number);
    }

    /// Subflows that can be used now.
    pub(crate) fn usable(&mut self, side: usize) -> usize {
        self.status(side).subflows.iter().filter(|subflow| subflow.usable).count()
    }

    /// Both ends have come to rest and hold nothing.
    pub(crate) fn assert_clean_end(&mut self) {
        self.run(Duration::from_secs(200), |_| false);
        for (number, side) in self.sides.iter().enumerate() {
            assert!(side.connection.as_ref().is_none_or(Association::is_done), "side {number} is not done");
            assert!(side.owners.is_empty(), "side {number} has kept {:?}", side.owners);
            assert!(side.events.contains(&Event::Closed(None)), "side {number}: {:?}", side.events);
        }
    }
}

fn lanes(link: &Link, seed: u64) -> [plait_link::Link; 2] {
    [2 * seed, 2 * seed + 1].map(|seed| plait_link::Link::new(link.model(), seed))
}

fn to_has(side: &Side) -> bool {
    side.connection.is_some()
}

/// Returns bytes that identify their place.
pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut random = SeededRandom::from_number(salt);
    let mut data = vec![0; len];
    random.fill(&mut data);
    data
}
