//! The throughput of `plait` over two unlike paths of the lab, beside the kernel's Multipath TCP over the same two, and beside `plait` over
//! the better path alone. The kernel uses CUBIC.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use plait_lab::{Conditions, Program, Watch};

use crate::attacks::case::{Carrier, Context, Family, Settings};
use crate::attacks::cases::{Outcome, outcome_of};
use crate::attacks::exchange::{self, Load};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::peer;

/// Time without an arrival after which a transfer is given up.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Goals: as fractions of the kernel's throughput, of `plait`'s over the better path alone, and, if both paths are alike, of its sum over
/// each of them alone. The kernel encrypts nothing: tags and records take 1.2 % of a path, and figures of two runs differ by 1 %.
const OF_THE_KERNEL: f64 = 0.97;
const OF_THE_BETTER: f64 = 0.97;
const OF_THE_SUM: f64 = 0.93;

/// The selection of measurements.
#[derive(Args)]
pub(crate) struct Options {
    /// Only pairs with this in their name; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Runs of each pair and system, in turn; the median is reported.
    #[arg(long, default_value = "3")]
    runs: NonZeroU32,
    /// Bytes from the client to the server.
    #[arg(long, value_name = "BYTES", default_value = "50000000")]
    size: u64,
    /// Congestion control of plait.
    #[arg(long, default_value = "adaptive")]
    congestion: String,
    /// The binary under test.
    #[arg(long, default_value = "target/release/plait")]
    plait: PathBuf,
}

/// One path, the same in both directions.
#[derive(Clone, Copy)]
struct Line {
    /// Mbit/s.
    rate: u64,
    /// Round trip in milliseconds.
    round_trip: u64,
    /// In bandwidth-delay products.
    queue: f64,
    /// Fraction of all packets.
    loss: f64,
    /// Milliseconds, one way.
    jitter: u64,
}

impl Line {
    const fn new(rate: u64, round_trip: u64) -> Self {
        Self { rate, round_trip, queue: 1.0, loss: 0.0, jitter: 0 }
    }

    const fn queue(self, queue: f64) -> Self {
        Self { queue, ..self }
    }

    const fn rough(self, loss: f64, jitter: u64) -> Self {
        Self { loss, jitter, ..self }
    }

    fn conditions(self) -> Conditions {
        let product = (self.rate * 1_000_000 / 8 * self.round_trip / 1000) as f64;
        Conditions {
            // Room for two packets, and for a train of the kernel's, at least.
            queue: Some(((product * self.queue) as u64).max(16_384)),
            loss: self.loss,
            jitter: Duration::from_millis(self.jitter),
            ..Conditions::megabits(self.rate, self.round_trip / 2)
        }
    }

    fn name(self) -> String {
        let mut name = format!("{}/{}", self.rate, self.round_trip);
        if self.queue != 1.0 {
            name += &format!(" queue {}", self.queue);
        }
        if self.loss > 0.0 {
            name += &format!(" loss {}", self.loss * 100.0);
        }
        if self.jitter > 0 {
            name += &format!(" jitter {}", self.jitter);
        }
        name
    }
}

/// Two paths; a connection opens over the first.
type Pair = [Line; 2];

const PAIRS: [Pair; 15] = [
    [Line::new(50, 20), Line::new(50, 20)],
    [Line::new(300, 20), Line::new(300, 20)],
    [Line::new(100, 20), Line::new(10, 20)],
    [Line::new(100, 20), Line::new(10, 400)],
    [Line::new(300, 20), Line::new(30, 60).rough(0.005, 10)],
    [Line::new(50, 20), Line::new(5, 40)],
    [Line::new(50, 20), Line::new(50, 60).queue(3.0)],
    [Line::new(50, 200), Line::new(50, 20)],
    [Line::new(100, 20).queue(0.25), Line::new(50, 40).queue(0.25)],
    [Line::new(20, 40).queue(10.0), Line::new(100, 20).rough(0.001, 0)],
    // Random losses: two lines, two LTE, LTE and Starlink, delays that vary.
    [Line::new(50, 20).rough(0.005, 0), Line::new(50, 20).rough(0.005, 0)],
    [Line::new(50, 20).rough(0.02, 0), Line::new(50, 20).rough(0.02, 0)],
    [Line::new(30, 50).rough(0.005, 10), Line::new(20, 60).rough(0.005, 10)],
    [Line::new(30, 50).rough(0.005, 10), Line::new(100, 40).rough(0.005, 10)],
    [Line::new(50, 20).rough(0.0, 20), Line::new(50, 20).rough(0.0, 20)],
];

fn name(pair: &Pair) -> String {
    format!("{} + {}", pair[0].name(), pair[1].name())
}

/// The better path alone: the faster one; of two equally fast ones, the one with the shorter round trip.
fn better(pair: &Pair) -> &'static str {
    let worth = |line: Line| (line.rate, core::cmp::Reverse(line.round_trip));
    if worth(pair[0]) >= worth(pair[1]) { "a" } else { "b" }
}

fn are_alike(pair: &Pair) -> bool {
    pair[0].conditions() == pair[1].conditions()
}

/// The carrier of the pair, and its protection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Kernel,
    Plait(&'static str),
}

/// The paths of a measurement: both paths, or the better one alone.
const MEASURED: [(System, bool); 5] = [
    (System::Kernel, true),
    (System::Plait("plain"), true),
    (System::Plait("plain"), false),
    (System::Plait("sealed"), true),
    (System::Plait("sealed"), false),
];

/// Runs the selected measurements; returns false if a pair misses a goal.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = crate::runner::prepare_directory(None)?;
    let plait = crate::runner::binary(&options.plait)?;
    let settings =
        Settings { plait, size: options.size, judges_times: true, family: Family::V4, carrier: Carrier::Tcp };
    let wanted = |pair: &&Pair| {
        options.only.is_empty() || options.only.iter().any(|text| name(pair).contains(text.as_str()))
    };
    let pairs: Vec<&Pair> = PAIRS.iter().filter(wanted).collect();
    ensure!(!pairs.is_empty(), "no pair is called so; there are {}", PAIRS.each_ref().map(name).join(", "));
    println!("{} bytes from client to server, median of {} runs, in Mbit/s", options.size, options.runs);
    println!("{:<42} {:>7} {:>15} {:>15}", "", "kernel", "plain (alone)", "sealed (alone)");
    let (watch, mut missed) = (Watch::start(), 0);
    for pair in pairs {
        let rates = measure(&settings, &root, pair, options).with_context(|| name(pair))?;
        missed += usize::from(!print_row(pair, rates));
    }
    println!("\n{missed} pairs miss a goal; {}", watch.end());
    std::fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
    Ok(missed == 0)
}

/// Medians in the order of [`MEASURED`], in Mbit/s.
fn measure(
    settings: &Settings,
    root: &Path,
    pair: &Pair,
    options: &Options,
) -> Result<[f64; MEASURED.len()]> {
    let mut rates = MEASURED.map(|_| Vec::new());
    for _ in 0..options.runs.get() {
        for (all, &(system, over_both)) in rates.iter_mut().zip(&MEASURED) {
            let path = if over_both { None } else { Some(better(pair)) };
            all.push(transfer(settings, root, pair, (system, &options.congestion), path)?);
        }
    }
    Ok(rates.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }))
}

/// One transfer in a lab of its own, over one path or both: its rate from the first byte at the reader to the last.
fn transfer(
    settings: &Settings,
    root: &Path,
    pair: &Pair,
    system: (System, &str),
    alone: Option<&'static str>,
) -> Result<f64> {
    let directory = root.join("pair");
    std::fs::create_dir_all(&directory)?;
    let context = Context { settings, directory: &directory };
    let conditions = pair.map(Line::conditions);
    let fixture = Fixture::up_between(&context, Listening::Closed, conditions)?;
    let sizes = [settings.size, 0];
    let [mut client, mut server] = start(&fixture, system, alone, sizes)?;
    let running = exchange::start(&mut client, &mut server, &Load::sized(sizes))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    match outcome_of(&exchange, sizes) {
        Outcome::Equal => {}
        Outcome::Error(text) | Outcome::Deceived(text) | Outcome::Hung(text) => bail!("{text}"),
    }
    drop(fixture);
    std::fs::remove_dir_all(&directory)?;
    Ok(settings.size as f64 * 8e-6 / exchange.up.lasted.as_secs_f64())
}

fn start(
    fixture: &Fixture<'_>,
    (system, congestion): (System, &str),
    alone: Option<&'static str>,
    sizes: [u64; 2],
) -> Result<[Program; 2]> {
    match system {
        System::Kernel => {
            fixture.lab.enable_kernel_mptcp()?;
            let server = peer::start_cubic(fixture, Side::Server, sizes)?;
            Ok([peer::start_cubic(fixture, Side::Client, sizes)?, server])
        }
        System::Plait(protection) => {
            let options = ["--protect", protection, "--congestion", congestion];
            let server = fixture.listen(&options)?;
            let names = alone.map_or(vec!["a", "b"], |path| vec![path]);
            let paths: Vec<String> = names.iter().map(|name| format!("--path={name}=trusted")).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            Ok([fixture.connect_to(names[0], &paths, &options)?, server])
        }
    }
}

/// Prints a line; returns whether it meets the goals.
fn print_row(pair: &Pair, [kernel, plain, plain_alone, sealed, sealed_alone]: [f64; MEASURED.len()]) -> bool {
    let mut missed = Vec::new();
    for (name, both, alone) in [("plain", plain, plain_alone), ("sealed", sealed, sealed_alone)] {
        let mut judge = |figure: f64, goal: f64, of: &str| {
            if figure < goal {
                missed.push(format!("{name} {figure:.2} of {of}"));
            }
        };
        judge(both / kernel, OF_THE_KERNEL, "the kernel");
        judge(both / alone, OF_THE_BETTER, "the better path");
        if are_alike(pair) {
            judge(both / (2.0 * alone), OF_THE_SUM, "the sum");
        }
    }
    println!(
        "{:<42} {kernel:>7.1} {plain:>7.1} ({plain_alone:>5.1}) {sealed:>7.1} ({sealed_alone:>5.1})  {}",
        name(pair),
        if missed.is_empty() { "ok".to_owned() } else { format!("MISSED: {}", missed.join("; ")) }
    );
    missed.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Pair = PAIRS[0];
    const UNLIKE: Pair = PAIRS[2];

    #[test]
    fn a_pair_holds_that_is_as_fast_as_the_kernel_the_better_path_and_the_sum() {
        assert!(print_row(&UNLIKE, [100.0, 100.0, 95.0, 101.0, 90.0]));
        assert!(!print_row(&UNLIKE, [100.0, 96.0, 95.0, 101.0, 90.0]), "slower than the kernel");
        assert!(!print_row(&UNLIKE, [80.0, 96.0, 95.0, 87.0, 90.0]), "slower than one path");
        assert!(print_row(&EVEN, [80.0, 94.0, 50.0, 94.0, 50.0]));
        assert!(!print_row(&EVEN, [80.0, 94.0, 50.0, 92.0, 50.0]), "slower than the sum");
    }

    #[test]
    fn the_better_path_is_the_faster_one_and_then_the_nearer_one() {
        assert_eq!(better(&[Line::new(10, 20), Line::new(100, 400)]), "b");
        assert_eq!(better(&[Line::new(50, 200), Line::new(50, 20)]), "b");
        assert_eq!(better(&EVEN), "a");
        let names: std::collections::BTreeSet<_> = PAIRS.iter().map(name).collect();
        assert_eq!(names.len(), PAIRS.len());
    }
}
