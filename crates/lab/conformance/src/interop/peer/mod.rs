//! The kernel-side programs, run as `interop peer ...` inside a namespace.

mod attack;
mod crowd;
mod pattern;
mod pipe;
mod raw;
mod report;
mod transfer;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use pattern::sha256_of_pattern;
pub(crate) use report::{CrowdReport, Protocol, TransferReport, wall_clock_ms};

/// One program.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Accept connections and transfer over each.
    Listen(transfer::Listen),
    /// Connect and transfer.
    Connect(transfer::Connect),
    /// Write pseudo-random bytes to standard output.
    Generate(pipe::Generate),
    /// Read standard input to its end and report what arrived.
    Digest(pipe::Digest),
    /// Open many short connections.
    Churn(crowd::Churn),
    /// Open many connections and keep them idle until standard input ends.
    Hold(crowd::Hold),
    /// Send SYNs without a third segment.
    Flood(attack::Flood),
    /// Send segments a correct peer never sends.
    Garbage(attack::Garbage),
}

/// Runs one program; its report is one line of JSON on standard output.
pub(crate) fn run(action: Action) -> Result<()> {
    match action {
        Action::Listen(options) => transfer::listen(&options),
        Action::Connect(options) => transfer::connect(&options),
        Action::Generate(options) => pipe::generate(&options),
        Action::Digest(options) => pipe::digest(&options),
        Action::Churn(options) => crowd::churn(&options),
        Action::Hold(options) => crowd::hold(&options),
        Action::Flood(options) => attack::flood(&options),
        Action::Garbage(options) => attack::garbage(&options),
    }
}
