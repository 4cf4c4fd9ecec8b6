//! A host with many connections to another, all plain: what it costs to find one among the others.

use bytes::Bytes;
use plait_base::{Duration, Instant, PathId, Random, SeededRandom};
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, Event, ListenerId};
use plait_mptcp::{Config, Path, PathClass};
use plait_wire::Segment;

use super::{Case, ROUNDS, SEGMENT, Step, WARM_UP};
use crate::gauge::Gauge;

pub(super) const CASES: &[Case] = &[
    ("segment-out-1-connection", |gauge| transfer(gauge, 1, Step::Out)),
    ("segment-in-1-connection", |gauge| transfer(gauge, 1, Step::In)),
    ("ack-in-1-connection", |gauge| transfer(gauge, 1, Step::Ack)),
    ("segment-out-10000-connections", |gauge| transfer(gauge, 10_000, Step::Out)),
    ("segment-in-10000-connections", |gauge| transfer(gauge, 10_000, Step::In)),
    ("ack-in-10000-connections", |gauge| transfer(gauge, 10_000, Step::Ack)),
    ("syn-in", syn_in),
];

/// One way.
const DELAY: Duration = Duration::from_millis(5);
const PORT: u16 = 443;
const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [192, 0, 2, 2];

/// Two segments leave at once, whatever the rate.
fn config() -> Config {
    let mut config = Config::default();
    config.tcp.pacing = false;
    config
}

/// Segments go in pairs, each pair over a connection drawn from all.
fn transfer(gauge: &mut Gauge, connections: usize, step: Step) {
    let mut hosts = Hosts::new();
    let ids: Vec<_> = (0..connections).map(|_| hosts.connect()).collect();
    let mut random = SeededRandom::from_number(1);
    let payload = Bytes::from(vec![7; SEGMENT]);
    for round in 0..WARM_UP + ROUNDS {
        let is_counted = |this: Step| this == step && round >= WARM_UP;
        let id = ids[random.below(ids.len() as u64) as usize];
        let Hosts { client, server, now, .. } = &mut hosts;
        let segments: Vec<_> = [payload.clone(), payload.clone()]
            .into_iter()
            .flat_map(|payload| {
                gauge.count_if(is_counted(Step::Out), || {
                    assert_eq!(client.write(*now, id, payload), SEGMENT);
                    drain(client, *now)
                })
            })
            .collect();
        assert_eq!(segments.len(), 2);
        *now += DELAY;
        let mut answers = Vec::new();
        for segment in &segments {
            answers.extend(gauge.count_if(is_counted(Step::In), || handle(server, *now, segment)));
        }
        *now += DELAY;
        for answer in &answers {
            gauge.count_if(is_counted(Step::Ack), || handle(client, *now, answer));
        }
        hosts.settle();
    }
}

/// A SYN makes a connection and is answered.
fn syn_in(gauge: &mut Gauge) {
    let mut hosts = Hosts::new();
    for round in 0..ROUNDS {
        let Hosts { client, server, now, .. } = &mut hosts;
        client.connect(*now, config(), &[(SERVER, PORT).into()]).expect("there is a path");
        let syn = drain(client, *now).remove(0);
        let answers = gauge.count(|| handle(server, *now, &syn));
        assert_eq!(answers.len(), 1, "the SYN/ACK of round {round}");
    }
}

/// One segment arrives, what it brings is read, and what follows from it leaves.
fn handle(host: &mut Endpoint, now: Instant, segment: &Segment) -> Vec<Segment> {
    host.handle_segment(Arrival::at(now), segment);
    drain(host, now)
}

/// All that follows from what was done to the endpoint, as a driver asks for it.
fn drain(host: &mut Endpoint, now: Instant) -> Vec<Segment> {
    let mut segments = Vec::new();
    send(host, now, &mut segments);
    while let Some(event) = host.poll_event() {
        if let Event::Readable(id) = event {
            while host.read(now, id).is_ok() {}
            send(host, now, &mut segments);
        }
    }
    core::hint::black_box(host.poll_timeout());
    segments
}

fn send(host: &mut Endpoint, now: Instant, segments: &mut Vec<Segment>) {
    segments.extend(core::iter::from_fn(|| host.poll_transmit(now)).map(|transmit| transmit.segment));
}

/// Two hosts with one path between them.
struct Hosts {
    client: Endpoint,
    server: Endpoint,
    listener: ListenerId,
    now: Instant,
}

impl Hosts {
    fn new() -> Self {
        let now = Instant::from_millis(1000);
        let [client, mut server] = [CLIENT, SERVER].map(|address| {
            let mut host = Endpoint::new(EndpointConfig::default(), [address[3]; 32], [100 + address[3]; 32]);
            host.set_path(now, path(address));
            host
        });
        let listener = server.listen(PORT, config()).expect("no other program does");
        Self { client, server, listener, now }
    }

    /// Opens a connection, and has the server accept it.
    fn connect(&mut self) -> ConnectionId {
        let id = self.client.connect(self.now, config(), &[(SERVER, PORT).into()]);
        self.exchange();
        self.server.accept(self.listener).expect("the handshake is over");
        id.expect("there is a path")
    }

    /// Lets the hosts talk until they have nothing to say.
    fn exchange(&mut self) {
        let mut segments = drain(&mut self.client, self.now);
        while !segments.is_empty() {
            self.now += DELAY;
            let answers: Vec<_> =
                segments.iter().flat_map(|segment| handle(&mut self.server, self.now, segment)).collect();
            self.now += DELAY;
            segments =
                answers.iter().flat_map(|segment| handle(&mut self.client, self.now, segment)).collect();
        }
    }

    /// Lets pass what acknowledgments may be held back for.
    fn settle(&mut self) {
        self.now += Duration::from_millis(50);
        let Self { client, server, now, .. } = self;
        server.handle_timeout(*now);
        for segment in drain(server, *now) {
            handle(client, *now, &segment);
        }
        client.handle_timeout(*now);
        self.exchange();
    }
}

fn path(address: [u8; 4]) -> Path {
    Path {
        id: PathId(0),
        name: "path0".to_owned(),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: Some(address.into()),
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    }
}
