//! The choice between CUBIC and BBR: by losses that come with a queue or without one.

mod pair;

use pair::{Pair, Path, loss, plain_link, record};
use plait_base::Duration;
use plait_link::{LinkConfig, megabits};
use plait_tcp::Config;
use plait_tcp::congestion::Algorithm;

/// 50 Mbit/s and 20 ms: 125 kB on their way.
const RATE: u64 = 50;
const PRODUCT: u64 = 125_000;
const RECORD: usize = 60_000;

/// A bottleneck with so many bandwidth-delay products of queue, which loses so many in a thousand.
fn bottleneck(queue: f64, per_mille: f64) -> Path {
    let queue_limit = (PRODUCT as f64 * queue) as u64;
    let loss = loss(per_mille);
    let forward = LinkConfig { rate: megabits(RATE), queue_limit, loss, ..plain_link() };
    Path { forward, backward: plain_link(), merge: false }
}

fn sender(congestion: Algorithm, path: &Path) -> Pair {
    Pair::established(7, Config { congestion, ..Config::default() }, path)
}

/// Sends as much as leaves, for so long. Returns the goodput as a part of the rate, and the part of the time with BBR.
fn run(pair: &mut Pair, given: &mut usize, millis: u64) -> (f64, f64) {
    let before = pair.a.tcp.acked_offset();
    let mut with_bbr = 0;
    for _ in 0..millis {
        while pair.a.tcp.unsent() < 2 * RECORD {
            pair.a.tcp.send(record(*given, RECORD));
            *given += RECORD;
        }
        pair.run_for(Duration::from_millis(1));
        with_bbr += u64::from(pair.a.tcp.congestion().own_rate().is_some());
    }
    let bytes = pair.a.tcp.acked_offset() - before;
    (bytes as f64 / (millis as f64 * (RATE * 125) as f64), with_bbr as f64 / millis as f64)
}

#[test]
fn losses_by_chance_bring_bbr_and_most_of_the_rate() {
    for per_mille in [5.0, 20.0] {
        let path = bottleneck(1.0, per_mille);
        let (mut pair, mut given) = (sender(Algorithm::Adaptive, &path), 0);
        run(&mut pair, &mut given, 1000);
        let (goodput, with_bbr) = run(&mut pair, &mut given, 8000);
        println!("{per_mille} of a thousand: {goodput:.2} of the rate, with BBR for {with_bbr:.2}");
        assert!(goodput > 0.75 && with_bbr > 0.8, "{goodput} of the rate, with BBR for {with_bbr}");
        let (mut cubic, mut given) = (sender(Algorithm::Cubic, &path), 0);
        run(&mut cubic, &mut given, 1000);
        let (goodput, _) = run(&mut cubic, &mut given, 8000);
        assert!(goodput < 0.5, "CUBIC: {goodput}");
    }
}

#[test]
fn a_queue_that_overflows_keeps_cubic() {
    for queue in [0.25, 0.5, 1.0, 4.0] {
        let (mut pair, mut given) = (sender(Algorithm::Adaptive, &bottleneck(queue, 0.0)), 0);
        let (goodput, with_bbr) = run(&mut pair, &mut given, 20_000);
        println!("queue of {queue}: {goodput:.2} of the rate, with BBR for {with_bbr:.2}");
        assert_eq!(with_bbr, 0.0, "{queue}");
        assert!(goodput > 0.85, "{queue}: {goodput}");
    }
}

#[test]
fn cubic_comes_back_when_nothing_is_lost_by_chance_any_more_and_carries_on_at_the_rate() {
    let (mut pair, mut given) = (sender(Algorithm::Adaptive, &bottleneck(1.0, 20.0)), 0);
    run(&mut pair, &mut given, 3000);
    pair.set_path(&bottleneck(1.0, 0.0));
    run(&mut pair, &mut given, 25_000);
    let (goodput, with_bbr) = run(&mut pair, &mut given, 10_000);
    assert!(goodput > 0.85 && with_bbr == 0.0, "{goodput} of the rate, with BBR for {with_bbr}");
}
