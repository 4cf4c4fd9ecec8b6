//! `cargo xtask bench paths`: what a connection over two paths carries, beside what each of them carries alone.
//!
//! A *cell* is one pair of paths, one scheduler, protection, congestion controller and size of transfer. Its goodput is compared
//! with that of connections with the same settings over each path alone. Time is simulated: the figures depend on the seed and
//! the code, not on the machine.

pub(crate) mod measure;
mod pairs;
mod recording;
mod report;

use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use measure::{Congestion, Figure, Protection, Rule, Settings, Size};
use pairs::PathPair;
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
    jobs: Option<usize>,
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
    let pairs = options.pairs()?;
    if options.list {
        for pair in &pairs {
            println!("{}", pair.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!pairs.is_empty(), "no pair has such a name: see --list");
    let figures = measure_all(options, &pairs);
    let report = Report::new(cells(options, &pairs, &figures));
    print!("{report}");
    if let Some(path) = &options.json {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        serde_json::to_writer_pretty(file, report.cells()).context("the figures cannot be written")?;
    }
    Ok(if options.strict && !report.is_good() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Options {
    fn pairs(&self) -> anyhow::Result<Vec<PathPair>> {
        let is_wanted = |name: &str| {
            let named = self.pair.is_empty() || self.pair.iter().any(|text| name.contains(text.as_str()));
            named && (!self.quick || pairs::QUICK.contains(&name))
        };
        let all = if !self.trace.is_empty() {
            self.trace
                .iter()
                .map(|text| recording::pair(text, self.trace_seconds))
                .collect::<anyhow::Result<_>>()?
        } else if self.published {
            pairs::published()
        } else {
            pairs::all()
        };
        Ok(all.into_iter().filter(|pair| is_wanted(&pair.name())).collect())
    }

    fn settings(&self) -> Vec<Settings> {
        let or_all =
            |sizes: &[Size], all: &[Size]| if sizes.is_empty() { all.to_vec() } else { sizes.to_vec() };
        let (rules, protections, sizes) = if self.quick {
            (vec![Rule::LowestRtt], vec![Protection::Sealed], vec![Size::OneMib, Size::TenMib])
        } else {
            let rules = if self.scheduler.is_empty() { &Rule::ALL } else { &self.scheduler[..] };
            let protections =
                if self.protection.is_empty() { &Protection::ALL } else { &self.protection[..] };
            (rules.to_vec(), protections.to_vec(), or_all(&self.size, &Size::ALL))
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

    fn jobs(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or_else(processors).max(1)
    }
}

/// All runs that the cells need, each once: over one path alone the scheduler makes no difference.
fn measure_all(options: &Options, pairs: &[PathPair]) -> BTreeMap<Run, Figure> {
    let mut runs = Vec::new();
    for settings in options.settings() {
        for pair in 0..pairs.len() {
            runs.push(Run { settings, pair, paths: Which::Both });
            runs.extend([0, 1].map(|path| alone(settings, pair, path)));
        }
    }
    runs.sort_unstable();
    runs.dedup();
    // The longest first, so that no processor is left with one at the end.
    runs.sort_by_key(|run| core::cmp::Reverse(run.settings.size));
    let (next, figures) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs() {
            scope.spawn(|| {
                while let Some(&run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let pair = &pairs[run.pair];
                    let figure = match run.paths {
                        Which::Both => measure::measure(&run.settings, &pair.paths),
                        Which::Only(path) => measure::measure(&run.settings, &pair.paths[path..=path]),
                    };
                    figures.lock().expect("no thread panics with it").insert(run, figure);
                }
            });
        }
    });
    figures.into_inner().expect("no thread panics with it")
}

fn alone(settings: Settings, pair: usize, path: usize) -> Run {
    Run { settings: Settings { rule: Rule::LowestRtt, ..settings }, pair, paths: Which::Only(path) }
}

fn cells(options: &Options, pairs: &[PathPair], figures: &BTreeMap<Run, Figure>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for settings in options.settings() {
        for (number, pair) in pairs.iter().enumerate() {
            let single = [0, 1].map(|path| figures[&alone(settings, number, path)].goodput);
            let both = &figures[&Run { settings, pair: number, paths: Which::Both }];
            cells.push(Cell::new(&settings, pair, both, single));
        }
    }
    cells
}
