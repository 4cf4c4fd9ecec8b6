//! Goodput of one connection over a path of 100 Mbit/s and 40 ms, printed as a table
//! (`cargo test -p plait-tcp --test goodput -- --nocapture`) and held to a floor.

mod pair;

use base::Duration;
use pair::{Link, Pair};
use tcp::Config;
use tcp::congestion::Algorithm;

const RATE: u64 = 12_500_000;

struct Row {
    what: &'static str,
    config: Config,
    link: Link,
    /// Share of the rate that it must reach.
    floor: f64,
}

fn rows() -> Vec<Row> {
    let path = Link { delay: Duration::from_millis(20), rate: RATE, buffer: 500_000, ..Link::default() };
    let row = |what, link, floor| Row { what, config: Config::default(), link, floor };
    let reno = Config { congestion: Algorithm::NewReno, ..Config::default() };
    vec![
        row("no loss but its own", path, 0.55),
        row("0.01 % loss", Link { loss: 0.0001, ..path }, 0.5),
        row("0.1 % loss", Link { loss: 0.001, ..path }, 0.1),
        row("1 % loss", Link { loss: 0.01, ..path }, 0.02),
        row("10 % late by 5 ms", Link { reorder: 0.1, ..path }, 0.55),
        row("5 % twice", Link { duplicate: 0.05, ..path }, 0.5),
        row("half of the acknowledgments lost", Link { ack_loss: 0.5, ..path }, 0.5),
        Row { what: "NewReno", config: reno, link: path, floor: 0.5 },
        Row { what: "paced", config: Config { pacing: true, ..Config::default() }, link: path, floor: 0.5 },
    ]
}

#[test]
fn goodput_under_loss_reordering_and_repetition() {
    println!("{:<34}{:>9}{:>9}{:>7}{:>6}{:>9}", "path", "Mbit/s", "again %", "lost", "undo", "RTO");
    for Row { what, config, link, floor } in rows() {
        let mut pair = Pair::established(5, config, link);
        let took = pair.transfer(12_000_000, 60_000, Duration::from_secs(300));
        let stats = pair.a.tcp.stats();
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
