//! The lab: two hosts and two paths with an eavesdropper and an injector on each path.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use plait_console::output;
use plait_lab::control::{self, Request};
use plait_lab::{Direction, InjectionLog, LabConfig, Line, PathClass, PathConfig, Summary, privilege};

use crate::prerequisite;

/// Interval of the looks of `watch`.
const LOOKING: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Start the lab in the background: hosts `client` and `server`, and the paths between them. Without --path and --paths: `a`
    /// (trusted) and `b` (untrusted), 100 Mbit/s and 20 ms round trip each.
    #[command(after_long_help = conditions())]
    Up {
        /// A path (repeatable), the same in both directions: its name, rate and one-way delay; then loss, jitter and queue, or any
        /// condition by its name, and whether it is trusted. --help lists the conditions.
        #[arg(long = "path", value_name = "NAME=RATE,DELAY[,LOSS,JITTER,QUEUE...]", value_parser = PathConfig::parse)]
        given: Vec<PathConfig>,
        /// A file with paths, one per line as for --path; # starts a comment.
        #[arg(long, value_name = "FILE", conflicts_with = "given")]
        paths: Option<PathBuf>,
        /// Seed of all random decisions: the same seed and the same packets give the same decisions.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A directory for captures, one per path.
        #[arg(long, value_name = "DIR")]
        captures: Option<PathBuf>,
    },
    /// Stop the lab, with all programs in it; also remove what a killed lab has left behind.
    Down,
    /// Print what each path carried, and what its eavesdropper and injector did.
    Status,
    /// Show what an eavesdropper can read, line by line as it passes, and what the injectors do, until the lab ends.
    Watch {
        /// Only this path.
        path: Option<String>,
    },
    /// Run a shell ($SHELL) in one of the hosts.
    Shell {
        /// `client` or `server`.
        host: String,
    },
    /// Arm an attack: its name, then any of to=client|server, after=BYTES, every=BYTES, count=N, port=N,
    /// lasting=MILLISECONDS; `off` calls off all. --help lists the names.
    #[command(after_long_help = attacks())]
    Attack {
        /// The path of the attack [default: all].
        #[arg(long)]
        path: Option<String>,
        /// The attack.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Change the conditions of a path in use, as in `plait-lab path b loss=2% delay=80ms`, or replay recorded rates: `trace=FILE`; without conditions: show them.
    #[command(after_long_help = conditions())]
    Path {
        /// The path.
        path: String,
        /// In this direction only.
        #[arg(long, value_name = "client|server")]
        to: Option<Direction>,
        /// The conditions to change; the others stay.
        #[arg(value_name = "CONDITION=VALUE")]
        words: Vec<String>,
    },
    /// Print what an eavesdropper has read.
    Text {
        /// The path.
        path: String,
        /// Data sent to the server [default: data sent to the client].
        #[arg(long)]
        to_server: bool,
    },
    /// The process in the background.
    #[command(name = "__serve", hide = true)]
    Serve,
}

/// The attacks and their effects, from their table.
fn attacks() -> String {
    let lines = plait_lab::AttackName::ALL.iter().map(|name| format!("  {name:<26}{}\n", name.about()));
    format!("Attacks:\n{}", lines.collect::<String>())
}

/// The conditions of a path, from their table.
fn conditions() -> String {
    let lines = plait_lab::CONDITIONS.iter().map(|(name, about)| format!("  {name:<15}{about}\n"));
    format!("Conditions:\n{}", lines.collect::<String>())
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Up { given, paths, seed, captures } => {
                let defaults = LabConfig::default();
                let given = match paths {
                    Some(file) => read_paths(&file)?,
                    None => given,
                };
                let paths = if given.is_empty() { defaults.paths } else { given };
                up(LabConfig { paths, seed, captures, ..defaults })
            }
            Self::Down => output::result(
                control::down()?.iter().map(|name| format!("removed {name}\n")).collect::<String>(),
            ),
            Self::Status => {
                let lines: String = control::status()?.paths.iter().map(|path| line(path) + "\n").collect();
                output::result(lines)
            }
            Self::Watch { path } => watch(path.as_deref()),
            Self::Shell { host } => {
                let mut shell = control::shell(&host)?;
                output::say_lines(&format!("in {host}; the server is 10.77.255.2{}\n", places()?));
                Err(shell.exec()).context("starting a shell")
            }
            Self::Attack { path, words } => arm(path, &words),
            Self::Path { path, to, words } => change(&path, to, words),
            Self::Text { path, to_server } => {
                let direction = if to_server { Direction::ToServer } else { Direction::ToClient };
                let text = control::ask(&Request::Text { path, direction, limit: 65_536 })?;
                output::result(text.as_str().unwrap_or_default())
            }
            Self::Serve => Ok(control::serve()?),
        }
    }
}

fn up(config: LabConfig) -> anyhow::Result<()> {
    prerequisite::of_lab()?;
    let program = std::env::current_exe().context("finding the program itself")?;
    let mut daemon = if privilege::is_ordinary_user() {
        privilege::in_user_namespace(program)?
    } else {
        Command::new(program)
    };
    daemon.arg("__serve");
    let status = control::up_detached(daemon, &config)?;
    let hint =
        "up; try: plait-lab shell client; plait-lab watch; plait-lab attack --path b flip; plait-lab down\n";
    let lines: String = status.paths.iter().map(|path| line(path) + "\n").collect();
    output::result(hint.to_owned() + &lines)
}

/// The server's address on each path: of the first, `10.77.0.2`, and so on.
fn places() -> anyhow::Result<String> {
    let paths = control::status()?.paths;
    let place = |(index, path): (usize, &Summary)| format!(", on {} 10.77.{index}.2", path.name);
    Ok(paths.iter().enumerate().map(place).collect())
}

fn read_paths(file: &Path) -> anyhow::Result<Vec<PathConfig>> {
    let named = || format!("the paths in {}", file.display());
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", named()))?;
    let paths = PathConfig::parse_file(&text).with_context(named)?;
    anyhow::ensure!(!paths.is_empty(), "there are no paths in {}", file.display());
    Ok(paths)
}

fn change(path: &str, direction: Option<Direction>, words: Vec<String>) -> anyhow::Result<()> {
    if !words.is_empty() {
        let words = with_whole_files(&words)?;
        control::ask(&Request::Change { path: Some(path.to_owned()), direction, words })?;
    }
    let paths = control::status()?.paths;
    let found = paths.iter().find(|known| known.name == path).with_context(|| {
        let names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
        format!("there is no path `{path}`; there are: {}", names.join(", "))
    })?;
    output::result(format!("path {path}: {}\n", ways(found)))
}

/// The same words with the whole path of a trace: the lab runs in another directory.
fn with_whole_files(words: &[String]) -> anyhow::Result<Vec<String>> {
    let words = words.iter().flat_map(|word| word.split(','));
    let whole = words.map(|word| match word.split_once('=') {
        Some(("trace", file)) => {
            let file = std::fs::canonicalize(file).with_context(|| format!("the trace {file}"))?;
            Ok(format!("trace={}", file.display()))
        }
        Some(_) | None => Ok(word.to_owned()),
    });
    whole.collect()
}

/// The conditions of a path in words: once, if they are the same in both directions.
fn ways(path: &Summary) -> String {
    let [to_server, to_client] = path.conditions.each_ref().map(plait_lab::Conditions::words);
    if to_server == to_client {
        return to_server;
    }
    format!("to the server {to_server}; to the client {to_client}")
}

fn arm(path: Option<String>, words: &[String]) -> anyhow::Result<()> {
    let place = path.as_ref().map_or("all paths".to_owned(), |path| format!("path {path}"));
    if words == ["off"] {
        control::ask(&Request::CallOff { path })?;
        output::result(format!("called off on {place}\n"))
    } else {
        control::attack(path.as_deref(), words.iter().map(String::as_str))?;
        output::result(format!("armed on {place}; plait-lab status says when it has struck\n"))
    }
}

/// Prints what eavesdroppers read and what injectors do.
fn watch(only: Option<&str>) -> anyhow::Result<()> {
    let paths: Vec<String> = control::status()?.paths.into_iter().map(|path| path.name).collect();
    anyhow::ensure!(
        only.is_none_or(|only| paths.iter().any(|path| path == only)),
        "there is no path `{}`; there are: {}",
        only.unwrap_or_default(),
        paths.join(", ")
    );
    let mut watched: Vec<(String, usize)> =
        paths.into_iter().filter(|path| only.is_none_or(|only| only == path)).map(|path| (path, 0)).collect();
    loop {
        for (path, told) in &mut watched {
            let events = news(path, told);
            // The end of the lab ends the output.
            let Ok(events) = events.inspect_err(|error| tracing::debug!(%error, "no more to see")) else {
                return Ok(());
            };
            for (at, direction, text) in events {
                let line = format!("{:>9.3} s  path {path} {direction}  {text}\n", at.as_secs_f64());
                output::result(line)?;
            }
        }
        std::thread::sleep(LOOKING);
    }
}

/// The events on a path since the last call, in the order of time; `told` is the number of tamperings reported before.
fn news(path: &str, told: &mut usize) -> anyhow::Result<Vec<(Duration, Direction, String)>> {
    let path = || path.to_owned();
    let lines: Vec<Line> = serde_json::from_value(control::ask(&Request::Lines { path: path() })?)?;
    let log: InjectionLog = serde_json::from_value(control::ask(&Request::Injections { path: path() })?)?;
    let tamperings = log.entries.iter().skip(*told);
    let tamperings = tamperings.map(|tampering| {
        (tampering.at, tampering.direction, format!("!! {}: {}", tampering.attack, tampering.what))
    });
    let read = lines.into_iter().map(|line| (line.at, line.direction, line.text));
    let mut events: Vec<_> = read.chain(tamperings).collect();
    events.sort_by_key(|event| event.0);
    *told = log.entries.len();
    Ok(events)
}

fn line(path: &Summary) -> String {
    let class = match path.class {
        PathClass::Trusted => "trusted",
        PathClass::Untrusted => "untrusted",
    };
    let state = if path.is_dead { "dead" } else { "up" };
    let heard = |heard: &plait_lab::Heard| {
        format!("{} B, {:.0} % readable", heard.payload, heard.readable_share() * 100.0)
    };
    let armed: Vec<&str> = path.armed.iter().map(|attack| attack.name.as_str()).collect();
    let armed = if armed.is_empty() { String::new() } else { format!("; armed: {}", armed.join(", ")) };
    let unread = match path.to_server.unread + path.to_client.unread {
        0 => String::new(),
        bytes => format!("; {bytes} B passed unread: reading was too slow"),
    };
    format!(
        "path {} ({class}, {state}; {}): {} connections; to the server {}; to the client {}; {} packets injected{armed}{unread}",
        path.name,
        ways(path),
        path.flows,
        heard(&path.to_server),
        heard(&path.to_client),
        path.injected
    )
}
