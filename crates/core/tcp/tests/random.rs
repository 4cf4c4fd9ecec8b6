//! Random configurations, paths and operations, both ways at once: every byte arrives once and in order, each
//! record keeps its options, both ends agree on how it ended, and nothing is left running.

#![allow(clippy::disallowed_methods, reason = "the environment says how many seeds to run")]

mod pair;

use bytes::Bytes;
use core::num::NonZeroU64;
use pair::{ISN_A, ISN_B, Pair, Path, Side, pattern, plain_link};
use plait_base::{Duration, Random, SeededRandom, SeqNum};
use plait_link::{LinkConfig, Loss, Reordering};
use plait_tcp::congestion::Algorithm;
use plait_tcp::{Closed, Config, Record, State};
use plait_wire::{Flags, OptionBytes, Segment};

fn config(random: &mut SeededRandom) -> Config {
    let algorithms = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia, Algorithm::Bbr];
    Config {
        mtu: 600 + random.below(900) as u16,
        max_receive_window: 4000 << random.below(10),
        timestamps: random.chance(0.7),
        sack: random.chance(0.8),
        no_delay: random.chance(0.5),
        congestion: algorithms[random.below(algorithms.len() as u64) as usize],
        pacing: random.chance(0.5),
        max_super_segment: if random.chance(0.3) { 100 } else { 64_768 },
        retries: 30,
        syn_retries: 30,
        ..Config::default()
    }
}

fn path(random: &mut SeededRandom) -> Path {
    let share = |random: &mut SeededRandom, of: u64| random.below(of) as f64 / 1000.0;
    let rate = if random.chance(0.5) { 0 } else { 800_000 + random.below(80_000_000) };
    let link = LinkConfig {
        delay: Duration::from_micros(10 + random.below(40_000)),
        rate: NonZeroU64::new(rate),
        queue_limit: 5_000 + random.below(200_000),
        reordering: Reordering {
            probability: share(random, 200),
            extra_delay: Duration::from_micros(random.below(20_000)),
        },
        duplication: share(random, 50),
        ..plain_link()
    };
    let mut lossy = |of: u64| {
        // Trains that are not lost arrive merged.
        let probability = if random.chance(0.3) { 0.0 } else { share(random, of) };
        let loss = if probability > 0.0 { Loss::Bernoulli { probability } } else { Loss::None };
        LinkConfig { loss, ..link.clone() }
    };
    let (forward, backward) = (lossy(80), lossy(100));
    Path { forward, backward, merge: random.chance(0.5) }
}

/// Record number `n` of `len` bytes, marked with its number if `marked`.
fn record(n: usize, len: usize, marked: bool, total: usize) -> Record {
    let from = n * len;
    let payload: Bytes = pattern(from, len.min(total - from));
    let mark = [254, 4, (n >> 8) as u8, n as u8];
    let options = if marked { mark.into_iter().collect() } else { OptionBytes::new() };
    Record { payload, options, push: n.is_multiple_of(7) }
}

/// Each wire segment lies in the record whose mark it carries.
fn check_mark(isn: u32, len: usize, segment: &Segment) {
    if segment.payload.is_empty() || segment.flags.contains(Flags::SYN) {
        return;
    }
    let stamps = if segment.options.first() == Some(&1) { 12 } else { 0 };
    let [254, 4, high, low, ref more @ ..] = segment.options[stamps..] else { panic!("a mark: {segment:?}") };
    let n = usize::from(high) << 8 | usize::from(low);
    assert!(matches!(more, [] | [1, 1, 5, ..]), "nothing else but SACK blocks: {segment:?}");
    let from = segment.seq.distance(SeqNum::new(isn)) as usize - 1;
    assert!(from >= n * len && from + segment.payload.len() <= (n + 1) * len, "record {n}");
}

struct Plan {
    len: [usize; 2],
    total: [usize; 2],
    given: [usize; 2],
    marked: bool,
}

impl Plan {
    fn new(random: &mut SeededRandom) -> Self {
        let len = [1 + random.below(20_000) as usize, 1 + random.below(3_000) as usize];
        let total = [random.below(150_000) as usize, random.below(60_000) as usize];
        let given = [0, 0];
        Self { len, total, given, marked: random.chance(0.5) }
    }

    /// Gives one end what it has room for, and finishes after the last.
    fn feed(&mut self, side: usize, pair: &mut Pair) {
        let tcp = if side == 0 { &mut pair.a.tcp } else { &mut pair.b().tcp };
        let (len, total) = (self.len[side], self.total[side]);
        while self.given[side] < total && tcp.unsent() < 10_000 {
            let n = self.given[side] / len;
            let record = record(n, len, self.marked, total);
            self.given[side] += record.payload.len();
            tcp.send(record);
        }
        if self.given[side] == total {
            tcp.finish();
        }
    }
}

fn run(seed: u64) {
    let mut random = SeededRandom::from_number(seed);
    let (config_a, config_b, path) = (config(&mut random), config(&mut random), path(&mut random));
    let mut plan = Plan::new(&mut random);
    let mut pair = Pair::with(seed, config_a, config_b, &path);
    let (marked, len) = (plan.marked, plan.len);
    pair.filter = Box::new(move |side, segment| {
        if marked {
            match side {
                Side::A => check_mark(ISN_A, len[0], segment),
                Side::B => check_mark(ISN_B, len[1], segment),
            }
        }
        true
    });
    let end = pair.now + Duration::from_secs(3600);
    while pair.b.is_none() {
        assert!(pair.step(end), "seed {seed}: no handshake");
    }
    loop {
        plan.feed(0, &mut pair);
        plan.feed(1, &mut pair);
        if random.chance(0.02) {
            let window = random.next_u32() % 100_000;
            pair.b().tcp.set_receive_window(window);
        }
        if !pair.step(end) {
            break;
        }
        if random.chance(0.05) {
            pair.b().tcp.set_receive_window(u32::MAX);
        }
    }
    let (a, b) = (&pair.a, pair.b.as_ref().expect("accepted"));
    let figures = || format!("seed {seed}\n{:?}\n{:?}", a.tcp.stats(), b.tcp.stats());
    assert!(b.received == pattern(0, plan.total[0])[..], "{} at B, {}", b.received.len(), figures());
    assert!(a.received == pattern(0, plan.total[1])[..], "{} at A, {}", a.received.len(), figures());
    assert_eq!((a.tcp.state(), b.tcp.state()), (State::Closed, State::Closed), "{}", figures());
    let ends = [a.closed(), b.closed()];
    // The last ACK may be lost for good once the other side has left TIME-WAIT.
    assert!(ends.contains(&Some(Closed::Finished)), "{ends:?} {}", figures());
    assert_eq!((a.tcp.poll_timeout(), b.tcp.poll_timeout()), (None, None));
}

#[test]
fn random_connections_deliver_everything_and_end() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        run(seed);
    }
}
