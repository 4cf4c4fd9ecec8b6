//! Tasks of the project that are neither tests nor part of the program: `cargo xtask --help`.

// A tool with threads, files and an exit code: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod fairness;
mod page;
mod paths;
mod traces;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tasks of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measures in simulated time.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Schedulers over pairs of unlike paths: what two paths carry together, beside what each carries alone.
    Paths(paths::Options),
    /// Beside a connection that comes later: the share of each bottleneck, and how long packets wait there.
    Fairness(fairness::Options),
    /// Pairs of recorded networks: a bulk transfer over both paths and over each alone, with small requests beside it.
    Traces(traces::Options),
    /// A page of many objects over one connection and over several: when its objects are complete.
    Page(page::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Bench(Bench::Paths(options)) => paths::run(&options),
        Task::Bench(Bench::Fairness(options)) => fairness::run(&options),
        Task::Bench(Bench::Traces(options)) => traces::run(&options),
        Task::Bench(Bench::Page(options)) => page::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error:#}");
        ExitCode::FAILURE
    })
}
