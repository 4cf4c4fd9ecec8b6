//! Tests `plait` in network namespaces: with the Linux kernel as its peer, and under attack.
//!
//! The `plait` program is started as a user starts it; nothing here is linked with the stack.
//!
//! * [`interop`]: the kernel as the peer, with the kernel's own counters as evidence.
//! * [`attacks`]: two `plait` programs with an eavesdropper and an injector on each path, with the injector's own log as evidence.
//! * [`mod@bench`]: throughput over unlike paths, shares of a path, and times, beside those of the kernel.
//! * [`runner`]: cases one after the other, a line each, a table at the end.

// This program is the operating-system side: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod attacks;
mod bench;
mod interop;
mod runner;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs plait against the Linux kernel, and under attack.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Group,
}

#[derive(Subcommand)]
enum Group {
    /// The Linux kernel as the peer.
    #[command(subcommand)]
    Interop(Interop),
    /// Two plait programs under attack.
    #[command(subcommand)]
    Attacks(Attacks),
    /// Measure plait's share of a path beside the kernel's TCP (as root); ends with 1 if the share is wrong.
    Fairness(bench::fairness::Options),
    /// Measure plait's throughput over unlike paths beside the kernel's Multipath TCP (as root); ends with 1 if it misses its goals.
    Pairs(bench::pairs::Options),
    /// A kernel-side program of a scenario, in the namespace it is started in.
    #[command(subcommand)]
    Peer(interop::peer::Action),
}

#[derive(Subcommand)]
enum Interop {
    /// List the scenarios.
    List,
    /// Run scenarios (as root); ends with 1 if one fails.
    Run(interop::runner::Selection),
}

#[derive(Subcommand)]
enum Attacks {
    /// List the cases.
    List,
    /// Run cases (as root); ends with 1 if one fails.
    Run(attacks::runner::Selection),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Group::Interop(Interop::List) => {
            interop::runner::list();
            Ok(true)
        }
        Group::Attacks(Attacks::List) => {
            attacks::runner::list();
            Ok(true)
        }
        Group::Interop(Interop::Run(options)) => interop::runner::run(&options),
        Group::Attacks(Attacks::Run(options)) => attacks::runner::run(&options),
        Group::Fairness(options) => bench::fairness::run(&options),
        Group::Pairs(options) => bench::pairs::run(&options),
        Group::Peer(action) => interop::peer::run(action).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_one_that_clap_takes() {
        Arguments::command().debug_assert();
    }
}
