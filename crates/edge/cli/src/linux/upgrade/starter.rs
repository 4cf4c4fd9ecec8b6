//! The process that starts the successors of a server.
//!
//! A server enters its sandbox before it opens a socket, and a program that it starts stays in that sandbox: it reaches no other directories
//! than its predecessor, and each generation adds a layer. So the server starts a *starter* before: a second process of this program, outside
//! of the sandbox, that waits at a socket and does one thing. On request it starts the command line that it has got at its own start. A
//! server that was taken over cannot choose another one.
//!
//! For each request, the starter starts another starter in its place, then the successor, and ends. So init, or the service manager, is the
//! parent of the successor and learns of its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::{Deserialize, Serialize};

use super::{VARIABLE, line};

/// The name of the process, by which it knows its part.
const NAME: &str = "plait: starter";

/// The starter of this server.
#[derive(Debug)]
struct Starter {
    line: OwnedFd,
    /// The first one, until it has ended.
    child: Option<Child>,
}

static STARTER: Mutex<Option<Starter>> = Mutex::new(None);

/// The answer of a starter.
#[derive(Debug, Serialize, Deserialize)]
enum Started {
    As(u32),
    Not(String),
}

/// Starts the starter of this process, before the sandbox is entered. Without one there is no upgrade.
pub(crate) fn prepare() {
    let started = line::pair().and_then(|(near, far)| {
        let child = starter(std::env::args_os(), far.into()).spawn()?;
        Ok(Starter { line: near, child: Some(child) })
    });
    match started {
        Ok(starter) => *STARTER.lock().unwrap_or_else(PoisonError::into_inner) = Some(starter),
        Err(error) => tracing::warn!(%error, "plait upgrade is not possible"),
    }
}

fn starter(words: impl Iterator<Item = OsString>, line: Stdio) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // In a group of its own: Ctrl-C at a terminal is for the server.
    command.arg0(NAME).args(words).stdin(line).process_group(0);
    command
}

/// Starts a successor with this end of the line as its standard input; returns its process. Waits for the starter.
pub(super) fn start(far: &OwnedFd) -> anyhow::Result<u32> {
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Starter { line, child }) = starter.as_mut() else {
        anyhow::bail!("its starter could not be started\n  fix: restart it");
    };
    let own = std::process::id().to_string();
    line::send(&*line, own.as_bytes(), Some(far.as_fd()))?;
    let (answer, _) = line::receive(&*line)?;
    // It ends after its answer.
    if let Some(mut child) = child.take() {
        let _ = child.wait();
    }
    if answer.is_empty() {
        anyhow::bail!("its starter has ended\n  fix: restart it");
    }
    match serde_json::from_slice(&answer)? {
        Started::As(pid) => Ok(pid),
        Started::Not(why) => anyhow::bail!("{why}"),
    }
}

/// Plays the part of a starter, if this process is one.
pub(crate) fn run_if_starter() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    (words.next()? == NAME).then(|| {
        // It is outside of the sandbox, and the server has the same user: its memory is no way out, also without Landlock.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = serve(words.collect());
        ExitCode::SUCCESS
    })
}

/// Waits for a request, and handles it.
fn serve(words: Vec<OsString>) -> io::Result<()> {
    let line = io::stdin();
    let (predecessor, far) = line::receive(&line)?;
    let Some(far) = far else { return Ok(()) };
    let next = starter(words.iter().cloned(), Stdio::inherit()).spawn();
    let started = next.and_then(|_| successor(&words, far, &String::from_utf8_lossy(&predecessor)));
    let program = words.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    let answer = match started {
        Ok(child) => Started::As(child.id()),
        Err(error) => Started::Not(format!("cannot start {program}: {error}")),
    };
    line::send(&line, &serde_json::to_vec(&answer)?, None)
}

/// Starts the program as it is on disk now.
fn successor(words: &[OsString], far: OwnedFd, predecessor: &str) -> io::Result<Child> {
    let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    // The watchdog of the service manager was for the first process.
    command.args(words).env(VARIABLE, predecessor).env_remove("WATCHDOG_PID");
    command.stdin(far).process_group(0).spawn()
}
