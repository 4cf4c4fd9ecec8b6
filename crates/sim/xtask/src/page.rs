//! `cargo xtask bench page`: a page of many objects over one connection, and over several. Time is simulated.
//!
//! Streams inside one connection share its order: what is lost holds up all that follows. The objects of a page come one after the other on
//! each connection, which is the best order for one connection: any interleaving completes the first objects later.

use plait_base::Duration;
use plait_bench::{PathModel, Spread, Table};
use plait_mptcp::Config;
use plait_sim::{Families, Link, Pair, Workload};
use std::process::ExitCode;

use crate::paths::course::link;
use crate::paths::measure::Protection;

/// The selection of measurements.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Objects of the page.
    #[arg(long, default_value_t = 60)]
    objects: usize,
    /// Bytes of each object.
    #[arg(long, default_value_t = 20_000)]
    bytes: u64,
    /// Number of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,6,12")]
    connections: Vec<usize>,
    /// Loss of each path in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,0.5,1,2")]
    loss: Vec<f64>,
    /// Rate of each path, Mbit/s.
    #[arg(long, default_value_t = 50)]
    rate: u64,
    /// Round trips of both paths without a queue, ms.
    #[arg(long, value_delimiter = ',', default_value = "20,60")]
    round_trip: Vec<u64>,
    /// Protection of the connections.
    #[arg(long, value_enum, default_value = "sealed")]
    protection: Protection,
    /// Runs, each with a seed of its own; their median counts.
    #[arg(long, default_value_t = 9)]
    runs: u64,
}

/// Step of the clock.
const STEP: Duration = Duration::from_millis(1);
/// No page takes as long.
const LIMIT: u64 = 60_000;

/// Measures and prints.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        options.connections.iter().all(|count| (1..=options.objects).contains(count)),
        "1 to OBJECTS connections"
    );
    println!(
        "{} objects of {} bytes, {} Mbit/s, round trips {:?} ms: milliseconds from the SYNs until so many objects are complete; medians of {} runs",
        options.objects, options.bytes, options.rate, options.round_trip, options.runs
    );
    let columns = [("loss %", 6), ("connections", 11), ("half", 7), ("nine tenths", 11), ("all", 7)];
    let table = Table::new(0, columns);
    println!("{}", table.head(""));
    for &loss in &options.loss {
        for &connections in &options.connections {
            let runs: Vec<_> = (1..=options.runs).map(|seed| options.page(connections, loss, seed)).collect();
            let median = |part: f64| {
                let at = |times: &Vec<f64>| times[((times.len() - 1) as f64 * part).round() as usize];
                Spread::of(runs.iter().map(at)).map_or(f64::NAN, |spread| spread.median).round().to_string()
            };
            let words = [loss.to_string(), connections.to_string(), median(0.5), median(0.9), median(1.0)];
            println!("{}", table.row("", words, ""));
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// The times at which the objects are complete, in ms, sorted.
    fn page(&self, connections: usize, loss: f64, seed: u64) -> Vec<f64> {
        let mut pair = Pair::new(seed, self.round_trip.len(), Families::V4);
        for (path, round_trip) in self.round_trip.iter().enumerate() {
            let model = PathModel { loss, ..PathModel::new(self.rate, *round_trip) };
            pair.chain(path, vec![Box::new(Link::new(link(&model), seed + path as u64))]);
        }
        let config = Config { protect: self.protection.settings(), ..Config::default() };
        // The share of each connection: some have one object more.
        let shares: Vec<u64> =
            (0..connections).map(|number| ((self.objects - number).div_ceil(connections)) as u64).collect();
        // The server does not know whose page it is: it says as much as the largest share needs.
        pair.serve(&config, Workload::of(shares[0] * self.bytes));
        let ids: Vec<_> = (0..connections).map(|_| pair.open(&config, Workload::of(400))).collect();
        let mut times = Vec::with_capacity(self.objects);
        for elapsed in 1..=LIMIT {
            pair.world.run_for(STEP);
            let complete: u64 = ids
                .iter()
                .zip(&shares)
                .map(|(id, share)| {
                    (pair.world.application(pair.client, *id).heard() / self.bytes).min(*share)
                })
                .sum();
            times.resize(complete as usize, elapsed as f64);
            if times.len() >= self.objects {
                break;
            }
        }
        times
    }
}
