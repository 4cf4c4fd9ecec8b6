//! The log on standard error.

use std::env;
use std::io::{IsTerminal, stderr};
use std::sync::OnceLock;

use clap::{ArgAction, Args};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

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

/// The levels of the log that [`start`] has made.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Sends logs to standard error, as far as it can be written. `RUST_LOG` takes precedence over the options.
pub fn start(verbosity: Verbosity) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Log)
        // Otherwise a failing formatter panics if standard error cannot be written.
        .log_internal_errors(false)
        .with_ansi(stderr().is_terminal());
    let targets =
        env::var("RUST_LOG").ok().and_then(|words| asked(&words)).unwrap_or_else(|| verbosity.targets());
    let (targets, levels) = reload::Layer::new(targets);
    tracing_subscriber::registry().with(targets).with(lines).init();
    // Set once: a second start would have panicked above.
    let _ = LEVELS.set(levels);
}

/// Changes the most detailed lines, unless `RUST_LOG` gives them.
pub fn change(verbosity: Verbosity) {
    let is_fixed = env::var("RUST_LOG").ok().and_then(|words| asked(&words)).is_some();
    if let Some(levels) = LEVELS.get().filter(|_| !is_fixed) {
        // It fails only if the log has ended.
        let _ = levels.reload(verbosity.targets());
    }
}

/// Returns what a value of `RUST_LOG` asks for; `None` if it is empty or invalid.
fn asked(words: &str) -> Option<Targets> {
    if words.is_empty() { None } else { words.parse().ok() }
}

impl Verbosity {
    /// Returns the most detailed lines, of all modules alike, except the validator of DNSSEC: it logs each of its steps with the answers,
    /// and plait logs the result.
    fn targets(self) -> Targets {
        let level = match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::WARN,
            (false, 1) => LevelFilter::INFO,
            (false, 2) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        let silent = ["hickory_net", "hickory_proto"].map(|module| (module, LevelFilter::OFF));
        Targets::new().with_targets(silent).with_default(level)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter as Level;

    use super::*;

    #[test]
    fn a_variable_names_levels_of_modules_and_a_mistake_leaves_those_of_the_options() {
        let targets = asked("warn,plait_mptcp=trace,plait_host=off").expect("valid");
        assert_eq!(targets.default_level(), Some(Level::WARN));
        let levels: Vec<_> = targets.iter().collect();
        assert!(levels.contains(&("plait_mptcp", Level::TRACE)), "{levels:?}");
        assert!(levels.contains(&("plait_host", Level::OFF)), "{levels:?}");
        for mistake in ["", "plait=loud", "a=b=c"] {
            assert!(asked(mistake).is_none(), "{mistake:?}");
        }
    }

    #[test]
    fn each_option_is_one_step() {
        let level = |quiet, verbose| Verbosity { quiet, verbose }.targets().default_level();
        assert_eq!(level(true, 0), Some(Level::ERROR));
        let steps = [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE, Level::TRACE];
        assert_eq!([0, 1, 2, 3, 4].map(|verbose| level(false, verbose)), steps.map(Some));
    }

    #[test]
    fn the_validator_of_dnssec_logs_only_where_it_is_asked_for_by_name() {
        let error = Level::ERROR.into_level().expect("it is one");
        let logs = |targets: Targets| targets.would_enable("hickory_net::dnssec", &error);
        assert!(!logs(Verbosity { quiet: false, verbose: 3 }.targets()));
        assert!(logs(asked("hickory_net=error").expect("valid")));
    }
}
