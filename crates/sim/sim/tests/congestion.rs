//! Goodput of the default settings over paths that lose segments by chance: two paths carry most of what both have, and never less than the
//! better one alone.

use plait_base::Duration;
use plait_mptcp::Config;
use plait_sim::{
    CloseMode, Families, Link, LinkConfig, Loss, Pair, Workload, World, megabits, plain_link, sealed,
};
use plait_tcp::congestion::Algorithm;

const MINUTES: Duration = Duration::from_secs(600);
const MEGABYTES: u64 = 20_000_000;
const MIB: u64 = 1 << 20;
const SEEDS: core::ops::Range<u64> = 3..12;

/// One path.
#[derive(Clone, Copy)]
struct Line {
    /// Mbit/s.
    rate: u64,
    /// Milliseconds.
    round_trip: u64,
    /// Percent.
    loss: f64,
    /// Milliseconds, one way.
    jitter: u64,
}

impl Line {
    const fn new(rate: u64, round_trip: u64) -> Self {
        Self { rate, round_trip, loss: 0.0, jitter: 0 }
    }

    const fn rough(self, loss: f64, jitter: u64) -> Self {
        Self { loss, jitter, ..self }
    }

    fn link(self) -> LinkConfig {
        LinkConfig {
            rate: megabits(self.rate),
            delay: Duration::from_micros(500 * self.round_trip),
            queue_limit: 125 * self.rate * self.round_trip,
            loss: if self.loss > 0.0 {
                Loss::Bernoulli { probability: self.loss / 100.0 }
            } else {
                Loss::None
            },
            jitter: Duration::from_millis(self.jitter),
            ..plain_link()
        }
    }
}

/// Mbit/s, from the first SYN to the last byte read: the median over seeds, because a loss at the start costs more than one later.
fn goodput(config: &Config, lines: &[Line], bytes: u64) -> f64 {
    let mut each: Vec<f64> = SEEDS.map(|seed| goodput_with(seed, config, lines, bytes)).collect();
    each.sort_by(f64::total_cmp);
    each[each.len() / 2]
}

fn goodput_with(seed: u64, config: &Config, lines: &[Line], bytes: u64) -> f64 {
    let mut pair = Pair::new(seed, lines.len(), Families::V4);
    for (number, line) in lines.iter().enumerate() {
        pair.chain(number, vec![Box::new(Link::new(line.link(), 100 * seed + line.rate + line.round_trip))]);
    }
    pair.serve(config, Workload::of(0).leaving(CloseMode::Waiting));
    let begin = pair.world.now();
    pair.open(config, Workload::of(bytes));
    let server = pair.server;
    let is_over = |world: &World| world.accepted(server).any(|reader| reader.heard() == bytes);
    assert!(pair.world.run_until(MINUTES, is_over), "{bytes} bytes take longer than {MINUTES:?}");
    bytes as f64 * 8e-6 / pair.world.now().saturating_since(begin).as_secs_f64()
}

/// The same loss twice, two LTE, LTE and Starlink, two Starlink.
const LOSSY: [[Line; 2]; 4] = [
    [Line::new(50, 20).rough(2.0, 0), Line::new(50, 20).rough(2.0, 0)],
    [Line::new(30, 50).rough(0.5, 10), Line::new(20, 60).rough(0.5, 10)],
    [Line::new(30, 50).rough(0.5, 10), Line::new(100, 40).rough(0.5, 10)],
    [Line::new(100, 40).rough(0.5, 10), Line::new(100, 40).rough(0.5, 10)],
];

#[test]
fn two_paths_that_lose_by_chance_carry_most_of_what_both_have() {
    for lines in LOSSY {
        let both = goodput(&sealed(), &lines, MEGABYTES);
        let alone = lines.map(|line| goodput(&sealed(), &[line], MEGABYTES));
        let (sum, better) = (alone[0] + alone[1], alone[0].max(alone[1]));
        let rate = (lines[0].rate + lines[1].rate) as f64;
        println!("{both:.1} Mbit/s, alone {alone:.1?}, of {rate}: {:.2} of the sum", both / sum);
        assert!(both >= 0.75 * sum, "{both} in place of {sum}");
        assert!(both >= 0.97 * better, "{both} in place of {better}");
        assert!(both >= 0.5 * rate, "{both} of {rate}");
    }
}

#[test]
fn a_short_transfer_is_no_slower_than_with_cubic() {
    let clean = [Line::new(50, 20), Line::new(50, 60)];
    for lines in [&clean[..], &clean[..1], &LOSSY[0], &LOSSY[2]] {
        let mut cubic = sealed();
        cubic.tcp.congestion = Algorithm::Cubic;
        let [ours, theirs] = [sealed(), cubic].map(|config| goodput(&config, lines, MIB));
        println!("1 MiB: {ours:.1} Mbit/s, with CUBIC {theirs:.1}");
        assert!(ours >= 0.97 * theirs, "{ours} in place of {theirs}");
    }
}
