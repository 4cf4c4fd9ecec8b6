//! Streams over paths that misbehave: every byte arrives, in order and once.

mod pair;

use pair::{Pair, Path, loss, plain_link};
use plait_base::Duration;
use plait_link::{LinkConfig, Reordering};
use plait_tcp::{Closed, Config, State};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_stream_arrives_over_a_quiet_path_without_a_retransmission() {
    let mut pair = Pair::established(1, Config::default(), &Path::of(plain_link()));
    pair.transfer(3_000_000, 60_000, MINUTE);
    let stats = pair.a.tcp.stats();
    assert_eq!(stats.bytes_retransmitted, 0, "{stats:?}");
    assert_eq!(stats.bytes_sent, 3_000_000);
    assert_eq!(pair.b().tcp.stats().bytes_received, 3_000_000);
}

#[test]
fn a_stream_survives_loss_reordering_and_repetition() {
    for seed in 0..30 {
        let forward = LinkConfig {
            loss: loss(30.0),
            reordering: Reordering { probability: 0.1, extra_delay: Duration::from_millis(5) },
            duplication: 0.05,
            ..plain_link()
        };
        let backward = LinkConfig { loss: loss(100.0), ..forward.clone() };
        let path = Path { forward, backward, merge: false };
        let mut pair = Pair::established(seed, Config::default(), &path);
        pair.transfer(400_000, 1 + 977 * (seed as usize + 1), 5 * MINUTE);
    }
}

#[test]
fn a_stream_arrives_without_sack_and_without_timestamps() {
    for seed in 0..30 {
        let config = Config { sack: seed % 2 == 0, timestamps: seed % 3 == 0, ..Config::default() };
        let reordering = Reordering { probability: 0.03, extra_delay: Duration::from_millis(5) };
        let path = Path::of(LinkConfig { loss: loss(30.0), reordering, ..plain_link() });
        let mut pair = Pair::established(seed, config, &path);
        pair.transfer(300_000, 30_000, 10 * MINUTE);
    }
}

#[test]
fn a_thousand_holes_in_one_window_are_repaired_in_a_few_round_trips() {
    let path = Path::of(LinkConfig { delay: Duration::from_millis(50), ..plain_link() });
    let mut pair = Pair::established(9, Config { initial_window: 250, ..Config::default() }, &path);
    pair.transfer(12_000_000, 2_000_000, MINUTE);
    let in_flight = pair.a.tcp.congestion().window() / 1448;
    let (mut furthest, mut count) = (None, 0);
    pair.filter = Box::new(move |_, segment| {
        let first = furthest.is_none_or(|at| segment.seq.is_after(at));
        if segment.payload.is_empty() || !first || count == in_flight {
            return true;
        }
        furthest = Some(segment.seq);
        count += 1;
        count % 10 != 0
    });
    let took = pair.transfer(15_000_000, 2_000_000, MINUTE);
    let stats = pair.a.tcp.stats();
    assert!(stats.bytes_retransmitted > 1_000_000, "{stats:?}");
    assert!(stats.bytes_retransmitted < 2_500_000, "little is sent without need: {stats:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn both_sides_finish_and_one_waits() {
    let mut pair = Pair::established(3, Config::default(), &Path::of(plain_link()));
    pair.transfer(10_000, 5_000, MINUTE);
    pair.a.tcp.finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!((pair.a.tcp.state(), pair.b().tcp.state()), (State::FinWait2, State::CloseWait));
    pair.b().tcp.finish();
    pair.run_for(Duration::from_millis(100));
    assert_eq!((pair.a.tcp.state(), pair.b().tcp.state()), (State::TimeWait, State::Closed));
    assert_eq!((pair.a.closed(), pair.b().closed()), (Some(Closed::Finished), Some(Closed::Finished)));
    pair.run_for(2 * MINUTE);
    assert_eq!(pair.a.tcp.state(), State::Closed);
    assert_eq!(pair.a.tcp.poll_timeout(), None);
}
