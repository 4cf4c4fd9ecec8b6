//! The Linux kernel as the peer: scenarios in network namespaces, with the kernel's counters as evidence.
//!
//! Two hosts, each a network namespace, are joined by two paths, each with a router of its own in the middle, so that a path can
//! be cut, slowed, corrupted or silenced without either host being told. One host runs `plait`, the
//! other a program on the kernel's `IPPROTO_MPTCP` sockets ([`peer`]). With `--baseline` the kernel takes both sides: this
//! shows that the scenarios hold for a peer known to be good, and what the kernel's own figures are.
//!
//! * [`testbed`]: the hosts and paths; [`middlebox`]: what a path does to packets.
//! * [`peer`]: the kernel-side programs, run as `interop peer ...` inside a namespace.
//! * [`process`]: children that cannot outlive the run; [`session`]: one transfer between the two hosts.
//! * [`scenario`]: the register of scenarios and what one is given; [`scenarios`]: the scenarios.
//! * [`runner`]: one after the other, a line each, a table at the end.

// This program is the operating-system side: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod middlebox;
mod peer;
mod process;
mod runner;
mod scenario;
mod scenarios;
mod session;
mod testbed;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Shows that plait and the Linux kernel understand each other.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the scenarios.
    List,
    /// Run scenarios (as root); ends with 1 if one fails.
    Run(runner::Options),
    /// A kernel-side program of a scenario, in the namespace it is started in.
    #[command(subcommand)]
    Peer(peer::Action),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Action::List => {
            runner::list();
            Ok(true)
        }
        Action::Run(options) => runner::run(&options),
        Action::Peer(action) => peer::run(action).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop: {error:#}");
            ExitCode::from(2)
        }
    }
}
