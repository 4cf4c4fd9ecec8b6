//! Tasks of the project that are neither tests nor part of the program: `cargo xtask --help`.

// A tool with threads, files and an exit code: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod paths;

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
}

fn main() -> ExitCode {
    let Task::Bench(Bench::Paths(options)) = Arguments::parse().task;
    paths::run(&options).unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error:#}");
        ExitCode::FAILURE
    })
}
