//! The cost of a segment in instructions: `scripts/counts --help`.
//!
//! The program starts itself in callgrind, where it runs its [cases] with fixed seeds and marks what is to be counted ([gauge]). The
//! outer one reads what was counted ([callgrind]) and compares it with what was written down ([baseline], [compare]). A count says
//! nothing of caches, branches and waiting; it says the same on every run, on a busy machine too.

// A tool with files, programs and an exit code: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod baseline;
mod callgrind;
mod cases;
mod compare;
mod gauge;
#[path = "../../../core/mptcp/tests/sealing/mod.rs"]
mod sealing;
mod surroundings;
#[path = "../../../core/mptcp/tests/world/mod.rs"]
mod world;

use anyhow::{Context, bail};
use baseline::Baseline;
use callgrind::Count;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use surroundings::Surroundings;

/// Counts the instructions of segments in and out, and compares them with the baseline.
#[derive(Parser)]
#[command(name = "scripts/counts", max_term_width = 120)]
struct Options {
    /// Write down what is counted, as the new baseline.
    #[arg(long, conflicts_with_all = ["only", "functions"])]
    write: bool,
    /// Count only cases with this in their names, and judge nothing.
    #[arg(long)]
    only: Option<String>,
    /// Tell of each case the N functions that execute the most themselves, and judge nothing.
    #[arg(long, value_name = "N")]
    functions: Option<usize>,
    /// Be what callgrind runs.
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.inside {
        surroundings::tell_machine();
        cases::run(options.only.as_deref());
        return ExitCode::SUCCESS;
    }
    run(&options).unwrap_or_else(|error| {
        eprintln!("counts: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) {
        bail!("what a debug build executes says nothing\nfix: scripts/counts");
    }
    let (counts, machine) = callgrind::count(options.only.as_deref())?;
    let found = Baseline { surroundings: Surroundings::look(machine)?, counts };
    if options.write {
        std::fs::write(path(), found.to_string()).with_context(|| path().display().to_string())?;
        println!("{} cases are written to {}", found.counts.len(), path().display());
        return Ok(ExitCode::SUCCESS);
    }
    if options.only.is_some() || options.functions.is_some() {
        found.counts.iter().for_each(|count| tell(count, options.functions.unwrap_or(0)));
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(path()).with_context(|| path().display().to_string())?;
    let report = compare::compare(&text.parse()?, &found);
    print!("{report}");
    Ok(if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(count: &Count, functions: usize) {
    println!("{count}");
    for (name, share) in count.functions.iter().take(functions) {
        println!("    {share:>9} {name}");
    }
}

/// The file of the baseline: beside the sources that this program was built from.
fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("baseline.txt")
}
