//! The log on standard error.

use std::io::{IsTerminal, stderr};

use clap::{ArgAction, Args};
use tracing_subscriber::EnvFilter;

use crate::output::Log;

/// The options about the log.
#[derive(Clone, Copy, Debug, Args)]
pub struct Verbosity {
    /// Print on standard error which connections and paths open and close; twice: decisions, with addresses; three times: packets.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Print errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

/// Sends logs to standard error, as far as it can be written. `RUST_LOG` takes precedence over the options.
pub fn start(verbosity: Verbosity) {
    let level = match (verbosity.quiet, verbosity.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        // Otherwise a failing formatter panics if standard error cannot be written.
        .log_internal_errors(false)
        .with_ansi(stderr().is_terminal())
        .init();
}
