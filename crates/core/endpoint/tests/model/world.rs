//! A small world over real endpoints: one client, one or two servers, paths of a fixed delay, an attacker on path 1 or 0.
//!
//! Path `p` joins the client's address 10.0.p.1 with servers, whose addresses are 10.1.s.1. Time moves to the next delivery or deadline.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use plait_base::{Duration, Instant, PathId};
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, Event, ListenerId};
use plait_mptcp::{Config, Path, PathClass};
use plait_wire::Segment;
use std::collections::{BTreeMap, BTreeSet};

use crate::applications::Application;
use crate::attacker::{Action, Attacker, Slot};
use crate::explorer::{Choices, Trace};
use crate::segments::{Kind, Side};

pub(crate) const CLIENT: usize = 0;
/// One way, on each path.
pub(crate) const DELAY: Duration = Duration::from_millis(10);
const PORT: u16 = 7443;
const PATHS: usize = 3;

/// The behaviour of the client's clock while the client sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SleepClock {
    /// It goes on, as CLOCK_BOOTTIME of Linux.
    GoesOn,
    /// It stands still, as CLOCK_MONOTONIC of Linux.
    StandsStill,
}

/// The world that a family of scenarios takes place in.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) servers: usize,
    /// Whether a path leads to a server.
    pub(crate) leads: fn(path: usize, server: usize) -> bool,
    /// The path that the attacker is on.
    pub(crate) attacked: usize,
    /// Paths that are up at the start, from 0.
    pub(crate) paths_up: usize,
    /// What the attacker may do at a point; what it does by default comes first.
    pub(crate) alphabet: fn(Slot) -> &'static [Action],
    /// How long the client may sleep behind OPENING, or its first bytes, in seconds; 0 comes first.
    pub(crate) sleeps: &'static [u64],
    pub(crate) sleep_clock: SleepClock,
    /// Whether a server may be started again behind OPENING, or the first bytes of the client.
    pub(crate) may_restart: bool,
    /// Servers, and the same server after another start, draw the same random numbers: nothing tells their instances apart.
    pub(crate) twins: bool,
}

pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    listener: Option<ListenerId>,
    /// The time by which its clock is behind that of the world.
    pub(crate) behind: Duration,
    /// It sleeps until then: it receives nothing and does nothing.
    pub(crate) wakes_at: Option<Instant>,
    /// How often it was started.
    pub(crate) starts: u64,
}

impl Host {
    /// The time by the host's own clock.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_sub(self.behind.as_nanos() as u64))
    }

    fn deadline(&mut self) -> Option<Instant> {
        if self.wakes_at.is_some() {
            return self.wakes_at;
        }
        self.endpoint.poll_timeout().map(|at| at + self.behind)
    }
}

pub(crate) struct World<'a> {
    pub(crate) setup: Setup,
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) configs: [Config; 2],
    pub(crate) client: Option<Application>,
    /// Those that servers were shown, in that order.
    pub(crate) accepted: Vec<Application>,
    /// The next data block on a path without the attacker is altered, to see that this is noticed.
    pub(crate) corrupts_next_block: bool,
    /// Paths that carry nothing.
    pub(crate) dead: [bool; PATHS],
    pub(crate) attacker: Attacker,
    pub(crate) choices: &'a mut Choices,
    pub(crate) trace: &'a mut Trace,
    /// A description of the part of the scenario that runs.
    pub(crate) phase: &'static str,
    air: BTreeMap<(Instant, u64), (usize, Segment)>,
    sent: u64,
    /// Behind which of its blocks the client has been asked whether it sleeps.
    asked_behind: BTreeSet<Kind>,
    fell_asleep: Instant,
    /// How long the client has slept.
    pub(crate) slept: Duration,
    pub(crate) restart: Restart,
}

/// Whether a server is started again: once at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restart {
    NotYet,
    At(Instant, usize),
    Done,
}

pub(crate) fn client_address(path: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, path as u8, 1)
}

pub(crate) fn server_address(server: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, server as u8, 1), PORT))
}

/// The path of a segment, by the client's address.
pub(crate) fn path_of(segment: &Segment) -> usize {
    let ends = [segment.source.ip(), segment.destination.ip()];
    let of_client = |ip: IpAddr| match ip {
        IpAddr::V4(v4) if v4.octets()[..2] == [10, 0] => Some(usize::from(v4.octets()[2])),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    };
    ends.into_iter().find_map(of_client).expect("one end is the client")
}

fn path(number: usize, address: Ipv4Addr, up: bool) -> Path {
    Path {
        id: PathId(number as u8),
        name: format!("path{number}"),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: Some(address),
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up,
        datagrams: false,
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(
        setup: Setup,
        configs: [Config; 2],
        choices: &'a mut Choices,
        trace: &'a mut Trace,
    ) -> Self {
        let now = Instant::from_millis(1000);
        let mut client = Endpoint::new(EndpointConfig::default(), [1; 32], [2; 32]);
        for number in 0..PATHS {
            client.set_path(now, path(number, client_address(number), number < setup.paths_up));
        }
        let client =
            Host { endpoint: client, listener: None, behind: Duration::ZERO, wakes_at: None, starts: 1 };
        let mut new = Self {
            setup,
            now,
            hosts: vec![client],
            configs,
            client: None,
            accepted: Vec::new(),
            corrupts_next_block: false,
            dead: [false; PATHS],
            attacker: Attacker::default(),
            choices,
            trace,
            phase: "opening",
            air: BTreeMap::new(),
            sent: 0,
            asked_behind: BTreeSet::new(),
            fell_asleep: now,
            slept: Duration::ZERO,
            restart: Restart::NotYet,
        };
        for server in 0..setup.servers {
            let host = new.start_server(server, 1);
            new.hosts.push(host);
        }
        new
    }

    /// A server as it is after the start number `starts`. Each draws other random numbers.
    fn start_server(&self, server: usize, starts: u64) -> Host {
        let seed = if self.setup.twins { 0 } else { 10 * starts as u8 + 2 * server as u8 };
        let mut endpoint = Endpoint::new(EndpointConfig::default(), [seed + 3; 32], [seed + 4; 32]);
        let IpAddr::V4(address) = server_address(server).ip() else { unreachable!("it is one") };
        endpoint.set_path(self.now, path(0, address, true));
        let listener = endpoint.listen(PORT, self.configs[1].clone()).expect("the port is free");
        Host { endpoint, listener: Some(listener), behind: Duration::ZERO, wakes_at: None, starts }
    }

    /// The client opens its connection to all servers, and writes this many bytes.
    pub(crate) fn connect(&mut self, bytes: usize, finishes: bool) {
        let remotes: Vec<_> = (0..self.setup.servers).map(server_address).collect();
        let config = self.configs[0].clone();
        let id = self.hosts[CLIENT].endpoint.connect(self.now, config, &remotes).expect("a path is up");
        let mut application = Application::new(CLIENT, 1, id, Side::Client);
        application.is_to_say(bytes, finishes);
        self.client = Some(application);
        self.call(CLIENT, id);
        self.pump(CLIENT);
    }

    /// The application of a side writes this many more bytes; at the server it is the first application.
    pub(crate) fn say(&mut self, side: Side, bytes: usize) {
        let application = match side {
            Side::Client => self.client.as_mut(),
            Side::Server => self.accepted.first_mut(),
        };
        let Some(application) = application else { return };
        application.is_to_say(bytes, false);
        let (host, id) = (application.host, application.id);
        self.call(host, id);
        self.pump(host);
    }

    /// A path of the client comes up or goes down.
    pub(crate) fn set_path(&mut self, number: usize, up: bool) {
        let clock = self.hosts[CLIENT].clock(self.now);
        self.hosts[CLIENT].endpoint.set_path(clock, path(number, client_address(number), up));
        self.pump(CLIENT);
    }

    /// A moment of the run in words.
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let millis = self.now.as_millis() - 1000;
        self.trace.line(|| format!("{:>7}.{:03} s  {}", millis / 1000, millis % 1000, line()));
    }

    /// Runs until `until` is true, at most for this time, or until nothing is new any more. Returns whether `until` was true.
    pub(crate) fn run(&mut self, limit: Duration, until: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut steps = 0_u32;
        while !self.choices.is_cut() {
            steps += 1;
            assert!(steps < 3_000_000, "the world does not come to rest");
            if until(self) {
                return true;
            }
            let arrival = self.air.first_key_value().map(|(&(at, _), _)| at);
            let restart = if let Restart::At(at, _) = self.restart { Some(at) } else { None };
            let deadlines = self.hosts.iter_mut().filter_map(Host::deadline);
            let next = deadlines.chain(arrival).chain(restart).min().filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                return until(self);
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (to, segment)) = self.air.pop_first().expect("looked at above");
                self.deliver(to, &segment);
            } else {
                self.run_timers();
            }
        }
        false
    }

    pub(crate) fn run_for(&mut self, limit: Duration) {
        self.run(limit, |_| false);
    }

    fn run_timers(&mut self) {
        if let Restart::At(at, server) = self.restart
            && at <= self.now
        {
            self.start_again(server);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].deadline().is_none_or(|at| at > self.now) {
                continue;
            }
            if self.hosts[host].wakes_at.is_some() {
                self.wake();
            }
            let clock = self.hosts[host].clock(self.now);
            self.hosts[host].endpoint.handle_timeout(clock);
            self.pump(host);
        }
    }

    /// Puts a segment into the air that arrives at a host at a moment.
    pub(crate) fn fly(&mut self, at: Instant, to: usize, segment: Segment) {
        self.sent += 1;
        self.air.insert((at, self.sent), (to, segment));
    }

    /// The host with the destination of a segment.
    pub(crate) fn receiver(&self, segment: &Segment) -> usize {
        let IpAddr::V4(ip) = segment.destination.ip() else { unreachable!("all speak IPv4") };
        if ip.octets()[1] == 0 { CLIENT } else { 1 + usize::from(ip.octets()[2]) }
    }

    /// The host with the source of a segment.
    pub(crate) fn sender(&self, segment: &Segment) -> usize {
        let turned = Segment { destination: segment.source, ..segment.clone() };
        self.receiver(&turned)
    }

    fn deliver(&mut self, to: usize, segment: &Segment) {
        if self.hosts[to].wakes_at.is_some() {
            return;
        }
        let clock = self.hosts[to].clock(self.now);
        self.hosts[to].endpoint.handle_segment(Arrival::at(clock), segment);
        self.pump(to);
    }

    /// Sends what a host has to send, and calls its applications.
    pub(crate) fn pump(&mut self, host: usize) {
        loop {
            let clock = self.hosts[host].clock(self.now);
            if let Some(transmit) = self.hosts[host].endpoint.poll_transmit(clock) {
                for segment in transmit.segment.split() {
                    self.depart(host, segment);
                }
                continue;
            }
            let Some(event) = self.hosts[host].endpoint.poll_event() else { return };
            match event {
                Event::Incoming(_) => self.accept(host),
                // No application here takes datagrams.
                Event::Datagrams(_) => {}
                Event::Connected(id) | Event::Readable(id) | Event::Writable(id) | Event::Closed(id) => {
                    self.call(host, id);
                }
            }
        }
    }

    fn accept(&mut self, host: usize) {
        let listener = self.hosts[host].listener.expect("it is a server");
        while let Some((id, from)) = self.hosts[host].endpoint.accept(listener) {
            let starts = self.hosts[host].starts;
            self.tell(|| {
                format!("server {host} (start {starts}) shows a connection from {from} to its application")
            });
            self.accepted.push(Application::new(host, starts, id, Side::Server));
            self.call(host, id);
        }
    }

    /// Calls the application on a connection.
    pub(crate) fn call(&mut self, host: usize, id: ConnectionId) {
        let clock = self.hosts[host].clock(self.now);
        let starts = self.hosts[host].starts;
        let all = self.client.iter_mut().chain(&mut self.accepted);
        let mut notes = Vec::new();
        for application in all.filter(|one| one.is_on(host, starts, id)) {
            application.talk(clock, &mut self.hosts[host].endpoint, &mut notes);
        }
        for note in notes {
            self.tell(|| note);
        }
    }

    /// Takes a segment from a host.
    fn depart(&mut self, from: usize, segment: Segment) {
        let path = path_of(&segment);
        let to = self.receiver(&segment);
        let server = if from == CLIENT { to } else { from };
        if self.dead.get(path).is_none_or(|dead| *dead) || !(self.setup.leads)(path, server - 1) {
            return;
        }
        let side = if from == CLIENT { Side::Client } else { Side::Server };
        let kind = Kind::of(&segment);
        if path == self.setup.attacked {
            self.meet(side, to, segment);
        } else {
            if !matches!(kind, Kind::Ack | Kind::Tagged) {
                let length = segment.payload.len();
                self.tell(|| format!("path {path}  {} {kind}, {length} bytes", arrow(side, server)));
            }
            let is_altered = kind == Kind::DataBlock && core::mem::take(&mut self.corrupts_next_block);
            self.fly(self.now + DELAY, to, if is_altered { altered(segment) } else { segment });
        }
        if from == CLIENT {
            self.after_segment_of_client(server, kind);
        }
    }

    /// OPENING, or the first bytes of the application, have left: the client may fall asleep, or the server may be started again.
    fn after_segment_of_client(&mut self, server: usize, kind: Kind) {
        if !matches!(kind, Kind::ControlBlock | Kind::DataBlock) || !self.asked_behind.insert(kind) {
            return;
        }
        if self.slept == Duration::ZERO {
            self.may_sleep(self.setup.sleeps);
        }
        if self.setup.may_restart && self.restart == Restart::NotYet {
            let is_started_again = self.decide(&[false, true], "restart");
            // What has left has been read then, and the answer to it is on its way.
            let at = self.now + DELAY + DELAY / 2;
            self.restart = if is_started_again { Restart::At(at, server) } else { Restart::NotYet };
        }
    }

    /// The client may fall asleep, for one of these times in seconds.
    pub(crate) fn may_sleep(&mut self, seconds: &[u64]) {
        let seconds = self.decide(seconds, "sleep");
        if seconds == 0 {
            return;
        }
        self.tell(|| format!("the client falls asleep for {seconds} s"));
        let time = Duration::from_secs(seconds);
        self.hosts[CLIENT].wakes_at = Some(self.now + time);
        (self.fell_asleep, self.slept) = (self.now, self.slept + time);
    }

    pub(crate) fn sleeps(&self) -> bool {
        self.hosts[CLIENT].wakes_at.is_some()
    }

    /// A server loses all that it has in memory, and starts again.
    fn start_again(&mut self, server: usize) {
        self.tell(|| format!("server {server} is started again"));
        let starts = self.hosts[server].starts + 1;
        self.hosts[server] = self.start_server(server - 1, starts);
        self.restart = Restart::Done;
    }

    /// The client wakes. What arrives at that moment may come to it before its timers do.
    fn wake(&mut self) {
        self.hosts[CLIENT].wakes_at = None;
        if self.setup.sleep_clock == SleepClock::StandsStill {
            self.hosts[CLIENT].behind += self.now.saturating_since(self.fell_asleep);
        }
        let soon = self.now + DELAY * 3;
        let arrives = |(&(at, _), (to, _)): (&(Instant, u64), &(usize, Segment))| at <= soon && *to == CLIENT;
        let comes_first =
            self.air.iter().any(arrives) && self.decide(&[false, true], "packets before timers");
        self.tell(|| format!("the client wakes, packets first: {comes_first}"));
        while comes_first
            && let Some(key) = self.air.iter().find(|&entry| arrives(entry)).map(|(key, _)| *key)
        {
            let (_, segment) = self.air.remove(&key).expect("just found");
            self.deliver(CLIENT, &segment);
        }
    }

    /// Takes a free decision.
    pub(crate) fn decide<T: Copy>(&mut self, options: &[T], point: &str) -> T {
        let state = if options.len() > 1 && self.choices.wants_state() {
            self.describe(point)
        } else {
            String::new()
        };
        self.choices.pick(options, || state)
    }

    /// The observable state: what the status of each end shows, what is in the air, and what the attacker knows.
    fn describe(&mut self, point: &str) -> String {
        let now = self.now;
        let mut lines = vec![format!("{point} in {} dead {:?} {:?}", self.phase, self.dead, self.restart)];
        lines.push(self.attacker.describe(now));
        for host in &mut self.hosts {
            // The state does not depend on when it is come to, but on what is due how soon.
            let due = host.deadline().map(|at| at.saturating_since(now).as_secs());
            lines.push(format!("host {} due {due:?} sleeps {}", host.starts, host.wakes_at.is_some()));
        }
        for application in self.client.iter().chain(&self.accepted) {
            let host = &self.hosts[application.host];
            lines.push(application.describe(host.clock(now), &host.endpoint));
        }
        let flights = self.air.iter().map(|(&(at, _), (to, segment))| {
            (
                at.saturating_since(now).as_millis(),
                *to,
                path_of(segment),
                Kind::of(segment),
                segment.payload.len(),
            )
        });
        lines.push(format!("air {:?}", flights.collect::<Vec<_>>()));
        lines.join("\n")
    }
}

/// The segment with its last byte changed.
fn altered(segment: Segment) -> Segment {
    let mut bytes = segment.payload.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    Segment { payload: bytes.into(), ..segment }
}

pub(crate) fn arrow(from: Side, server: usize) -> String {
    match from {
        Side::Client => format!("client → server {server}:"),
        Side::Server => format!("server {server} → client:"),
    }
}
