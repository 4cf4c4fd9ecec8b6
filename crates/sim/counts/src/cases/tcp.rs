//! One subflow alone: two TCP connections back to back.

use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::{Config, Connection, FourTuple, Isn, Record};
use plait_wire::{OptionBytes, Segment};

use super::{Case, ROUNDS, SEGMENT, SUPER_SEGMENT, Step, WARM_UP};
use crate::gauge::Gauge;

pub(super) const CASES: &[Case] = &[
    ("segment-out", |gauge| transfer(gauge, BURSTS, SEGMENT, Step::Out)),
    ("segment-in", |gauge| transfer(gauge, BURSTS, SEGMENT, Step::In)),
    ("ack-in", |gauge| transfer(gauge, BURSTS, SEGMENT, Step::Ack)),
    ("super-segment-out", |gauge| transfer(gauge, BURSTS, SUPER_SEGMENT, Step::Out)),
    ("super-segment-in", |gauge| transfer(gauge, BURSTS, SUPER_SEGMENT, Step::In)),
    ("super-segment-ack-in", |gauge| transfer(gauge, BURSTS, SUPER_SEGMENT, Step::Ack)),
    ("paced-segment-out", |gauge| transfer(gauge, PACED, SEGMENT, Step::Out)),
    ("paced-ack-in", |gauge| transfer(gauge, PACED, SEGMENT, Step::Ack)),
    ("syn-in", syn_in),
];

/// When segments leave.
#[derive(Clone, Copy)]
struct Departures {
    pacing: bool,
    /// Between two of them.
    gap: Duration,
}

/// As they come: their turn by pacing would part what is counted together.
const BURSTS: Departures = Departures { pacing: false, gap: Duration::ZERO };
/// Each when it is its turn.
const PACED: Departures = Departures { pacing: true, gap: Duration::from_millis(2) };

/// One way.
const DELAY: Duration = Duration::from_millis(5);

/// Records of `length` bytes go in pairs, each pair acknowledged before the next.
fn transfer(gauge: &mut Gauge, departures: Departures, length: usize, step: Step) {
    let mut pair = Pair::connected(&Config { pacing: departures.pacing, ..Config::default() });
    let record = Record { payload: vec![7; length].into(), options: opaque(), push: true };
    for _ in 0..WARM_UP {
        for _ in 0..4 {
            pair.sender.send(record.clone());
        }
        pair.settle();
    }
    for _ in 0..ROUNDS {
        let Pair { sender, receiver, now } = &mut pair;
        let segments: Vec<_> = [record.clone(), record.clone()]
            .into_iter()
            .flat_map(|record| {
                *now += departures.gap;
                gauge.count_if(step == Step::Out, || {
                    sender.send(record);
                    drain(sender, *now)
                })
            })
            .collect();
        assert_eq!(segments.len(), 2);
        *now += DELAY;
        let answers: Vec<_> = segments
            .iter()
            .flat_map(|segment| {
                gauge.count_if(step == Step::In, || {
                    receiver.handle_segment(*now, segment);
                    while receiver.read().is_some() {}
                    drain(receiver, *now)
                })
            })
            .collect();
        *now += DELAY;
        for answer in &answers {
            gauge.count_if(step == Step::Ack, || {
                sender.handle_segment(*now, answer);
                assert!(drain(sender, *now).is_empty());
            });
        }
        pair.settle();
    }
}

/// A SYN makes a connection and is answered.
fn syn_in(gauge: &mut Gauge) {
    let now = Instant::from_millis(1000);
    let mut opener = Connection::connect(now, Config::default(), tuple(), isn(1));
    let syn = drain(&mut opener, now).remove(0);
    for _ in 0..ROUNDS {
        let answers = gauge.count(|| {
            let mut connection = Connection::accept(now, Config::default(), &syn, isn(2));
            drain(&mut connection, now)
        });
        assert_eq!(answers.len(), 1, "the SYN/ACK");
    }
}

/// All results of a change to `tcp`, polled as its owner must.
fn drain(tcp: &mut Connection, now: Instant) -> Vec<Segment> {
    let segments = core::iter::from_fn(|| tcp.poll_transmit(now, &mut ())).collect();
    while tcp.poll_event().is_some() {}
    core::hint::black_box(tcp.poll_timeout());
    segments
}

/// Two connections that send to each other without a network.
struct Pair {
    sender: Connection,
    receiver: Connection,
    now: Instant,
}

impl Pair {
    fn connected(config: &Config) -> Self {
        let mut now = Instant::from_millis(1000);
        let mut sender = Connection::connect(now, config.clone(), tuple(), isn(u32::MAX - 100_000));
        let syn = drain(&mut sender, now).remove(0);
        now += DELAY;
        let mut receiver = Connection::accept(now, config.clone(), &syn, isn(2));
        let answer = drain(&mut receiver, now).remove(0);
        now += DELAY;
        sender.handle_segment(now, &answer);
        let mut pair = Self { sender, receiver, now };
        pair.settle();
        pair
    }

    /// Lets them talk until they have nothing to say, and until no acknowledgment is held back any more.
    fn settle(&mut self) {
        let Self { sender, receiver, now } = self;
        let mut last_round = false;
        loop {
            let segments = drain(sender, *now);
            *now += DELAY;
            for segment in &segments {
                receiver.handle_segment(*now, segment);
            }
            while receiver.read().is_some() {}
            let answers = drain(receiver, *now);
            *now += DELAY;
            for answer in &answers {
                sender.handle_segment(*now, answer);
            }
            if !segments.is_empty() || !answers.is_empty() {
                last_round = false;
            } else if last_round {
                return;
            } else {
                last_round = true;
                *now += Duration::from_millis(50);
                receiver.handle_timeout(*now);
                sender.handle_timeout(*now);
            }
        }
    }
}

/// Options as Multipath TCP adds them to each segment with data: 20 bytes.
fn opaque() -> OptionBytes {
    [254, 20, 0, 0].into_iter().chain([0; 16]).collect()
}

fn tuple() -> FourTuple {
    let at = |text: &str| text.parse().expect("an address");
    FourTuple { local: at("192.0.2.1:40000"), remote: at("192.0.2.2:443") }
}

fn isn(seq: u32) -> Isn {
    Isn { seq: SeqNum::new(seq), timestamp_offset: 0, label_seed: 0 }
}
