//! `cargo xtask bench paths`: what a connection over two paths carries, beside what each of them carries alone.
//!
//! A *cell* is one pair of paths, one scheduler, protection, congestion controller and size of transfer. Its goodput is compared
//! with that of connections with the same settings over each path alone. Time is simulated: the figures depend on the seed and
//! the code, not on the machine.

pub(crate) mod course;
pub(crate) mod measure;
mod recording;
mod report;

use anyhow::ensure;
use clap::ValueEnum;
use plait_bench::{PathPair, concurrently, pairs, write_json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use course::Course;
use measure::{Congestion, Figure, Protection, Rule, Settings, Size};
use report::{Cell, Report};

/// The selection of measurements.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pairs whose name contains this text (any of several); all without.
    #[arg(long, value_name = "TEXT")]
    pair: Vec<String>,
    /// Schedulers; all without.
    #[arg(long, value_enum, value_delimiter = ',')]
    scheduler: Vec<Rule>,
    /// Protections; both without.
    #[arg(long, value_enum, value_delimiter = ',')]
    protection: Vec<Protection>,
    /// Congestion controllers.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "adaptive")]
    congestion: Vec<Congestion>,
    /// Sizes of transfer; all without.
    #[arg(long, value_enum, value_delimiter = ',')]
    size: Vec<Size>,
    /// A few pairs that are unlike each other, the default scheduler, sealed, 1 and 10 MiB: less than a minute.
    #[arg(long, conflicts_with_all = ["scheduler", "protection", "size"])]
    quick: bool,
    /// Sixteen pairs of access networks that people have, in place of those that span what there is.
    #[arg(long, conflicts_with = "quick")]
    published: bool,
    /// Replay recorded rates: FILE@MS+FILE@MS, with the round trips of both paths (and @PERCENT of loss); in place of all pairs.
    /// A file has a rate in Mbit/s for each second (.mbps), or is a trace of Mahimahi.
    #[arg(long, value_name = "RECORDINGS", conflicts_with_all = ["quick", "published"])]
    trace: Vec<String>,
    /// Seconds that are replayed of a recording.
    #[arg(long, default_value_t = 60)]
    trace_seconds: u64,
    /// Bytes of the send buffer; without, that of the default settings.
    #[arg(long, value_name = "BYTES")]
    send_buffer: Option<usize>,
    /// Whether segments are paced; without, as in the default settings.
    #[arg(long, value_name = "BOOL")]
    pacing: Option<bool>,
    /// Seed of all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time; without, as many as there are processors.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Write all cells to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with 1 if a cell of the default scheduler is below its goal.
    #[arg(long)]
    strict: bool,
    /// List the pairs and measure nothing.
    #[arg(long)]
    list: bool,
}

/// One run: settings, the pair it belongs to, and which of its paths there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    settings: Settings,
    pair: usize,
    paths: Which,
}

/// The paths that a run has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Both,
    Only(usize),
}

/// Measures, prints, writes.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let courses = options.courses()?;
    if options.list {
        courses.iter().for_each(|course| println!("{}", course.name));
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!courses.is_empty(), "no pair has such a name: see --list");
    let report = Report::new(cells(options, &courses, &measure_all(options, &courses)));
    print!("{report}");
    if let Some(path) = &options.json {
        write_json(path, &report.cells())?;
    }
    Ok(if options.strict && !report.is_good() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Options {
    fn courses(&self) -> anyhow::Result<Vec<Course>> {
        let is_wanted = |course: &Course| {
            let named =
                self.pair.is_empty() || self.pair.iter().any(|text| course.name.contains(text.as_str()));
            named && (!self.quick || pairs::QUICK.contains(&course.name.as_str()))
        };
        let of_table = |table: Vec<PathPair>| table.into_iter().map(Course::from).collect();
        let all: Vec<Course> = match &self.trace[..] {
            [] if self.published => of_table(pairs::published()),
            [] => of_table(pairs::all()),
            traces => {
                let recorded = traces.iter().map(|text| Course::recorded(text, self.trace_seconds));
                recorded.collect::<anyhow::Result<_>>()?
            }
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }

    fn settings(&self) -> Vec<Settings> {
        fn or_all<T: Clone>(selected: &[T], all: &[T]) -> Vec<T> {
            if selected.is_empty() { all.to_vec() } else { selected.to_vec() }
        }
        let (rules, protections, sizes) = if self.quick {
            (vec![Rule::LowestRtt], vec![Protection::Sealed], vec![Size::OneMib, Size::TenMib])
        } else {
            (
                or_all(&self.scheduler, Rule::value_variants()),
                or_all(&self.protection, Protection::value_variants()),
                or_all(&self.size, &Size::ALL),
            )
        };
        let mut all = Vec::new();
        for &congestion in &self.congestion {
            for &protection in &protections {
                for &rule in &rules {
                    for &size in &sizes {
                        let Self { send_buffer, pacing, seed, .. } = *self;
                        all.push(Settings { congestion, protection, rule, size, send_buffer, pacing, seed });
                    }
                }
            }
        }
        all
    }

    fn jobs(&self) -> NonZeroUsize {
        let processors = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.jobs.unwrap_or_else(processors)
    }
}

/// All runs that the cells need, each once: over one path alone the scheduler makes no difference.
fn measure_all(options: &Options, courses: &[Course]) -> BTreeMap<Run, Figure> {
    let mut runs = Vec::new();
    for settings in options.settings() {
        for pair in 0..courses.len() {
            runs.push(Run { settings, pair, paths: Which::Both });
            runs.extend([0, 1].map(|path| alone(settings, pair, path)));
        }
    }
    runs.sort_unstable();
    runs.dedup();
    // The longest first, so that no processor is left with one at the end.
    runs.sort_by_key(|run| core::cmp::Reverse(run.settings.size));
    let figures = concurrently(options.jobs(), &runs, |run| {
        let legs = &courses[run.pair].legs;
        match run.paths {
            Which::Both => measure::measure(&run.settings, legs),
            Which::Only(path) => measure::measure(&run.settings, &legs[path..=path]),
        }
    });
    runs.into_iter().zip(figures).collect()
}

fn alone(settings: Settings, pair: usize, path: usize) -> Run {
    Run { settings: Settings { rule: Rule::LowestRtt, ..settings }, pair, paths: Which::Only(path) }
}

/// The cells, table by table and in a table pair by pair.
fn cells(options: &Options, courses: &[Course], figures: &BTreeMap<Run, Figure>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for table in options.settings().chunk_by(|one, next| one.table() == next.table()) {
        for (number, course) in courses.iter().enumerate() {
            for &settings in table {
                let single = [0, 1].map(|path| figures[&alone(settings, number, path)].goodput);
                let both = &figures[&Run { settings, pair: number, paths: Which::Both }];
                cells.push(Cell::new(&settings, course, both, single));
            }
        }
    }
    cells
}
