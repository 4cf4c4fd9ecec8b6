//! The world: hosts, paths, and time that jumps.

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, PathId, Random, SeededRandom};
use plait_carrier::MalformedCounts;
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, Event, ListenerId};
use plait_mptcp::{Config, CryptoResult, Path, PathClass};
use plait_wire::{IpVersion, Packet, Segment};
use std::collections::BTreeMap;

use crate::application::Patterns;
use crate::capture::Capture;
use crate::network::{Addresses, Line, Network, Next, Transit};
use crate::stopped::{Stopped, Work};
use crate::{
    Application, Direction, Element, Families, Frame, Link, Outlet, PathIndex, Workload, plain_link,
};

/// Identifies a host of the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostIndex(pub usize);

/// Most rounds of timers at one moment; a host that needs more would use up the processor of its driver.
const MOST_ROUNDS: usize = 32;

/// A future event.
enum WorldEvent {
    Arrival(Transit),
    Wake(PathIndex, usize),
    /// Applications that waited for a moment are called.
    Call(HostIndex, ConnectionId),
    /// A block of a connection has been sealed or opened elsewhere.
    Result(HostIndex, ConnectionId, CryptoResult),
}

/// One host: the endpoint, and the applications on it.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    malformed: MalformedCounts,
    serving: BTreeMap<ListenerId, Workload>,
    applications: BTreeMap<ConnectionId, Application>,
    /// Accepted connections, in the order of their arrival.
    accepted: Vec<ConnectionId>,
    /// What waits for the host while it is stopped.
    pub(crate) stopped: Option<Stopped>,
}

/// Hosts, paths between them, and frames in flight.
pub struct World {
    pub(crate) now: Instant,
    random: SeededRandom,
    patterns: Patterns,
    pub(crate) hosts: Vec<Host>,
    network: Network,
    future: BTreeMap<(Instant, u64), WorldEvent>,
    next_serial: u64,
    capture: Option<Capture>,
    /// Packets without a route.
    unrouted: u64,
    /// How long a job of a connection takes at most.
    longest_job: Duration,
    most_jobs: usize,
}

impl World {
    /// Returns an empty world; everything follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            // Not zero: nothing may depend on a run that starts at time zero.
            now: Instant::from_millis(1000),
            random: SeededRandom::from_number(seed),
            patterns: Patterns::draw(seed),
            hosts: Vec::new(),
            network: Network::default(),
            future: BTreeMap::new(),
            next_serial: 0,
            capture: None,
            unrouted: 0,
            longest_job: Duration::ZERO,
            most_jobs: 0,
        }
    }

    /// Makes jobs of connections ([`Config::crypto_jobs`]) take up to this time, each a time of its own, so that
    /// results come in any order.
    pub fn set_longest_job(&mut self, longest: Duration) {
        self.longest_job = longest;
    }

    /// Most concurrent jobs of a host so far.
    pub fn most_jobs(&self) -> usize {
        self.most_jobs
    }

    /// Adds a host.
    pub fn add_host(&mut self, config: EndpointConfig) -> HostIndex {
        let (mut wire_seed, mut secret_seed) = ([0; 32], [0; 32]);
        self.random.fill(&mut wire_seed);
        self.random.fill(&mut secret_seed);
        self.hosts.push(Host {
            endpoint: Endpoint::new(config, wire_seed, secret_seed),
            malformed: MalformedCounts::default(),
            serving: BTreeMap::new(),
            applications: BTreeMap::new(),
            accepted: Vec::new(),
            stopped: None,
        });
        HostIndex(self.hosts.len() - 1)
    }

    /// Adds a path with addresses of its own at both ends: a perfect link of 10 ms each way.
    pub fn add_path(&mut self, from: HostIndex, to: HostIndex, families: Families) -> PathIndex {
        let path = PathIndex(self.network.lines.len());
        let addresses = [0, 1].map(|end| Addresses::assign(path, end, families));
        self.attach(to, path, addresses[1]);
        self.add_line([from, to], addresses)
    }

    /// Adds a path with the same far end as `other`.
    pub fn add_path_beside(&mut self, from: HostIndex, other: PathIndex, families: Families) -> PathIndex {
        let path = PathIndex(self.network.lines.len());
        let Line { hosts: [_, to], addresses: [_, far], .. } = self.network.lines[other.0];
        self.add_line([from, to], [Addresses::assign(path, 0, families), far])
    }

    fn add_line(&mut self, hosts: [HostIndex; 2], addresses: [Addresses; 2]) -> PathIndex {
        let link = Link::new(plain_link(), self.random.next_u64());
        let path = self.network.add(Line { hosts, addresses, chain: vec![Box::new(link)] });
        self.attach(hosts[0], path, addresses[0]);
        path
    }

    fn attach(&mut self, host: HostIndex, path: PathIndex, addresses: Addresses) {
        let path = Path {
            id: PathId(path.0 as u8),
            name: format!("path{}", path.0),
            network: None,
            class: PathClass::Trusted,
            backup: false,
            v4: addresses.v4,
            v6: addresses.v6,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up: true,
            datagrams: false,
        };
        self.hosts[host.0].endpoint.set_path(self.now, path);
    }

    /// Replaces the boxes of a path.
    pub fn set_chain(&mut self, path: PathIndex, chain: Vec<Box<dyn Element>>) {
        self.network.lines[path.0].chain = chain;
    }

    /// Sends packets between these addresses along `path`.
    pub fn route(&mut self, source: IpAddr, destination: IpAddr, path: PathIndex, direction: Direction) {
        self.network.route(source, destination, path, direction);
    }

    /// The address of an end of a path: 0 is the first, 1 the second.
    pub fn address(&self, path: PathIndex, end: usize, version: IpVersion) -> IpAddr {
        let addresses = self.network.lines[path.0].addresses[end];
        let found = match version {
            IpVersion::V4 => addresses.v4.map(IpAddr::from),
            IpVersion::V6 => addresses.v6.map(IpAddr::from),
        };
        found.expect("the path has an address of this family")
    }

    /// Changes a path of a host, by its `id`.
    pub fn change_path(&mut self, host: HostIndex, id: PathIndex, change: impl FnOnce(&mut Path)) {
        let endpoint = &mut self.hosts[host.0].endpoint;
        let mut path = endpoint.paths().get(PathId(id.0 as u8)).expect("the host has the path").clone();
        change(&mut path);
        endpoint.set_path(self.now, path);
        self.pump(host);
    }

    /// Removes a path from a host.
    pub fn remove_path(&mut self, host: HostIndex, id: PathIndex) {
        self.hosts[host.0].endpoint.remove_path(self.now, PathId(id.0 as u8));
        self.pump(host);
    }

    /// Captures everything from now on; call it after the last [`World::add_path`].
    pub fn start_capture(&mut self) {
        self.capture = Some(Capture::new(self.network.lines.len()).expect("memory takes everything"));
    }

    /// The capture so far, as a pcapng file.
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.capture.take().map(Capture::into_bytes).unwrap_or_default()
    }

    /// Listens on a port and gives each connection this workload.
    pub fn serve(&mut self, host: HostIndex, port: u16, config: Config, workload: Workload) -> ListenerId {
        let host = &mut self.hosts[host.0];
        let id = host.endpoint.listen(port, config).expect("the port is free");
        host.serving.insert(id, workload);
        id
    }

    /// Opens a connection and gives it this workload.
    pub fn open(
        &mut self,
        host: HostIndex,
        config: Config,
        remotes: &[SocketAddr],
        workload: Workload,
    ) -> ConnectionId {
        let patterns = self.patterns.clone();
        let there = &mut self.hosts[host.0];
        let id = there.endpoint.connect(self.now, config, remotes).expect("it can be tried");
        let application = Application::new(id, workload, patterns);
        self.introduce(host, application, id);
        self.pump(host);
        id
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Packets without a route.
    pub fn unrouted(&self) -> u64 {
        self.unrouted
    }

    /// Packets that a host has dropped because they were not for it.
    pub fn malformed(&self, host: HostIndex) -> &MalformedCounts {
        &self.hosts[host.0].malformed
    }

    /// The endpoint of a host.
    pub fn endpoint(&self, host: HostIndex) -> &Endpoint {
        &self.hosts[host.0].endpoint
    }

    /// Changes the endpoint of a host, and handles the effects.
    pub fn with_endpoint<T>(&mut self, host: HostIndex, act: impl FnOnce(Instant, &mut Endpoint) -> T) -> T {
        let result = act(self.now, &mut self.hosts[host.0].endpoint);
        self.pump(host);
        result
    }

    /// The application on a connection.
    pub fn application(&self, host: HostIndex, id: ConnectionId) -> &Application {
        &self.hosts[host.0].applications[&id]
    }

    /// All applications on a host.
    pub fn applications(&self, host: HostIndex) -> impl Iterator<Item = (ConnectionId, &Application)> {
        self.hosts[host.0].applications.iter().map(|(id, application)| (*id, application))
    }

    /// The applications on accepted connections, in the order of their arrival.
    pub fn accepted(&self, host: HostIndex) -> impl Iterator<Item = &Application> {
        let host = &self.hosts[host.0];
        host.accepted.iter().map(|id| &host.applications[id])
    }

    /// Drops the applications that have ended; for worlds with very many.
    pub fn dismiss_finished(&mut self) {
        for host in &mut self.hosts {
            host.applications.retain(|_, application| application.outcome().is_none());
            host.accepted.retain(|id| host.applications.contains_key(id));
        }
    }

    /// Delivers a packet to a host as if it had come from outside.
    pub fn inject(&mut self, host: HostIndex, frame: &Frame) {
        self.arrive(host, frame);
    }

    /// Sends a segment as if the host with its source address had sent it.
    pub fn send_as(&mut self, segment: &Segment) {
        self.depart(segment);
    }

    /// Runs until `done`, or for at most `limit`; returns whether it was done.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            match self.next_moment() {
                Some(moment) if moment <= end => self.step(moment),
                Some(_) | None => {
                    self.now = end;
                    return done(self);
                }
            }
        }
    }

    /// Runs for this time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until no application has work left.
    pub fn run_talk(&mut self, limit: Duration) -> bool {
        self.run_until(limit, |world| {
            world
                .hosts
                .iter()
                .all(|host| host.applications.values().all(|application| application.outcome().is_some()))
        })
    }

    fn next_moment(&mut self) -> Option<Instant> {
        let event = self.future.keys().next().map(|(at, _)| *at);
        let running = self.hosts.iter_mut().filter(|host| host.stopped.is_none());
        let deadlines = running.filter_map(|host| host.endpoint.poll_timeout());
        deadlines.chain(event).min()
    }

    /// Handles all events at `moment`.
    fn step(&mut self, moment: Instant) {
        self.now = self.now.max(moment);
        while let Some(entry) = self.future.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                WorldEvent::Arrival(transit) => self.advance(transit),
                WorldEvent::Wake(path, element) => {
                    let out = self.network.wake(self.now, path, element);
                    self.emerge(path, element, out);
                }
                WorldEvent::Call(host, id) => self.run_on(host, Work::Call(id)),
                WorldEvent::Result(host, id, result) => self.run_on(host, Work::Result(id, result)),
            }
        }
        for index in 0..self.hosts.len() {
            if self.hosts[index].stopped.is_none() {
                self.run_timers(HostIndex(index));
            }
        }
    }

    /// Runs the due timers of a host. They may make others due at once, but not for ever.
    pub(crate) fn run_timers(&mut self, index: HostIndex) {
        for _ in 0..MOST_ROUNDS {
            let endpoint = &mut self.hosts[index.0].endpoint;
            if endpoint.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            endpoint.handle_timeout(self.now);
            self.pump(index);
        }
        panic!("{index:?} has a timer that is due again whenever it has run");
    }

    /// Moves a frame on by one box.
    fn advance(&mut self, transit: Transit) {
        let (path, direction) = (transit.path, transit.direction);
        match self.network.step(self.now, transit) {
            Next::Arrived(host, frame) => {
                if direction == Direction::Backward {
                    self.record(path, &frame);
                }
                self.arrive(host, &frame);
            }
            Next::Taken(element, out) => self.emerge(path, element, out),
        }
    }

    /// Schedules the output of a box for the next box.
    fn emerge(&mut self, path: PathIndex, element: usize, out: Outlet) {
        let Outlet { frames, wake } = out;
        for (at, direction, frame) in frames {
            let gap = match direction {
                Direction::Forward => element + 1,
                Direction::Backward => element,
            };
            self.schedule(at, WorldEvent::Arrival(Transit { path, direction, gap, frame }));
        }
        if let Some(at) = wake {
            self.schedule(at, WorldEvent::Wake(path, element));
        }
    }

    fn schedule(&mut self, at: Instant, event: WorldEvent) {
        self.future.insert((at.max(self.now), self.next_serial), event);
        self.next_serial += 1;
    }

    pub(crate) fn arrive(&mut self, host: HostIndex, frame: &Frame) {
        if let Some(stopped) = &mut self.hosts[host.0].stopped {
            stopped.keep(frame);
            return;
        }
        let Host { endpoint, malformed, .. } = &mut self.hosts[host.0];
        let arrival = Arrival::at(self.now);
        if let Some(datagram) = Packet::datagram_shown(&frame.bytes) {
            endpoint.handle_segment(arrival, &datagram);
            self.pump(host);
            return;
        }
        match Packet::parse(&frame.bytes, frame.segment_size, frame.trust) {
            Ok(Packet::Tcp(segment)) => endpoint.handle_segment(arrival, &segment),
            Ok(Packet::Icmp(error)) => endpoint.handle_icmp(arrival, &error),
            Err(reason) => malformed.count(reason),
        }
        self.pump(host);
    }

    /// Sends the segments of the host and notifies its applications, until it is idle.
    pub(crate) fn pump(&mut self, index: HostIndex) {
        loop {
            while let Some(transmit) = self.hosts[index.0].endpoint.poll_transmit(self.now) {
                self.depart(&transmit.segment);
            }
            self.take_jobs(index);
            let host = &mut self.hosts[index.0];
            let Some(event) = host.endpoint.poll_event() else { return };
            match event {
                Event::Incoming(listener) => self.welcome(index, listener),
                // A test asks when it looks.
                Event::Datagrams(_) => {}
                Event::Connected(id) | Event::Readable(id) | Event::Writable(id) | Event::Closed(id) => {
                    self.call(index, id);
                }
            }
        }
    }

    fn take_jobs(&mut self, index: HostIndex) {
        while let Some((id, job)) = self.hosts[index.0].endpoint.poll_crypto() {
            let takes = self.longest_job.mul_f64(self.random.below(1000) as f64 / 1000.0);
            self.schedule(self.now + takes, WorldEvent::Result(index, id, job.run()));
            self.most_jobs = self.most_jobs.max(self.hosts[index.0].endpoint.counters().crypto_jobs);
        }
    }

    fn depart(&mut self, segment: &Segment) {
        for piece in segment.split() {
            let frame = Frame::of_segment(&piece);
            let Some(transit) = self.network.depart(piece.source.ip(), piece.destination.ip(), frame) else {
                self.unrouted += 1;
                continue;
            };
            if transit.direction == Direction::Forward {
                self.record(transit.path, &transit.frame);
            }
            self.schedule(self.now, WorldEvent::Arrival(transit));
        }
    }

    fn record(&mut self, path: PathIndex, frame: &Frame) {
        if let Some(capture) = &mut self.capture {
            capture.record(self.now, path, &frame.bytes).expect("memory takes everything");
        }
    }

    fn welcome(&mut self, index: HostIndex, listener: ListenerId) {
        let host = &mut self.hosts[index.0];
        // Not every listener has an application: a test may want to accept on its own.
        let Some(workload) = host.serving.get(&listener).copied() else { return };
        let patterns = self.patterns.swapped();
        while let Some((id, _)) = self.hosts[index.0].endpoint.accept(listener) {
            self.hosts[index.0].accepted.push(id);
            self.introduce(index, Application::new(id, workload, patterns.clone()), id);
        }
    }

    fn introduce(&mut self, index: HostIndex, application: Application, id: ConnectionId) {
        if let Some(at) = application.wants_call_at() {
            self.schedule(at, WorldEvent::Call(index, id));
        }
        self.hosts[index.0].applications.insert(id, application);
        self.call(index, id);
    }

    pub(crate) fn call(&mut self, index: HostIndex, id: ConnectionId) {
        let Host { endpoint, applications, .. } = &mut self.hosts[index.0];
        if let Some(application) = applications.get_mut(&id) {
            application.talk(self.now, endpoint);
        }
    }
}
