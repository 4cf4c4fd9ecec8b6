//! `plait down` and `plait cleanup`.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::{self, State};
use super::table;
use crate::exit;
use crate::linux::prerequisite::{self, Check};
use crate::output::say;

/// How long the end of `plait up` may take: its connections have some seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// End plait up, and wait until its rules are removed.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Down {
    /// The server, as it was given to plait up. Another one is an error [default: any].
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Remove what a crash of plait has left in the network of this host, and print it.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Cleanup {}

impl Down {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(missing) = prerequisite::first(&[Check::Privileges, Check::Nft]) {
            return Err(missing.into());
        }
        match State::now() {
            State::Down => bail!("plait up does not run in this network namespace"),
            State::Crashed => {
                say("plait up has crashed; its rules are removed");
                clean_up()
            }
            State::Up(pid) => self.end(pid),
        }
    }

    fn end(&self, pid: u32) -> anyhow::Result<()> {
        if let Some(name) = &self.name
            && !process::words(pid).iter().any(|word| word.to_string_lossy().contains(name.as_str()))
        {
            bail!("plait up runs as process {pid}, for another server than {name}\n  fix: plait down");
        }
        let process = Pid::from_raw(i32::try_from(pid)?);
        match kill(process, Signal::SIGTERM) {
            // It has just ended.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot end plait up, process {pid}")),
        }
        let started = Instant::now();
        while process::is_up(pid) {
            if started.elapsed() > LIMIT {
                bail!("plait up, process {pid}, has not ended within {} seconds", LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // It was killed meanwhile.
        if matches!(State::now(), State::Crashed) { clean_up() } else { Ok(()) }
    }
}

impl Cleanup {
    #[expect(clippy::unused_self, reason = "as the other commands")]
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(missing) = prerequisite::first(&[Check::Privileges, Check::Nft]) {
            return Err(missing.into());
        }
        if let State::Up(pid) = State::now() {
            bail!("plait up runs as process {pid}: its rules stay\n  fix: plait down");
        }
        clean_up()
    }
}

/// Removes what no running process uses, and prints each part.
fn clean_up() -> anyhow::Result<()> {
    // The stack first: until then nothing leaves.
    let mut removed = plait::remove_leftovers().context("cannot remove what the stack has left")?;
    if table::remove() {
        removed.push(format!("table inet {}", super::rules::TABLE));
    }
    let lines: String = removed.iter().map(|part| format!("removed: {part}\n")).collect();
    crate::output::result(if lines.is_empty() { "nothing was left\n".to_owned() } else { lines })
}
