//! Goodput of one connection over a path of 100 Mbit/s and 40 ms, printed as a table
//! (`cargo test -p plait-tcp --test goodput -- --nocapture`) and held to a floor.

mod pair;

use pair::{Pair, Path, loss, plain_link};
use plait_base::Duration;
use plait_link::{LinkConfig, Reordering, megabits};
use plait_tcp::Config;
use plait_tcp::congestion::Algorithm;

/// Bytes per second.
const RATE: u64 = 12_500_000;

struct Row {
    what: &'static str,
    config: Config,
    path: Path,
    /// Share of the rate that it must reach.
    floor: f64,
}

fn rows() -> Vec<Row> {
    let link = || LinkConfig {
        delay: Duration::from_millis(20),
        rate: megabits(100),
        queue_limit: 500_000,
        ..plain_link()
    };
    let row = |what, path, floor| Row { what, config: Config::default(), path, floor };
    let both = |what, link, floor| row(what, Path::of(link), floor);
    let bursts = Config { pacing: false, ..Config::default() };
    let reno = Config { congestion: Algorithm::NewReno, ..Config::default() };
    let late = Reordering { probability: 0.1, extra_delay: Duration::from_millis(5) };
    let shallow = LinkConfig { queue_limit: 125_000, ..link() };
    let lossy_back = LinkConfig { loss: loss(500.0), ..link() };
    vec![
        both("no loss but its own", link(), 0.55),
        both("0.01 % loss", LinkConfig { loss: loss(0.1), ..link() }, 0.5),
        both("0.1 % loss", LinkConfig { loss: loss(1.0), ..link() }, 0.1),
        both("1 % loss", LinkConfig { loss: loss(10.0), ..link() }, 0.02),
        both("10 % late by 5 ms", LinkConfig { reordering: late, ..link() }, 0.55),
        both("5 % twice", LinkConfig { duplication: 0.05, ..link() }, 0.5),
        row("half of the acknowledgments lost", Path { backward: lossy_back, ..Path::of(link()) }, 0.5),
        Row { what: "NewReno", config: reno, path: Path::of(link()), floor: 0.5 },
        Row { what: "not paced", config: bursts.clone(), path: Path::of(link()), floor: 0.5 },
        both("a queue of a quarter BDP", shallow.clone(), 0.68),
        Row { what: "the same, not paced", path: Path::of(shallow), config: bursts, floor: 0.5 },
    ]
}

#[test]
fn goodput_under_loss_reordering_and_repetition() {
    println!("{:<34}{:>9}{:>9}{:>7}{:>6}{:>9}", "path", "Mbit/s", "again %", "lost", "undo", "RTO");
    for Row { what, config, path, floor } in rows() {
        // Of three runs the middle one: a timeout at the very end may take as long as all before.
        let mut runs = [5, 6, 7].map(|seed| {
            let mut pair = Pair::established(seed, config.clone(), &path);
            let took = pair.transfer(12_000_000, 60_000, Duration::from_secs(300));
            (took, pair.a.tcp.stats())
        });
        runs.sort_by_key(|(took, _)| *took);
        let (took, stats) = runs[1];
        let rate = 12_000_000.0 / took.as_secs_f64();
        println!(
            "{what:<34}{:>9.1}{:>9.2}{:>7}{:>6}{:>9?}",
            rate * 8.0 / 1e6,
            100.0 * stats.bytes_retransmitted as f64 / 12_000_000.0,
            stats.segments_lost,
            stats.spurious_recoveries,
            stats.rto,
        );
        assert!(rate >= floor * RATE as f64, "{what}: {rate:.0} bytes per second");
    }
}
