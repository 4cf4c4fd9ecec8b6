//! A bottleneck that marks where its queue is long, with two ends that count marks (RFC 9768).

mod pair;

use pair::{Pair, Path, loss, plain_link};
use plait_base::Duration;
use plait_link::{LinkConfig, Reordering, megabits};
use plait_tcp::{Config, Ecn};

const BYTES: usize = 40_000_000;

/// 100 Mbit/s and 40 ms: 500,000 bytes are a round trip's.
fn bottleneck() -> LinkConfig {
    LinkConfig { delay: Duration::from_millis(20), rate: megabits(100), queue_limit: 500_000, ..plain_link() }
}

/// Marks from a quarter of the queue on. Returns the pair and its rate in Mbit/s.
fn transfer(path: &Path, ecn: Ecn) -> (Pair, f64) {
    let asks = Config { ecn, ..Config::default() };
    let mut pair = Pair::established(5, asks, path);
    pair.marks_from = Some(125_000);
    let took = pair.transfer(BYTES, 64_000, Duration::from_secs(120));
    (pair, BYTES as f64 * 8e-6 / took.as_secs_f64())
}

#[test]
fn each_mark_is_told_of_and_nothing_is_lost() {
    let path = Path::of(bottleneck());
    let (mut pair, rate) = transfer(&path, Ecn::Ask);
    let (ours, theirs) = (pair.a.tcp.stats(), pair.b().tcp.stats());
    assert!(ours.accurate_ecn && theirs.accurate_ecn);
    assert!(theirs.marks_received > 10, "{theirs:?}");
    assert_eq!(ours.marks_told, theirs.marks_received);
    assert_eq!((ours.segments_lost, ours.bytes_retransmitted), (0, 0));
    assert!(ours.mark_reductions > 1 && ours.mark_reductions < ours.marks_told, "{ours:?}");
    let (without, rate_without) = transfer(&path, Ecn::Off);
    assert!(without.a.tcp.stats().segments_lost > 0, "the queue is full at times");
    assert!(rate > 0.9 * rate_without, "{rate} Mbit/s, and {rate_without} without");
}

#[test]
fn counts_that_are_lost_or_overtaken_are_made_up_for_by_the_next() {
    let late = Reordering { probability: 0.2, extra_delay: Duration::from_millis(8) };
    for backward in
        [LinkConfig { loss: loss(300.0), ..bottleneck() }, LinkConfig { reordering: late, ..bottleneck() }]
    {
        let (mut pair, rate) = transfer(&Path { backward, ..Path::of(bottleneck()) }, Ecn::Ask);
        let (told, marked) = (pair.a.tcp.stats().marks_told, pair.b().tcp.stats().marks_received);
        assert!(marked > 10 && told <= marked, "{told} of {marked}");
        assert_eq!(told % 8, marked % 8, "what is missing has gone round: {told} of {marked}");
        assert!(rate > 60.0, "{rate} Mbit/s");
    }
}

#[test]
fn a_path_that_marks_everything_is_no_longer_listened_to() {
    let mut pair =
        Pair::established(6, Config { ecn: Ecn::Ask, ..Config::default() }, &Path::of(bottleneck()));
    pair.marks_from = Some(0);
    let took = pair.transfer(BYTES, 64_000, Duration::from_secs(120));
    let rate = BYTES as f64 * 8e-6 / took.as_secs_f64();
    let stats = pair.a.tcp.stats();
    assert!(stats.marks_told > 8 && !stats.ecn, "{stats:?}");
    assert!(rate > 30.0, "{rate} Mbit/s");
}
