//! `plait status` and `plait path`: query a running plait, at the socket in the runtime directory or at that of `--control`.

mod details;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::details::details;
use crate::linux::control::{PathNow, Question};
use crate::linux::directory::{self, Socket};
use crate::linux::upgrade;
use crate::output;
use crate::reload::Reloaded;
use crate::shown::shown;
use crate::status::SCHEMA;

/// A running plait to ask.
#[derive(Clone, Debug, Args)]
pub(super) struct Whom {
    /// The process to ask, as plait status lists it [default: the only one that runs].
    #[arg(long, value_name = "PID", conflicts_with = "control")]
    pid: Option<u32>,
    /// The socket that the process was given with --control.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// Most bytes of all answers together: of one process, or of all processes of another user, which may be there to hold root
/// up.
pub(super) struct Budget {
    until: Instant,
    bytes: usize,
}

impl Budget {
    /// Longest answer that is read.
    const BYTES: usize = 64 << 20;
    /// Time limit of one answer, from the first byte to the last.
    const TIME: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Self {
        Self { until: Instant::now() + Self::TIME, bytes: Self::BYTES }
    }

    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(remaining) }
    }

    /// Writes the question and reads the answer to its end.
    fn exchange(&mut self, mut stream: UnixStream, question: &str) -> io::Result<String> {
        stream.set_write_timeout(Some(self.remaining()?))?;
        stream.write_all(question.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let (mut answer, mut part) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            stream.set_read_timeout(Some(self.remaining()?))?;
            let len = match stream.read(&mut part) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.bytes = self.bytes.checked_sub(len).ok_or(ErrorKind::FileTooLarge)?;
            answer.extend_from_slice(&part[..len]);
        }
        String::from_utf8(answer).map_err(|_| ErrorKind::InvalidData.into())
    }
}

/// List the running plaits of this user, and what they do.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The process to report, or all; without it, one line per process.
    #[arg(value_name = "PID|all", value_parser = which)]
    which: Option<Which>,
    /// Print everything as JSON: {"schema": 1, "plaits": [...]}, connections as --status-json writes them.
    #[arg(long)]
    json: bool,
}

/// Show how a running plait uses its paths, or change it.
#[derive(Debug, Args)]
pub(crate) struct PathArguments {
    /// The process to ask, as plait status lists it [default: the only one that runs].
    #[arg(long, global = true, value_name = "PID", conflicts_with = "control")]
    pid: Option<u32>,
    /// The socket that the process was given with --control.
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Print as JSON: {"schema": 1, "paths": [...]}.
    #[arg(long, global = true)]
    json: bool,
    /// Paths to use differently from now on, as for --path: DEV[=trusted|untrusted|never][,backup].
    #[arg(value_name = "DEV[=HOW]")]
    changes: Vec<plait::Path>,
    #[command(subcommand)]
    other: Option<OtherPaths>,
}

/// Changes of the set of paths.
#[derive(Debug, Subcommand)]
enum OtherPaths {
    /// Add paths, as for --path. Running connections join over them.
    Add {
        /// A device to use, or several, and their role, as for --path.
        #[arg(value_name = "DEV[=HOW]", required = true)]
        paths: Vec<plait::Path>,
    },
    /// Remove paths. Running connections leave them.
    Remove {
        /// The devices, as they were given.
        #[arg(value_name = "DEV", required = true)]
        paths: Vec<plait::Path>,
    },
}

/// Make a running plait read its options again: its command line and environment as they were, and the file as it is now. A file with a
/// mistake changes nothing.
#[derive(Debug, Args)]
pub(crate) struct ReloadArguments {
    /// The process, as plait status lists it [default: the only one that runs].
    #[arg(long, value_name = "PID", conflicts_with = "control")]
    pid: Option<u32>,
    /// The socket that the process was given with --control.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Print as JSON: {"changed": [...], "needs_restart": [...], "errors": [...]}.
    #[arg(long)]
    json: bool,
}

/// The processes to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    All,
    Process(u32),
}

fn which(text: &str) -> Result<Which, &'static str> {
    match text {
        "all" => Ok(Which::All),
        number => number.parse().map(Which::Process).map_err(|_| "neither the number of a process nor all"),
    }
}

impl StatusArguments {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut told = Vec::new();
        let mut others: BTreeMap<u32, Budget> = BTreeMap::new();
        for socket in directory::sockets() {
            let pid = socket.pid;
            if let Some(Which::Process(wanted)) = self.which
                && wanted != pid
            {
                continue;
            }
            let mut own = Budget::new();
            let budget = match socket.other_owner() {
                Some(owner) => others.entry(owner).or_insert_with(Budget::new),
                None => &mut own,
            };
            match ask_socket(&socket, &Question::Status, budget) {
                Ok(answer) => told.push(answer),
                // The process may have just ended; a user that asked for it by number is told.
                Err(error) if self.which == Some(Which::Process(pid)) => return Err(error),
                Err(error) => tracing::info!(%error, pid, "no answer"),
            }
        }
        if let (Some(Which::Process(pid)), true) = (self.which, told.is_empty()) {
            bail!("no plait of this user runs as process {pid}\n  fix: plait status lists those that do");
        }
        let text = match (self.json, self.which) {
            (true, _) => format!("{}\n", json!({ "schema": SCHEMA, "plaits": told })),
            (false, None) => table(&told),
            (false, Some(_)) => told.iter().map(details).collect(),
        };
        output::result(text)
    }
}

impl PathArguments {
    /// Sends the question and prints the answer.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let texts = |paths: &[plait::Path]| paths.iter().map(plait::Path::to_string).collect();
        if self.other.is_some() && !self.changes.is_empty() {
            bail!("paths are changed, added or removed, one of them at a time");
        }
        let question = match &self.other {
            None => Question::Paths(texts(&self.changes)),
            Some(OtherPaths::Add { paths }) => Question::Add(texts(paths)),
            Some(OtherPaths::Remove { paths }) => Question::Remove(texts(paths)),
        };
        let answer = ask_one(self.control.as_deref(), self.pid, &question)?;
        let text = if self.json { format!("{answer}\n") } else { lines(&paths(&answer)?, ["", ""]) };
        output::result(text)
    }
}

impl ReloadArguments {
    /// Asks for the reload and prints what has changed.
    ///
    /// # Errors
    /// A part of the configuration is not in effect.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let answer = ask_one(self.control.as_deref(), self.pid, &Question::Reload)?;
        let reloaded: Reloaded =
            serde_json::from_value(answer).context("the answer is none that this version understands")?;
        let text = if self.json { format!("{}\n", json!(reloaded)) } else { shown_lines(&reloaded.words()) };
        output::result(text)?;
        match &reloaded.errors[..] {
            [] => Ok(()),
            errors => {
                bail!("{}", errors.iter().map(|error| shown_lines(error)).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// Asks the plait behind a socket, or with this number, or the only one that runs.
fn ask_one(control: Option<&Path>, pid: Option<u32>, question: &Question) -> anyhow::Result<Value> {
    match (control, pid) {
        (Some(place), _) => ask(place, UnixStream::connect(place), question, &mut Budget::new()),
        (None, pid) => ask_socket(&socket_of(pid)?, question, &mut Budget::new()),
    }
}

/// Text of several lines, safe for a terminal.
pub(super) fn shown_lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').map_or_else(|| shown(line), |line| shown(line) + "\n"))
        .collect()
}

/// The answers of the processes of this user that run.
pub(super) fn own_plaits() -> Vec<Value> {
    let own = directory::sockets().into_iter().filter(|socket| socket.other_owner().is_none());
    own.filter_map(|socket| ask_socket(&socket, &Question::Status, &mut Budget::new()).ok()).collect()
}

impl Whom {
    /// The socket of the process, so that later questions go to the same one.
    pub(super) fn find(&self) -> anyhow::Result<Found> {
        match &self.control {
            Some(place) => Ok(Found::Named(place.clone())),
            None => socket_of(self.pid).map(Found::Own),
        }
    }
}

/// A running plait that was found.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Named(PathBuf),
    Own(Socket),
}

impl Found {
    pub(super) fn status(&self) -> anyhow::Result<Value> {
        match self {
            Self::Named(place) => {
                ask(place, UnixStream::connect(place), &Question::Status, &mut Budget::new())
            }
            Self::Own(socket) => ask_socket(socket, &Question::Status, &mut Budget::new()),
        }
    }
}

/// The socket of a process, or of the only one that runs.
fn socket_of(pid: Option<u32>) -> anyhow::Result<Socket> {
    let sockets = upgrade::candidates(pid);
    match (&sockets[..], pid) {
        ([socket], _) => Ok(socket.clone()),
        ([], Some(pid)) => {
            bail!("no plait of this user runs as process {pid}\n  fix: plait status lists those that do")
        }
        ([], None) => {
            bail!(
                "no plait of this user runs\n  fix: run this command as the user that started it; root sees all"
            )
        }
        (several, _) => {
            let pids: Vec<String> = several.iter().map(|socket| socket.pid.to_string()).collect();
            bail!(
                "several plaits run: {}\n  fix: say which: --pid PID (plait status tells what they do)",
                pids.join(", ")
            )
        }
    }
}

pub(super) fn ask_socket(socket: &Socket, question: &Question, budget: &mut Budget) -> anyhow::Result<Value> {
    ask(&socket.path(), socket.connect(), question, budget)
}

fn ask(
    place: &Path,
    stream: io::Result<UnixStream>,
    question: &Question,
    budget: &mut Budget,
) -> anyhow::Result<Value> {
    let name = place.display();
    let stream = stream
        .with_context(|| format!("no plait listens on {name}\n  fix: plait status lists those that run"))?;
    let line = format!("{}\n", serde_json::to_string(question)?);
    let answer = budget.exchange(stream, &line);
    let answer = answer.with_context(|| format!("the plait behind {name} does not answer"))?;
    let answer: Value = serde_json::from_str(&answer)
        .with_context(|| format!("the plait behind {name} says what this version does not understand"))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => bail!("{}", shown(error)),
        None => Ok(answer),
    }
}

fn paths(answer: &Value) -> anyhow::Result<Vec<PathNow>> {
    serde_json::from_value(answer["paths"].clone())
        .context("the answer has no paths that this version understands")
}

/// A line for each path, and for each network that several of them share.
fn lines(paths: &[PathNow], [before_path, before_network]: [&str; 2]) -> String {
    let shared: BTreeSet<_> = paths.iter().filter_map(|path| path.shares_network.as_deref()).collect();
    let shared = shared.into_iter().map(|network| format!("{before_network}{}\n", shown(network)));
    paths.iter().map(|path| format!("{before_path}{}", line(path))).chain(shared).collect()
}

/// `wlan0=untrusted,backup up 192.0.2.2 2001:db8::2`.
fn line(path: &PathNow) -> String {
    let backup = if path.backup { ",backup" } else { "" };
    let state = if path.up { "up" } else { "down" };
    let over = if path.carrier == "udp" { " over udp" } else { "" };
    let addresses: String = path.addresses.iter().map(|address| format!(" {address}")).collect();
    shown(&format!("{}={}{backup} {state}{over}{addresses}", path.name, path.class)) + "\n"
}

/// Prints a line for each process.
fn table(told: &[Value]) -> String {
    if told.is_empty() {
        return "no plait of this user runs\n".to_owned();
    }
    let header = ["PID", "COMMAND", "SINCE", "STATE", "OPEN", "PATHS", "WHAT"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(told.iter().map(|plait| {
        let of = |path: PathNow| if path.up { path.name } else { format!("{} (down)", path.name) };
        let paths: Vec<String> = paths(plait).unwrap_or_default().into_iter().map(of).collect();
        let [pid, kind, since, state, open, what] =
            ["pid", "kind", "started", "state", "connections_open", "what"].map(|name| word(&plait[name]));
        [pid, kind, since, state, open, shown(&paths.join(", ")), what]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// A value as people read it.
pub(super) fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plait() -> Value {
        json!({
            "schema": 1, "pid": 7, "kind": "serve", "what": "port 7443\u{1b}[2J", "started": "2026-09-02T10:00:00Z",
            "state": "running", "connections_open": 1, "connections_opened": 3,
            "paths": [{ "name": "eth0", "carrier": "udp", "class": "trusted", "backup": true, "up": true,
                        "addresses": ["192.0.2.2"] }],
            "clients": [{ "name": "laptop\u{1b}", "key": "SHA256:x", "connections_open": 1, "connections_opened": 3, "connections_ready": 2,
                "bytes_received": 6, "bytes_sent": 5 }],
            "devices": [{ "addresses": ["10.1.0.2", "fd00::2"], "mac": "02:00:00:00:00:01", "connections_open": 1, "connections_opened": 4,
                "connections_refused": 2, "questions": 3, "questions_refused": 0, "bytes_up": 7, "bytes_down": 8 }],
            "connections": [{ "started": "2026-09-02T10:00:01Z", "client": "laptop", "peer": "192.0.2.9:4000",
                "destination": "example.org:443", "sealed": { "suite": "aes" }, "scrambling": null,
                "bytes_delivered": 5, "bytes_read": 6,
                "datagrams": { "flows_open": 2, "sent": 9, "sent_in_stream": 0, "received": 8, "lost": 1, "unreported": 0, "late": 0,
                    "repeated": 3, "forged": 0, "dropped": 0, "dropped_arrived": 0 },
                "subflows": [{ "path": "eth0", "usable": true }, { "path": "wlan0", "usable": false }] }],
        })
    }

    #[test]
    fn a_time_limit_is_for_the_whole_answer_and_for_all_answers_of_another_user() {
        let mut budget = Budget { until: Instant::now() + Duration::from_millis(300), bytes: 1 << 20 };
        let begun = Instant::now();
        for _ in 0..3 {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            // Sends a byte now and then, for as long as the other end takes it.
            let answering = std::thread::spawn(move || {
                while theirs.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let error = budget.exchange(ours, "status").expect_err("no end");
            assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
            answering.join().expect("no panic");
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }

    #[test]
    fn an_answer_without_an_end_is_read_up_to_its_limit() {
        let mut budget = Budget { until: Instant::now() + Duration::from_secs(60), bytes: 1 << 20 };
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let answering = std::thread::spawn(move || while theirs.write_all(&[b' '; 4096]).is_ok() {});
        let error = budget.exchange(ours, "status").expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        answering.join().expect("no panic");
    }

    #[test]
    fn a_plait_is_a_line_and_a_terminal_obeys_nothing_of_it() {
        let text = table(&[plait()]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.ends_with(
                "7    serve    2026-09-02T10:00:00Z  running  1     eth0   port 7443\u{fffd}[2J\n"
            ),
            "{text}"
        );
        assert_eq!(table(&[]), "no plait of this user runs\n");
    }

    #[test]
    fn a_connection_is_listed_with_client_destination_bytes_and_paths() {
        let text = details(&plait());
        for line in [
            "  path eth0=trusted,backup up over udp 192.0.2.2\n",
            "  client laptop\u{fffd}: 1 connections open of 3, 2 ready, received 6, sent 5 bytes\n",
            "  device 10.1.0.2, fd00::2 (02:00:00:00:00:01): 1 connections open of 4, 2 refused; 3 questions of DNS, 0 refused; sent 7, received \
             8 bytes\n",
            "  connection since 2026-09-02T10:00:01Z from laptop with 192.0.2.9:4000 to example.org:443: sealed with aes, sent 5, \
             received 6 bytes over eth0; datagrams: flows open 2, sent 9, received 8, lost 1, repeated 3\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn an_answer_that_lacks_everything_is_shown_all_the_same() {
        let _ = (
            details(&json!({})),
            table(&[json!({ "paths": 3 })]),
            details(&json!({ "connections": [1, {}], "clients": [{}, "x"], "devices": [{}, 1] })),
        );
    }
}
