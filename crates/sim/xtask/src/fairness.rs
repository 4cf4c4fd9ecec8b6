//! `cargo xtask bench fairness`: what a connection takes of bottlenecks beside TCP connections that come later, and how long packets
//! wait there. Time is simulated.

use clap::ValueEnum;
use plait_base::Duration;
use plait_bench::{PathModel, Spread, Table};
use plait_mptcp::Config;
use plait_sim::{Bottleneck, Fight, Load};
use std::process::ExitCode;

use crate::paths::course::link;
use crate::paths::measure::{Congestion, Protection};

/// The selection of measurements.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Congestion control of the connection.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "adaptive,cubic,bbr")]
    congestion: Vec<Congestion>,
    /// Congestion control of the rivals.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cubic,bbr")]
    rival: Vec<Congestion>,
    /// Cases; all without.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<Case>,
    /// Lengths of the queue, in bandwidth-delay products.
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,2,4")]
    queue: Vec<f64>,
    /// Protection of the connection.
    #[arg(long, value_enum, default_value = "plain")]
    protection: Protection,
    /// Rate of each bottleneck, Mbit/s.
    #[arg(long, default_value_t = 20)]
    rate: u64,
    /// Round trip without a queue, ms.
    #[arg(long, default_value_t = 40)]
    round_trip: u64,
    /// Seconds that the connection is alone.
    #[arg(long, default_value_t = 5)]
    alone: u64,
    /// Seconds with the rivals before the measurement.
    #[arg(long, default_value_t = 20)]
    before: u64,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Runs, each with a seed of its own; their median counts.
    #[arg(long, default_value_t = 3)]
    runs: u64,
}

/// The position of the rivals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// One path, one rival.
    One,
    /// Two paths with a bottleneck each, one rival on each.
    Two,
    /// Two paths over one bottleneck, one rival.
    Shared,
    /// No rival: the queue that the connection makes alone.
    Alone,
}

/// One run.
struct Figures {
    /// The share of each path; of a shared bottleneck, how many times as much as the rival takes.
    shares: Vec<f64>,
    /// Median and 95th percentile of the delay at the first bottleneck, in ms.
    delay: [f64; 2],
    /// The throughput of all together, as a fraction of the rate.
    used: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    println!(
        "{} Mbit/s, {} ms, the rival {} s later; shares and delays are medians of {} runs",
        options.rate, options.round_trip, options.alone, options.runs
    );
    let columns = [("case", 7), ("rival", 9), ("queue", 5), ("share of each path, or times one TCP", 36)];
    let rest = [("p50 ms", 7), ("p95 ms", 7), ("used", 5)];
    let table = Table::new(9, columns.into_iter().chain(rest));
    println!("{}", table.head("ours"));
    let cases = if options.case.is_empty() { Case::value_variants() } else { &options.case[..] };
    for &ours in &options.congestion {
        for &case in cases {
            for (number, &rival) in options.rival.iter().enumerate() {
                if case == Case::Alone && number > 0 {
                    continue;
                }
                for &queue in &options.queue {
                    let runs: Vec<Figures> = (1..=options.runs)
                        .map(|seed| options.fight(ours, case, rival, queue, seed))
                        .collect();
                    let words = [word(case), word(rival), queue.to_string()];
                    println!("{}", table.row(&word(ours), words.into_iter().chain(medians(&runs)), ""));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn fight(&self, ours: Congestion, case: Case, rival: Congestion, queue: f64, seed: u64) -> Figures {
        let model = PathModel { queue, ..PathModel::new(self.rate, self.round_trip) };
        let bottleneck = |seed| Bottleneck::new(link(&model), seed);
        let one = bottleneck(seed);
        let bottlenecks = match case {
            Case::One | Case::Alone => vec![one],
            Case::Two => vec![one, bottleneck(seed + 100)],
            Case::Shared => vec![one.clone(), one],
        };
        let mut config = Config { protect: self.protection.settings(), ..Config::default() };
        config.tcp.congestion = ours.algorithm();
        let mut fight = Fight::new(seed, &bottlenecks, 0, &config);
        fight.run_for(Duration::from_secs(self.alone));
        let mut tcp = Config { multipath: false, ..Config::default() };
        tcp.tcp.congestion = rival.algorithm();
        let rivals = match case {
            Case::One | Case::Shared => 1,
            Case::Two => 2,
            Case::Alone => 0,
        };
        (0..rivals).for_each(|number| fight.add_rival(number, &tcp));
        fight.run_for(Duration::from_secs(self.before));
        self.figures(case, &fight.measure(Duration::from_secs(self.seconds)))
    }

    fn figures(&self, case: Case, loads: &[Load]) -> Figures {
        let sum = |bytes: fn(&Load) -> u64| loads.iter().map(bytes).sum::<u64>() as f64;
        let (ours, rivals) = (sum(|load| load.ours), sum(|load| load.rivals));
        let shares = match case {
            Case::One | Case::Two | Case::Alone => loads.iter().map(Load::share).collect(),
            Case::Shared => vec![ours / rivals.max(1.0)],
        };
        let bottlenecks = if case == Case::Two { 2 } else { 1 };
        let waiting =
            Spread::of(loads[0].waiting.iter().map(|bytes| *bytes as f64 * 8e-3 / self.rate as f64));
        let delay = |percent| waiting.as_ref().map_or(0.0, |waiting| waiting.percentile(percent));
        let most = (self.rate * self.seconds * bottlenecks) as f64 * 125_000.0;
        Figures { shares, delay: [delay(50), delay(95)], used: (ours + rivals) / most }
    }
}

/// The median of each figure, as text.
fn medians(runs: &[Figures]) -> [String; 4] {
    let of = |figure: &dyn Fn(&Figures) -> f64| {
        Spread::of(runs.iter().map(figure)).map_or(f64::NAN, |spread| spread.median)
    };
    let width = runs.first().map_or(0, |run| run.shares.len());
    let shares = (0..width).map(|place| format!("{:.2}", of(&|run| run.shares[place])));
    let delay = [0, 1].map(|place| format!("{:.1}", of(&|run| run.delay[place])));
    let [p50, p95] = delay;
    [shares.collect::<Vec<_>>().join(" "), p50, p95, format!("{:.2}", of(&|run| run.used))]
}

/// The word on the command line.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
