//! Two `plait` programs under attack, in network namespaces.
//!
//! Each *trial* brings up a lab (crate `lab`): a client, a server, two paths with an eavesdropper and an injector on each. The
//! programs in it are started as a person would start them; nothing here is linked with the stack, and the attackers know only
//! what crosses their path. A trial passes with evidence or fails with a reason; those of other systems are recorded as they
//! happen.
//!
//! * [`trial`]: the register and what a trial is given; [`runner`]: one after the other, a line each, a table at the end.
//! * [`stage`]: the lab and the programs in it; [`program`]: children that cannot outlive their trial.
//! * [`exchange`]: a known stream each way, and what arrives of it; [`peer`]: the same programs of the kernel's Multipath TCP.
//! * [`wiretap`]: what is in the captures; [`secrets`] and [`memory`]: which keys there are, and whether a process still has them.
//! * [`trials`]: the trials.

// This program is the operating-system side: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod exchange;
mod memory;
mod peer;
mod program;
mod runner;
mod secrets;
mod stage;
mod trial;
mod trials;
mod wiretap;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Attacks two plait programs in a lab, and says what came of it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the trials.
    List,
    /// Run trials (as root); ends with 1 if one fails.
    Run(runner::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::List => {
            runner::list();
            Ok(true)
        }
        Action::Run(options) => runner::run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("siege: {error:#}");
            ExitCode::from(2)
        }
    }
}
