//! Measurements in namespaces: the `plait` program beside the kernel. The loop, the statistics, the pairs of paths and the tables are
//! those of `plait-bench`; each case has its systems, what happens in a turn, and its goals.
//!
//! * [`pairs`]: throughput over unlike paths. [`fairness`]: the share of a path beside the kernel's TCP.
//! * [`interference`]: the cost of each kind of interference on one path of two.
//! * [`gaps`]: the cost of a single strike for the reader. [`handover`]: how soon a new path carries the first byte. [`setup`]: how
//!   soon a new connection does. Their systems have the same two paths, each in a lab of its own, and take turns.

pub(crate) mod fairness;
mod gaps;
mod handover;
mod interference;
pub(crate) mod pairs;
mod setup;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use nix::sys::signal::Signal;
use plait_bench::{PathModel, Rounds, Spread, Table, millis};
use plait_lab::{Conditions, Program};

use crate::attacks::case::{Context, Settings};
use crate::attacks::fixture::{Fixture, Listening};
use crate::runner;

/// Both paths of [`gaps`], [`handover`] and [`setup`].
const PATH: PathModel = PathModel::new(25, 20);

/// Measurements in place of attacks.
#[derive(Args)]
pub(crate) struct Measurement {
    /// Instead of cases: the cost of each kind of interference on one path of two, beside the honest path alone; --only, --skip and --size
    /// apply to it, too.
    #[arg(long, group = "measurement", conflicts_with_all = ["quick", "repeat", "keep"])]
    table: bool,
    /// With --table: from the client to the server only.
    #[arg(long, requires = "table")]
    one_way: bool,
    /// Instead of cases: the longest gap at the reader around a single strike, over this many strikes, beside the kernel's.
    #[arg(long, value_name = "STRIKES", group = "measurement", conflicts_with_all = OF_CASES)]
    gaps: Option<NonZeroU32>,
    /// Instead of cases: the time from the decision to use another path to the first byte there, over this many connections, with data in
    /// the SYN of the join and without, beside the kernel's.
    #[arg(long, value_name = "TIMES", group = "measurement", conflicts_with_all = OF_CASES)]
    handover: Option<NonZeroU32>,
    /// Instead of cases: the time from the start of a program to the first byte at the other one, over this many connections, with shares
    /// of the keys from every path and without, beside the kernel's.
    #[arg(long, value_name = "TIMES", group = "measurement", conflicts_with_all = OF_CASES)]
    setup: Option<NonZeroU32>,
}

/// Options that select cases.
const OF_CASES: [&str; 6] = ["quick", "repeat", "only", "skip", "size", "keep"];

impl Measurement {
    /// Runs the selected measurement; returns false if it misses a goal, and `None` if none is selected.
    pub(crate) fn run(&self, settings: &Settings, common: &runner::Options) -> Option<Result<bool>> {
        let Self { table, one_way, gaps, handover, setup } = self;
        let run = |measure: &dyn Fn(&Place<'_>) -> Result<bool>| {
            let root = runner::prepare(common)?;
            measure(&Place { settings, root: &root })
        };
        match (table, gaps, handover, setup) {
            (true, ..) => {
                let amount = interference::Amount { size: common.size_given(), is_one_way: *one_way };
                Some(run(&|place| interference::run(place, amount, |name| common.names(name))))
            }
            (_, Some(strikes), ..) => Some(run(&|place| gaps::run(place, *strikes))),
            (_, _, Some(times), _) => Some(run(&|place| handover::run(place, *times))),
            (_, _, _, Some(times)) => Some(run(&|place| setup::run(place, *times))),
            (false, None, None, None) => None,
        }
    }
}

/// The settings of a measurement, and the directory for the output of its programs.
struct Place<'a> {
    settings: &'a Settings,
    root: &'a Path,
}

impl Place<'_> {
    /// Runs with a directory of this name, which is removed at the end.
    fn with<T>(&self, name: &str, run: impl FnOnce(&Context<'_>) -> Result<T>) -> Result<T> {
        let directory = self.root.join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let result = run(&Context { settings: self.settings, directory: &directory });
        std::fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
        result
    }
}

/// A system that is measured beside others, in a lab of its own.
trait System: Copy + 'static {
    /// The result of a turn.
    type Figure;
    /// All systems, in the order of the table.
    const ALL: &[Self];

    /// The name in the table.
    fn name(self) -> &'static str;

    /// Prepares its lab.
    fn prepare(self, fixture: &Fixture<'_>) -> Result<()>;

    /// One turn.
    fn measure(self, fixture: &Fixture<'_>) -> Result<Self::Figure>;
}

/// The results of all systems, which take turns.
fn take_turns<S: System>(place: &Place<'_>, rounds: NonZeroU32) -> Result<Vec<(S, Vec<S::Figure>)>> {
    let directories: Vec<PathBuf> =
        (0..S::ALL.len()).map(|number| place.root.join(number.to_string())).collect();
    let contexts: Vec<Context<'_>> =
        directories.iter().map(|directory| Context { settings: place.settings, directory }).collect();
    let conditions = Conditions::megabits(PATH.rate, PATH.round_trip / 2);
    let mut stands = Vec::new();
    for (context, &system) in contexts.iter().zip(S::ALL) {
        std::fs::create_dir_all(context.directory)?;
        let fixture = Fixture::up_with(context, Listening::Closed, &conditions)?;
        system.prepare(&fixture).with_context(|| system.name())?;
        stands.push((system, fixture));
    }
    let results = Rounds::of(rounds)
        .take_turns(stands, |(system, fixture), _| system.measure(fixture).with_context(|| system.name()))?;
    let results = results.into_iter().map(|((system, _), figures)| (system, figures)).collect();
    std::fs::remove_dir_all(place.root).with_context(|| format!("remove {}", place.root.display()))?;
    Ok(results)
}

/// Times of systems.
fn times_table() -> Table {
    Table::new(40, [("median", 9), ("95 %", 9), ("longest", 9)])
}

/// The figures of a system in [`times_table`].
fn times(spread: &Spread) -> [String; 3] {
    [spread.median, spread.percentile(95), spread.most].map(millis)
}

/// The spread of the times that each system took, a line each under this title.
fn times_of<S: System<Figure = Duration>>(
    place: &Place<'_>,
    rounds: NonZeroU32,
    title: &str,
) -> Result<Vec<Spread>> {
    println!("{rounds} {title}; paths of {} ms round trip", PATH.round_trip);
    let table = times_table();
    println!("{}", table.head(""));
    let one = |(system, figures): (S, Vec<Duration>)| {
        let spread = Spread::of_times(figures.into_iter().map(Some)).context("no times")?;
        println!("{}", table.row(system.name(), times(&spread), ""));
        Ok(spread)
    };
    take_turns::<S>(place, rounds)?.into_iter().map(one).collect()
}

/// Ends programs that would continue.
fn kill(programs: [&mut Program; 2]) -> Result<()> {
    for program in programs {
        program.signal(Signal::SIGKILL);
        program.wait(Duration::from_secs(5))?;
    }
    Ok(())
}
