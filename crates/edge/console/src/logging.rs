//! The log: on standard error, in the journal or in a file.

use std::env;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{ArgAction, Args, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry, reload};

use crate::log_file::{Appender, LogFile};
use crate::output::Log;

/// The options about the log.
#[derive(Clone, Debug, Default, Args)]
pub struct Verbosity {
    /// Log which connections and paths open and close; twice: decisions, with addresses; three times: packets.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Log errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Format of the log: text, or json, one object in each line [default: text; fields of the journal if standard error is the journal].
    #[arg(long, value_enum, value_name = "FORMAT", global = true)]
    log_format: Option<LogFormat>,
    /// Append the log to FILE instead of standard error. SIGUSR1 opens the file again.
    #[arg(long, value_name = "FILE", global = true)]
    log_file: Option<PathBuf>,
}

/// The format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// The levels of the log that [`start`] has made.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// A layer that writes the lines.
type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// Sends logs where the options ask for them, as far as they can be written. `RUST_LOG` takes precedence over the level of the options.
///
/// # Errors
/// The log file cannot be opened.
pub fn start(verbosity: &Verbosity) -> anyhow::Result<()> {
    let format = verbosity.log_format;
    let lines = match &verbosity.log_file {
        Some(file) => {
            let file = Appender(LogFile::open(file)?);
            lines(format, move || file.clone(), false)
        }
        None => journal(format).unwrap_or_else(|| lines(format, || Log, stderr().is_terminal())),
    };
    let targets =
        env::var("RUST_LOG").ok().and_then(|words| asked(&words)).unwrap_or_else(|| verbosity.targets());
    let (targets, levels) = reload::Layer::new(targets);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
    // Set once: a second start would have panicked above.
    let _ = LEVELS.set(levels);
    Ok(())
}

/// Changes the most detailed lines, unless `RUST_LOG` gives them.
pub fn change(verbosity: &Verbosity) {
    let is_fixed = env::var("RUST_LOG").ok().and_then(|words| asked(&words)).is_some();
    if let Some(levels) = LEVELS.get().filter(|_| !is_fixed) {
        // It fails only if the log has ended.
        let _ = levels.reload(verbosity.targets());
    }
}

fn lines<W>(format: Option<LogFormat>, writer: W, has_colors: bool) -> Lines
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // Otherwise a failing formatter panics if standard error cannot be written.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    match format {
        None | Some(LogFormat::Text) => lines.with_ansi(has_colors).boxed(),
        Some(LogFormat::Json) => {
            lines.with_ansi(false).json().flatten_event(true).with_span_list(false).boxed()
        }
    }
}

/// Returns the journal, with fields and priorities, if standard error is a stream of the journal and no format is asked for.
#[cfg(target_os = "linux")]
fn journal(format: Option<LogFormat>) -> Option<Lines> {
    use tracing_journald::{Priority, PriorityMappings};
    let stream = env::var("JOURNAL_STREAM").ok().filter(|_| format.is_none())?;
    let file = nix::sys::stat::fstat(stderr()).ok()?;
    // A child may have inherited the variable and not the stream.
    if stream != format!("{}:{}", file.st_dev, file.st_ino) {
        return None;
    }
    let priorities =
        PriorityMappings { info: Priority::Informational, debug: Priority::Debug, ..PriorityMappings::new() };
    Some(tracing_journald::layer().ok()?.with_priority_mappings(priorities).boxed())
}

#[cfg(not(target_os = "linux"))]
fn journal(_format: Option<LogFormat>) -> Option<Lines> {
    None
}

/// Returns what a value of `RUST_LOG` asks for; `None` if it is empty or invalid.
fn asked(words: &str) -> Option<Targets> {
    if words.is_empty() { None } else { words.parse().ok() }
}

impl Verbosity {
    /// Returns the most detailed lines, of all modules alike, except the validator of DNSSEC: it logs each of its steps with the answers,
    /// and plait logs the result.
    fn targets(&self) -> Targets {
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
        let level =
            |quiet, verbose| Verbosity { quiet, verbose, ..Verbosity::default() }.targets().default_level();
        assert_eq!(level(true, 0), Some(Level::ERROR));
        let steps = [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE, Level::TRACE];
        assert_eq!([0, 1, 2, 3, 4].map(|verbose| level(false, verbose)), steps.map(Some));
    }

    #[test]
    fn the_validator_of_dnssec_logs_only_where_it_is_asked_for_by_name() {
        let error = Level::ERROR.into_level().expect("it is one");
        let logs = |targets: Targets| targets.would_enable("hickory_net::dnssec", &error);
        assert!(!logs(Verbosity { verbose: 3, ..Verbosity::default() }.targets()));
        assert!(logs(asked("hickory_net=error").expect("valid")));
    }
}
