//! The throughput of `plait` over two unlike paths of the lab, beside the kernel's Multipath TCP over the same two, and beside `plait` over
//! the better path alone. The kernel uses CUBIC.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use plait_bench::{PathModel, PathPair, Recording, Rounds, Spread, Table, pairs};
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
/// No queue is shorter, in bytes: room for two packets, and for a train of the kernel's.
const SHORTEST_QUEUE: u64 = 16_384;

/// The selection of measurements.
#[derive(Args)]
pub(crate) struct Options {
    /// Only pairs with this in their name; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Recorded networks in place of all pairs (repeatable), each with the round trip of the path; a file has Mbit/s per second (.mbps), or is
    /// a trace of Mahimahi. It is replayed from the start of each transfer on.
    #[arg(long, value_name = "FILE@MS+FILE@MS")]
    trace: Vec<String>,
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

/// Two paths of a measurement.
struct Course {
    name: String,
    /// Those of recordings have the mean rates.
    pair: PathPair,
    traces: [Option<Recording>; 2],
}

impl From<PathPair> for Course {
    fn from(pair: PathPair) -> Self {
        Self { name: pair.to_string(), pair, traces: [None, None] }
    }
}

impl Course {
    fn recorded(text: &str) -> Result<Self> {
        let both = text.split_once('+').with_context(|| format!("{text:?}: FILE@MS+FILE@MS"))?;
        let [(a, first), (b, second)] = [recorded(both.0)?, recorded(both.1)?];
        let name = format!("{}/{}+{}/{}", first.name(), a.round_trip, second.name(), b.round_trip);
        Ok(Self { name, pair: PathPair([a, b]), traces: [Some(first), Some(second)] })
    }

    fn conditions(&self) -> [Conditions; 2] {
        let [first, second] = self.traces.clone();
        let [a, b] = self.pair.0.map(conditions);
        [Conditions { trace: first, ..a }, Conditions { trace: second, ..b }]
    }
}

/// Reads `FILE@MS`: the path with the mean rate, and the recording.
fn recorded(text: &str) -> Result<(PathModel, Recording)> {
    let (file, round_trip) = text.rsplit_once('@').with_context(|| format!("{text:?}: FILE@MS"))?;
    let round_trip =
        round_trip.parse::<u16>().with_context(|| format!("not a round trip: {round_trip:?}"))?;
    let recording = Recording::read(Path::new(file))?;
    let rate = (recording.mean().round() as u64).max(1);
    Ok((PathModel::new(rate, round_trip.into()), recording))
}

/// A path in the lab.
fn conditions(path: PathModel) -> Conditions {
    Conditions {
        queue: Some(path.queue_bytes(SHORTEST_QUEUE)),
        loss: path.loss / 100.0,
        jitter: Duration::from_millis(path.jitter),
        ..Conditions::megabits(path.rate, path.round_trip / 2)
    }
}

/// The better path alone: the faster one; of two equally fast ones, the one with the shorter round trip.
fn better(PathPair([a, b]): &PathPair) -> &'static str {
    let worth = |path: &PathModel| (path.rate, core::cmp::Reverse(path.round_trip));
    if worth(a) >= worth(b) { "a" } else { "b" }
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
    let courses = courses(options)?;
    println!("{} bytes from client to server, median of {} runs, in Mbit/s", options.size, options.runs);
    let alone = ("(alone)", 7);
    let table = Table::new(38, [("kernel", 6), ("plain", 6), alone, ("sealed", 6), alone]);
    println!("{}", table.head(""));
    let (watch, mut missed) = (Watch::start(), 0);
    for course in courses {
        let medians = measure(&settings, &root, &course, options).with_context(|| course.name.clone())?;
        let misses = misses(&course.pair, medians);
        missed += usize::from(!misses.is_empty());
        let verdict =
            if misses.is_empty() { "ok".to_owned() } else { format!("MISSED: {}", misses.join("; ")) };
        let [kernel, plain, plain_alone, sealed, sealed_alone] = medians.map(|median| format!("{median:.1}"));
        let figures = [kernel, plain, format!("({plain_alone})"), sealed, format!("({sealed_alone})")];
        println!("{}", table.row(&course.name, figures, &verdict));
    }
    println!("\n{missed} pairs miss a goal; {}", watch.end());
    std::fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
    Ok(missed == 0)
}

/// The selected pairs.
fn courses(options: &Options) -> Result<Vec<Course>> {
    let all: Vec<Course> = if options.trace.is_empty() {
        pairs::in_the_lab().into_iter().map(Course::from).collect()
    } else {
        options.trace.iter().map(|text| Course::recorded(text)).collect::<Result<_>>()?
    };
    let names = all.iter().map(|course| course.name.as_str()).collect::<Vec<_>>().join(", ");
    let is_wanted = |course: &Course| {
        options.only.is_empty() || options.only.iter().any(|text| course.name.contains(text.as_str()))
    };
    let courses: Vec<Course> = all.into_iter().filter(is_wanted).collect();
    ensure!(!courses.is_empty(), "no pair is called so; there are {names}");
    Ok(courses)
}

/// Medians in the order of [`MEASURED`], in Mbit/s.
fn measure(
    settings: &Settings,
    root: &Path,
    course: &Course,
    options: &Options,
) -> Result<[f64; MEASURED.len()]> {
    let rates = Rounds::of(options.runs).take_turns(MEASURED, |&mut (system, over_both), _| {
        let path = if over_both { None } else { Some(better(&course.pair)) };
        transfer(settings, root, course, (system, &options.congestion), path)
    })?;
    let medians = rates.into_iter().map(|(_, rates)| Spread::of(rates).map(|rates| rates.median));
    let medians: Option<Vec<f64>> = medians.collect();
    medians.and_then(|medians| medians.try_into().ok()).context("a transfer took no time")
}

/// One transfer in a lab of its own, over one path or both: its rate from the first byte at the reader to the last.
fn transfer(
    settings: &Settings,
    root: &Path,
    course: &Course,
    system: (System, &str),
    alone: Option<&'static str>,
) -> Result<f64> {
    let directory = root.join("pair");
    std::fs::create_dir_all(&directory)?;
    let context = Context { settings, directory: &directory };
    let fixture = Fixture::up_between(&context, Listening::Closed, course.conditions())?;
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

/// The missed goals of a pair.
fn misses(
    PathPair([a, b]): &PathPair,
    [kernel, plain, plain_alone, sealed, sealed_alone]: [f64; MEASURED.len()],
) -> Vec<String> {
    let mut missed = Vec::new();
    for (name, both, alone) in [("plain", plain, plain_alone), ("sealed", sealed, sealed_alone)] {
        let mut judge = |figure: f64, goal: f64, of: &str| {
            if figure < goal {
                missed.push(format!("{name} {figure:.2} of {of}"));
            }
        };
        judge(both / kernel, OF_THE_KERNEL, "the kernel");
        judge(both / alone, OF_THE_BETTER, "the better path");
        if a == b {
            judge(both / (2.0 * alone), OF_THE_SUM, "the sum");
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> PathPair {
        name.parse().expect("a pair")
    }

    #[test]
    fn a_pair_holds_that_is_as_fast_as_the_kernel_the_better_path_and_the_sum() {
        let (even, unlike) = (pair("50/20+50/20"), pair("100/20+10/20"));
        for (pair, medians, missed) in [
            (unlike, [100.0, 100.0, 95.0, 101.0, 90.0], None),
            (unlike, [100.0, 96.0, 95.0, 101.0, 90.0], Some("plain 0.96 of the kernel")),
            (unlike, [80.0, 96.0, 95.0, 87.0, 90.0], Some("sealed 0.97 of the better path")),
            (even, [80.0, 94.0, 50.0, 94.0, 50.0], None),
            (even, [80.0, 94.0, 50.0, 92.0, 50.0], Some("sealed 0.92 of the sum")),
        ] {
            assert_eq!(misses(&pair, medians), missed.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_recorded_pair_has_the_mean_rates_and_replays_its_files() {
        let directory = std::env::temp_dir().join(format!("plait-pairs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("drive.mbps");
        std::fs::write(&file, "60\n20\n").expect("written");
        let course = Course::recorded(&format!("{0}@20+{0}@50", file.display())).expect("a pair");
        std::fs::remove_dir_all(directory).expect("removed");
        assert_eq!((course.name.as_str(), course.pair), ("drive/20+drive/50", pair("40/20+40/50")));
        assert!(course.conditions().iter().all(|way| way.trace.is_some()));
        assert!(Course::recorded("/nowhere@1+/nowhere@2").is_err() && Course::recorded("drive@20").is_err());
    }

    #[test]
    fn the_better_path_is_the_faster_one_and_then_the_nearer_one() {
        assert_eq!(better(&pair("10/20+100/400")), "b");
        assert_eq!(better(&pair("50/200+50/20")), "b");
        assert_eq!(better(&pair("50/20+50/20")), "a");
    }
}
