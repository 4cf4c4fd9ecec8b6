//! Runs cases, a line each as they end, and prints a table at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use plait_bench::concurrently;

/// The selection of cases and their settings.
#[derive(Args)]
pub(crate) struct Options {
    /// Only cases with this in their name; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// No cases with this in their name; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// For CI, where other work may share the machine: smaller transfers, and no verdict by time or speed. Cases that depend on them are
    /// left out unless --only names them.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Bytes of a full transfer, each way [default: 256 MiB, with --quick much less].
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// The binary under test.
    #[arg(long, default_value = "target/release/plait")]
    plait: PathBuf,
    /// Runs all cases this many times; a case that failed once has failed.
    #[arg(long, value_name = "TIMES", default_value = "1")]
    repeat: NonZeroU32,
    /// Number of concurrent cases. Cases that mostly wait take less time this way; cases judged by times need the machine alone. A case
    /// that fails beside others is run again alone, and that result counts.
    #[arg(long, value_name = "CASES", default_value = "1")]
    jobs: NonZeroUsize,
    /// Keeps the programs' output, and captures, of cases that fail.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// Bytes of a full transfer, each way.
const FULL: u64 = 256 << 20;

impl Options {
    /// Bytes of a full transfer; `small` with `--quick`.
    pub(crate) fn size(&self, small: u64) -> u64 {
        self.size.unwrap_or(if self.quick { small } else { FULL })
    }

    /// The binary under test.
    pub(crate) fn plait(&self) -> Result<PathBuf> {
        binary(&self.plait)
    }

    /// Whether the output of failed cases is kept.
    pub(crate) fn keeps(&self) -> bool {
        self.keep.is_some()
    }

    /// The option about the size, if it is given.
    pub(crate) fn size_given(&self) -> Option<u64> {
        self.size
    }

    /// Whether --only and --skip select this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| name.contains(pattern.as_str()));
        (self.only.is_empty() || fits(&self.only)) && !fits(&self.skip)
    }

    fn wants(&self, case: &Case<'_>) -> bool {
        self.names(&case.name) && (case.is_quick || !self.quick || !self.only.is_empty())
    }
}

/// The absolute path of the binary under test.
pub(crate) fn binary(plait: &Path) -> Result<PathBuf> {
    plait.canonicalize().with_context(|| {
        format!(
            "no binary at {}: build it with `cargo build --release`, or name it with --plait",
            plait.display()
        )
    })
}

/// One case.
pub(crate) struct Case<'a> {
    /// Its name, which patterns are matched with.
    pub(crate) name: String,
    /// Its place in the table.
    pub(crate) row: String,
    pub(crate) column: String,
    /// Whether `--quick` runs it.
    pub(crate) is_quick: bool,
    pub(crate) run: Box<Run<'a>>,
}

/// The work of a case, with a directory of its own for the output of its programs.
pub(crate) type Run<'a> = dyn Fn(&Path) -> Result<Verdict> + Send + Sync + 'a;

/// The end of a case without an error.
pub(crate) enum Verdict {
    /// It passes; the text is the evidence.
    Passed(String),
    /// The behaviour of another system, without a verdict.
    Recorded(String),
    /// It does not apply (most often: the kernel itself lacks the feature, in a baseline).
    NotApplicable(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Passed,
    Failed,
    Recorded,
    NotApplicable,
}

impl Class {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAIL",
            Self::Recorded => "seen",
            Self::NotApplicable => "n/a",
        }
    }
}

/// Checks the state before a run: root, and no leftovers of an earlier run.
pub(crate) fn prepare(options: &Options) -> Result<PathBuf> {
    prepare_directory(options.keep.clone())
}

/// The same where nothing is kept, or there.
pub(crate) fn prepare_directory(keep: Option<PathBuf>) -> Result<PathBuf> {
    if !nix::unistd::geteuid().is_root() {
        bail!("network namespaces need root: run it with sudo, or as root in a user namespace (unshare -rn)");
    }
    for name in plait_netns::sweep()? {
        eprintln!("removed {name}, left behind by an earlier run");
    }
    let usual = std::env::temp_dir().join(format!("plait-conformance-{}", std::process::id()));
    Ok(keep.unwrap_or(usual))
}

/// Runs the selected cases; returns false if a case failed.
pub(crate) fn run(options: &Options, cases: Vec<Case<'_>>) -> Result<bool> {
    let root = prepare(options)?;
    let (mut results, mut failures, mut disturbed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.repeat.get() {
        if options.repeat.get() > 1 {
            println!("round {round} of {}", options.repeat);
        }
        let wanted: Vec<&Case<'_>> = cases.iter().filter(|case| options.wants(case)).collect();
        let root = root.join(round.to_string());
        let ended =
            concurrently(options.jobs, &wanted, |case| one(case, &root.join("first"), options.keeps()));
        for (case, ended) in wanted.iter().zip(ended) {
            let (mut class, mut text) = ended?;
            if class == Class::Failed && options.jobs.get() > 1 {
                println!("again, alone:");
                let beside_others = text;
                (class, text) = one(case, &root.join("again"), options.keeps())?;
                if class != Class::Failed {
                    disturbed.push(format!("{}: {beside_others}", case.name));
                }
            }
            results.push((case.row.clone(), case.column.clone(), class));
            if class == Class::Failed {
                failures.push(format!("{}: {text}", case.name));
            }
        }
    }
    if !options.keeps() {
        let _ = std::fs::remove_dir_all(&root);
    }
    ensure!(!results.is_empty(), "no case is called so; `list` names them");
    print_table(&results);
    if !disturbed.is_empty() {
        println!("\nfailed beside others, and not alone:\n{}", disturbed.join("\n"));
    }
    if !failures.is_empty() {
        println!("\nfailed:\n{}", failures.join("\n"));
    }
    let of = |wanted| results.iter().filter(|(_, _, class)| *class == wanted).count();
    println!("\n{} passed, {} failed", of(Class::Passed), of(Class::Failed));
    for (class, word) in [(Class::Recorded, "recorded"), (Class::NotApplicable, "not applicable")] {
        if of(class) > 0 {
            println!("{} {word}", of(class));
        }
    }
    Ok(of(Class::Failed) == 0)
}

/// Runs one case and prints its line; returns its end, and the evidence or the cause.
fn one(case: &Case<'_>, root: &Path, keep: bool) -> Result<(Class, String)> {
    let directory = root.join(case.name.replace(['/', ' '], "-"));
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let began = Instant::now();
    let (class, text) = match (case.run)(&directory) {
        Ok(Verdict::Passed(evidence)) => (Class::Passed, evidence),
        Ok(Verdict::Recorded(what)) => (Class::Recorded, what),
        Ok(Verdict::NotApplicable(reason)) => (Class::NotApplicable, reason.to_owned()),
        Err(error) => (Class::Failed, format!("{error:#}")),
    };
    let (seconds, text) = (began.elapsed().as_secs_f64(), text.replace('\n', "\n    "));
    println!("{:<40} {:<4} {seconds:6.1} s  {text}", case.name, class.word());
    if class != Class::Failed || !keep {
        std::fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    Ok((class, text))
}

fn print_table(results: &[(String, String, Class)]) {
    let columns: BTreeSet<&str> = results.iter().map(|(_, column, _)| column.as_str()).collect();
    let mut cells: BTreeMap<(&str, &str), Class> = BTreeMap::new();
    for (row, column, class) in results {
        // One failure among many rounds counts.
        let cell = cells.entry((row, column)).or_insert(*class);
        if *cell != Class::Failed {
            *cell = *class;
        }
    }
    let print_row = |name: &str, of: &dyn Fn(&str) -> String| {
        let row: Vec<String> = columns.iter().map(|column| format!("{:<12}", of(column))).collect();
        println!("{name:<40} {}", row.join(" ").trim_end());
    };
    println!();
    print_row("", &|column| column.to_owned());
    let mut printed = BTreeSet::new();
    for (row, _, _) in results {
        if printed.insert(row) {
            let cell = |column: &str| cells.get(&(row.as_str(), column)).map_or("-", |class| class.word());
            print_row(row, &|column| cell(column).to_owned());
        }
    }
}
