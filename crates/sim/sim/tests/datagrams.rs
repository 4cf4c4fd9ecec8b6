//! Datagrams beside the stream of a sealed connection: none twice, none altered, none after its flow has ended, whatever the paths do to
//! them; and the stream goes on beside them.

use bytes::Bytes;
use plait_base::{Duration, Instant, Random, SeededRandom};
use plait_endpoint::ConnectionId;
use plait_mptcp::{
    Capabilities, Config, DatagramCounters, DatagramRefused, FlowEnded, FlowError, FlowId, FlowNews,
    PathChoice, Protect,
};
use plait_sim::{
    CloseMode, Direction, Element, Families, Frame, HostIndex, Link, LinkConfig, Loss, Moment, Outlet, Pair,
    Reordering, Stripper, Workload, megabits, plain_link, sealed,
};
use plait_wire::{MptcpOption, Segment, TcpOption, options};
use std::collections::BTreeMap;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(20);
const DESTINATION: &[u8] = b"voice.example.com:5004";

/// Settings of a host whose application takes datagrams.
fn with_datagrams() -> Config {
    let config = sealed();
    let Protect::Sealed(mut settings) = config.protect else { panic!("it is sealed") };
    settings.capabilities = Capabilities::SUPPORTED;
    Config { protect: Protect::Sealed(settings), ..config }
}

/// A connection with a flow from the client, and what has arrived in it at the server.
struct Talk {
    pair: Pair,
    client: ConnectionId,
    server: ConnectionId,
    flow: FlowId,
    sent: u64,
    arrived: BTreeMap<u64, Instant>,
    order: Vec<u64>,
}

/// Waits for the other side with everything; sends this many bytes.
fn idle(bytes: u64) -> Workload {
    Workload::of(bytes).leaving(CloseMode::Waiting)
}

fn pair_over_udp(seed: u64, paths: usize) -> Pair {
    let mut pair = Pair::new(seed, paths, Families::V4);
    for path in 0..paths {
        let id = pair.paths[path];
        for host in [pair.client, pair.server] {
            pair.world.change_path(host, id, |path| path.datagrams = true);
        }
    }
    pair
}

impl Talk {
    fn begin(mut pair: Pair, bytes: u64, choice: PathChoice) -> Self {
        let config = with_datagrams();
        pair.serve(&config, idle(0));
        let client = pair.open(&config, idle(bytes));
        pair.world.run_for(SECOND);
        let flow = pair.world.with_endpoint(pair.client, |now, endpoint| {
            endpoint.open_flow(now, client, Bytes::from_static(DESTINATION), choice)
        });
        let flow = flow.expect("both ends take datagrams");
        let server = pair.world.applications(pair.server).next().expect("it was accepted").0;
        pair.world.run_for(SECOND);
        let accepted = pair.world.with_endpoint(pair.server, |_, endpoint| {
            assert_eq!(endpoint.poll_flow_news(server), Some(FlowNews::Offered));
            endpoint.accept_flow(server)
        });
        assert_eq!(accepted, Some((flow, Bytes::from_static(DESTINATION))));
        Self { pair, client, server, flow, sent: 0, arrived: BTreeMap::new(), order: Vec::new() }
    }

    fn send(&mut self, len: usize) {
        let payload = contents(self.sent, len);
        let (id, flow) = (self.client, self.flow);
        let sent = self.pair.world.with_endpoint(self.pair.client, |now, endpoint| {
            endpoint.send_datagram(now, id, flow, 1, payload)
        });
        assert_eq!(sent, Ok(()));
        self.sent += 1;
    }

    /// Reads what has arrived: each datagram for the first time, and as it was sent.
    fn read(&mut self) {
        let (id, flow) = (self.server, self.flow);
        let now = self.pair.world.now();
        loop {
            let read = self
                .pair
                .world
                .with_endpoint(self.pair.server, |_, endpoint| endpoint.receive_datagram(id, flow));
            let Ok(Some(datagram)) = read else { break };
            let number = u64::from_be_bytes(datagram.payload[..8].try_into().expect("a number"));
            assert_eq!(datagram.payload, contents(number, datagram.payload.len()), "unaltered");
            assert_eq!(datagram.ecn, 1);
            assert!(number < self.sent);
            assert_eq!(self.arrived.insert(number, now), None, "{number} has arrived twice");
            self.order.push(number);
        }
    }

    /// Runs for this time, and reads each millisecond.
    fn run_for(&mut self, time: Duration) {
        let end = self.pair.world.now() + time;
        while self.pair.world.now() < end {
            self.pair.world.run_for(Duration::from_millis(1));
            self.read();
        }
    }

    /// Sends `count` datagrams, one each `interval`. Returns the delay of each that has arrived a second after the last.
    fn speak(&mut self, count: u64, interval: Duration, len: usize) -> Vec<Duration> {
        let mut said = BTreeMap::new();
        for _ in 0..count {
            said.insert(self.sent, self.pair.world.now());
            self.send(len);
            self.run_for(interval);
        }
        self.run_for(SECOND);
        let delays =
            said.iter().filter_map(|(number, at)| Some(self.arrived.get(number)?.saturating_since(*at)));
        let mut delays: Vec<_> = delays.collect();
        delays.sort_unstable();
        delays
    }

    fn counters(&self, host: HostIndex, id: ConnectionId) -> DatagramCounters {
        let status = self.pair.world.endpoint(host).status(self.pair.world.now(), id);
        status.and_then(|status| status.datagrams).map(|datagrams| datagrams.counters).unwrap_or_default()
    }

    fn counters_of_client(&self) -> DatagramCounters {
        self.counters(self.pair.client, self.client)
    }

    fn counters_of_server(&self) -> DatagramCounters {
        self.counters(self.pair.server, self.server)
    }

    fn heard(&self) -> u64 {
        self.pair
            .world
            .endpoint(self.pair.server)
            .status(self.pair.world.now(), self.server)
            .map_or(0, |s| s.bytes_read)
    }
}

fn contents(number: u64, len: usize) -> Bytes {
    let pattern = (8..len.max(8)).map(|at| (number as u8).wrapping_mul(31) ^ at as u8);
    number.to_be_bytes().into_iter().chain(pattern).collect()
}

fn is_report(segment: &Segment) -> bool {
    options(&segment.options).flatten().any(|option| {
        matches!(option, TcpOption::Mptcp(MptcpOption::Unknown { subtype: 0xf, low_bits: 4, .. }))
    })
}

/// What an attacker on the path does to datagrams and reports.
struct Attacker {
    random: SeededRandom,
    kept: Vec<Frame>,
    drops_reports: bool,
}

impl Attacker {
    fn new(seed: u64, drops_reports: bool) -> Self {
        Self { random: SeededRandom::from_number(seed), kept: Vec::new(), drops_reports }
    }

    fn forged(&mut self, segment: &Segment) -> Frame {
        let mut bytes = segment.payload.to_vec();
        let at = self.random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << self.random.below(8);
        Frame::of_segment(&Segment { payload: bytes.into(), ..segment.clone() })
    }
}

impl Element for Attacker {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(datagram) = plait_wire::Packet::datagram_shown(&frame.bytes) else {
            let is_dropped = self.drops_reports && frame.segment().is_some_and(|segment| is_report(&segment));
            if !is_dropped {
                out.push(now, direction, frame);
            }
            return;
        };
        let forged = self.forged(&datagram);
        out.push(now, direction, forged);
        if self.kept.len() < 4000 {
            self.kept.push(frame.clone());
        }
        let replayed = self.random.below(self.kept.len() as u64) as usize;
        out.push(now, direction, self.kept[replayed].clone());
        match self.random.below(4) {
            0 => {}
            1 => out.push(now + Duration::from_millis(self.random.below(300)), direction, frame),
            _ => out.push(now, direction, frame),
        }
    }
}

#[test]
fn datagrams_over_one_path_arrive_in_order_and_none_is_missing() {
    for choice in [PathChoice::Fastest, PathChoice::Duplicate, PathChoice::Spread] {
        let mut talk = Talk::begin(pair_over_udp(1, 1), 0, choice);
        let delays = talk.speak(500, TICK, 160);
        assert_eq!(delays.len(), 500);
        assert!(talk.order.is_sorted(), "{:?}", talk.order);
        let counters = talk.counters_of_client();
        assert_eq!(
            (counters.sent, counters.sent_in_stream, counters.lost, counters.unreported),
            (500, 0, 0, 0)
        );
        let counters = talk.counters_of_server();
        assert_eq!((counters.received, counters.repeated, counters.forged), (500, 0, 0));
    }
}

#[test]
fn nothing_is_sent_to_a_peer_that_does_not_take_datagrams() {
    for (client, server) in [(with_datagrams(), sealed()), (sealed(), with_datagrams())] {
        let mut pair = pair_over_udp(1, 1);
        pair.serve(&server, idle(0));
        let id = pair.open(&client, idle(0));
        pair.world.run_for(SECOND);
        let opened = pair.world.with_endpoint(pair.client, |now, endpoint| {
            endpoint.open_flow(now, id, Bytes::new(), PathChoice::Fastest)
        });
        assert_eq!(opened, Err(FlowError::Unsupported));
    }
}

#[test]
fn paths_that_lose_reorder_and_duplicate_cost_datagrams_and_nothing_else() {
    for seed in 0..6 {
        let choice = [PathChoice::Fastest, PathChoice::Duplicate, PathChoice::Spread][seed as usize % 3];
        let mut pair = pair_over_udp(seed, 2);
        let model = LinkConfig {
            loss: Loss::Bernoulli { probability: 0.1 },
            reordering: Reordering { probability: 0.2, extra_delay: Duration::from_millis(30) },
            duplication: 0.2,
            ..plain_link()
        };
        pair.link(0, model.clone());
        pair.link(1, model);
        let mut talk = Talk::begin(pair, 1 << 20, choice);
        let delays = talk.speak(400, Duration::from_millis(5), 40 + 200 * seed as usize);
        // One in ten is lost, and losses make the window small: some never leave.
        assert!(delays.len() >= 200, "{choice}: {}", delays.len());
        assert!(talk.counters_of_server().repeated > 0);
        talk.run_for(30 * SECOND);
        assert_eq!(talk.heard(), 1 << 20, "the stream goes on");
    }
}

#[test]
fn stripped_options_leave_the_stream_and_the_datagrams_of_the_other_path() {
    let mut pair = pair_over_udp(2, 2);
    let stripper = Stripper::kind(Moment::Always, 30).since(pair.in_time(2 * SECOND));
    pair.chain(0, vec![Box::new(stripper), Box::new(Link::new(plain_link(), 3))]);
    let mut talk = Talk::begin(pair, 1 << 20, PathChoice::Fastest);
    let delays = talk.speak(1000, TICK, 100);
    assert!(delays.len() > 800, "{}", delays.len());
    assert_eq!(talk.heard(), 1 << 20);
}

#[test]
fn an_attacker_on_one_path_repeats_alters_and_forges_nothing() {
    for seed in 0..9 {
        let choice = [PathChoice::Fastest, PathChoice::Duplicate, PathChoice::Spread][seed as usize % 3];
        let mut pair = pair_over_udp(seed, 2);
        let attacker = Attacker::new(seed, seed % 2 == 0);
        pair.chain(0, vec![Box::new(attacker), Box::new(Link::new(plain_link(), seed))]);
        let mut talk = Talk::begin(pair, 1 << 20, choice);
        let delays = talk.speak(500, Duration::from_millis(10), 300);
        let counters = talk.counters_of_server();
        assert!(counters.forged > 0 || choice == PathChoice::Fastest, "{counters:?}");
        if choice == PathChoice::Duplicate {
            assert_eq!(delays.len(), 500, "the other path has carried all");
        }
        talk.run_for(10 * SECOND);
        assert_eq!(talk.heard(), 1 << 20, "the stream goes on");
        let status = talk.pair.world.endpoint(talk.pair.server).status(talk.pair.world.now(), talk.server);
        let status = status.expect("it is open");
        assert_eq!(
            status.counters.attacked_closed + status.counters.guessed_closed,
            0,
            "no subflow paid for it"
        );
    }
}

#[test]
fn duplicates_lose_nothing_when_a_path_is_cut() {
    let mut talk = Talk::begin(pair_over_udp(4, 2), 0, PathChoice::Duplicate);
    let mut delays = talk.speak(100, TICK, 160);
    let cut = LinkConfig { loss: Loss::Bernoulli { probability: 1.0 }, ..plain_link() };
    talk.pair.link(0, cut);
    delays.extend(talk.speak(1000, TICK, 160));
    assert_eq!(delays.len(), 1100);
    assert!(delays.iter().all(|delay| *delay < Duration::from_millis(30)), "{:?}", delays.iter().max());
}

#[test]
fn the_fastest_path_that_is_cut_is_left_without_a_stream_that_notices() {
    let mut talk = Talk::begin(pair_over_udp(5, 2), 0, PathChoice::Fastest);
    assert_eq!(talk.speak(100, TICK, 160).len(), 100);
    let status = talk.pair.world.endpoint(talk.pair.client).status(talk.pair.world.now(), talk.client);
    let used = status.and_then(|status| status.datagrams).expect("it has sent some").subflows[0].path;
    let cut = LinkConfig { loss: Loss::Bernoulli { probability: 1.0 }, ..plain_link() };
    talk.pair.link(usize::from(used.0), cut);
    let delays = talk.speak(500, TICK, 160);
    assert!(delays.len() > 400, "at most two seconds of voice are lost: {}", delays.len());
}

#[test]
fn voice_beside_a_bulk_stream_has_a_bounded_delay() {
    let mut pair = pair_over_udp(6, 1);
    let model = LinkConfig { rate: megabits(10), ..plain_link() };
    pair.link(0, model);
    let mut talk = Talk::begin(pair, 64 << 20, PathChoice::Fastest);
    talk.run_for(3 * SECOND);
    let before = talk.heard();
    let started = talk.pair.world.now();
    let delays = talk.speak(500, TICK, 160);
    let took = talk.pair.world.now().saturating_since(started);
    let (median, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    let rate = (talk.heard() - before) as f64 * 8.0 / took.as_secs_f64() / 1e6;
    println!(
        "voice: {} of 500, median {median:?}, worst {worst:?}; the stream {rate:.1} of 10 Mbit/s",
        delays.len()
    );
    assert!(delays.len() >= 475, "{}", delays.len());
    // The queue of the link, full of the stream, is the longest part.
    assert!(worst < Duration::from_millis(400), "{worst:?}");
    assert!(rate > 7.0, "{rate}");
}

#[test]
fn a_peer_that_never_reports_does_not_stop_the_stream() {
    for (seed, len) in [(7, 0), (8, 1200)] {
        let mut pair = pair_over_udp(seed, 1);
        pair.chain(
            0,
            vec![
                Box::new(NoReports),
                Box::new(Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, seed)),
            ],
        );
        let mut talk = Talk::begin(pair, 8 << 20, PathChoice::Fastest);
        for _ in 0..1000 {
            talk.send(len);
        }
        talk.run_for(20 * SECOND);
        assert_eq!(talk.heard(), 8 << 20, "{:?}", talk.counters_of_client());
        let counters = talk.counters_of_client();
        assert!(counters.unreported > 0 && counters.sent > 20, "{counters:?}");
    }
}

/// Drops each segment with a report.
struct NoReports;

impl Element for NoReports {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if !frame.segment().is_some_and(|segment| is_report(&segment)) {
            out.push(now, direction, frame);
        }
    }
}

#[test]
fn long_datagrams_arrive_whole_or_not_at_all() {
    let mut pair = pair_over_udp(9, 2);
    pair.link(0, LinkConfig { loss: Loss::Bernoulli { probability: 0.05 }, ..plain_link() });
    let mut talk = Talk::begin(pair, 0, PathChoice::Spread);
    let (id, flow) = (talk.client, talk.flow);
    let longest = talk.pair.world.endpoint(talk.pair.client).longest_datagram(id, flow);
    assert!((1380..1450).contains(&longest), "{longest}");
    let delays = talk.speak(300, TICK, 3 * longest + 7);
    assert!((200..300).contains(&delays.len()), "{}", delays.len());
    let too_long = talk.pair.world.with_endpoint(talk.pair.client, |now, endpoint| {
        endpoint.send_datagram(now, id, flow, 0, Bytes::from(vec![0; 4 * longest + 1]))
    });
    assert_eq!(too_long, Err(DatagramRefused::TooLong { longest: 4 * longest }));
}

#[test]
fn where_no_path_carries_datagrams_they_go_in_the_stream() {
    let mut talk = Talk::begin(Pair::new(10, 2, Families::V4), 0, PathChoice::Fastest);
    let delays = talk.speak(200, TICK, 700);
    assert_eq!(delays.len(), 200);
    assert!(talk.order.is_sorted());
    let counters = talk.counters_of_client();
    assert_eq!((counters.sent, counters.sent_in_stream), (0, 200));
    // What the stream cannot take in time is dropped.
    for path in 0..2 {
        talk.pair.link(path, LinkConfig { loss: Loss::Bernoulli { probability: 1.0 }, ..plain_link() });
    }
    talk.speak(300, TICK, 700);
    assert!(talk.counters_of_client().dropped_waiting > 0 || talk.counters_of_client().dropped_full > 0);
}

#[test]
fn nothing_arrives_in_a_flow_that_has_ended() {
    let mut pair = pair_over_udp(11, 2);
    // The second path is slow: its datagrams arrive after the end.
    pair.link(1, LinkConfig { delay: Duration::from_millis(200), ..plain_link() });
    let mut talk = Talk::begin(pair, 0, PathChoice::Spread);
    talk.speak(50, TICK, 100);
    for _ in 0..20 {
        talk.send(100);
    }
    talk.pair.world.run_for(Duration::from_millis(5));
    let (client, server, flow) = (talk.client, talk.server, talk.flow);
    talk.pair.world.with_endpoint(talk.pair.client, |now, endpoint| endpoint.close_flow(now, client, flow));
    talk.run_for(SECOND);
    let counters = talk.counters_of_server();
    assert!(counters.late > 0, "{counters:?}");
    talk.pair.world.with_endpoint(talk.pair.server, |now, endpoint| {
        assert_eq!(endpoint.receive_datagram(server, flow), Err(FlowEnded));
        endpoint.close_flow(now, server, flow);
    });
    let refused = talk.pair.world.with_endpoint(talk.pair.client, |now, endpoint| {
        endpoint.send_datagram(now, client, flow, 0, Bytes::new())
    });
    assert_eq!(refused, Err(DatagramRefused::Ended));
    let next = talk.pair.world.with_endpoint(talk.pair.client, |now, endpoint| {
        endpoint.open_flow(now, client, Bytes::new(), PathChoice::Fastest)
    });
    assert!(next.is_ok_and(|next| next != flow), "no number is used again");
}

#[test]
fn keys_change_under_datagrams_and_none_is_lost() {
    let mut talk = Talk::begin(pair_over_udp(12, 2), 0, PathChoice::Duplicate);
    // Shares of both paths mix into the keys each two minutes of bytes.
    let mut delays = 0;
    for _ in 0..5 {
        delays += talk.speak(60, Duration::from_millis(100), 100).len();
        talk.run_for(30 * SECOND);
    }
    assert_eq!(delays, 300);
}
