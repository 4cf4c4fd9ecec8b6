//! The delivery rate of the path, as a connection measures it.

mod pair;

use pair::{Pair, Path, loss, plain_link, record};
use plait_base::Duration;
use plait_link::{LinkConfig, megabits};
use plait_tcp::Config;

/// 10 Mbit/s and 40 ms, with a queue that holds 100 ms of it.
fn bottleneck() -> LinkConfig {
    LinkConfig { delay: Duration::from_millis(20), rate: megabits(10), queue_limit: 125_000, ..plain_link() }
}

/// Payload in Mbit/s.
fn delivery_rate(pair: &Pair) -> f64 {
    let rate = pair.a.tcp.stats().delivery_rate.unwrap_or(0);
    rate as f64 / 125_000.0
}

#[test]
fn a_transfer_shows_the_rate_of_its_bottleneck() {
    for per_mille in [0.0, 10.0] {
        let forward = LinkConfig { loss: loss(per_mille), ..bottleneck() };
        let path = Path { forward, backward: bottleneck(), merge: false };
        let mut pair = Pair::established(7, Config::default(), &path);
        let (mut known, mut given) = (Vec::new(), 0);
        for _ in 0..300 {
            while pair.a.tcp.unsent() < 40_000 {
                pair.a.tcp.send(record(given, 20_000));
                given += 20_000;
            }
            pair.drain_both();
            pair.run_for(Duration::from_millis(10));
            known.push(delivery_rate(&pair));
        }
        println!("{per_mille} per mille lost: {known:.1?}");
        let most = known.iter().copied().fold(0.0, f64::max);
        assert!(most > 8.0, "{known:.1?}");
        assert!(most <= 10.0, "more than the path can: {known:.1?}");
    }
}

#[test]
fn a_trickle_after_a_transfer_says_nothing_against_the_path() {
    let mut pair = Pair::established(7, Config::default(), &Path::of(bottleneck()));
    pair.transfer(2_000_000, 20_000, Duration::from_secs(60));
    let before = delivery_rate(&pair);
    for step in 0..50 {
        pair.a.tcp.send(record(2_000_000 + step * 100, 100));
        pair.drain_both();
        pair.run_for(Duration::from_millis(100));
    }
    assert!(delivery_rate(&pair) >= before, "{} after {before}", delivery_rate(&pair));
}
