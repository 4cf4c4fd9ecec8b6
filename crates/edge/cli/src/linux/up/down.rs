//! `plait down` and `plait cleanup`.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::{self, Owner, State};
use super::table;
use crate::exit;
use crate::linux::prerequisite::{self, Check};
use crate::output::say;

/// How long the end of a process may take: its connections have some seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// End plait up or plait gateway, and wait until its rules are removed.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Down {
    /// The server, as it was given to that command. Another one is an error [default: any].
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
        for owner in Owner::ALL {
            match State::of(owner) {
                State::Down => {}
                State::Crashed => {
                    say(&format!("{} has crashed; its rules are removed", owner.name()));
                    return clean_up();
                }
                State::Up(pid) => return self.end(owner, pid),
            }
        }
        bail!("neither plait up nor plait gateway runs in this network namespace")
    }

    fn end(&self, owner: Owner, pid: u32) -> anyhow::Result<()> {
        let command = owner.name();
        if let Some(name) = &self.name
            && !process::words(pid).iter().any(|word| word.to_string_lossy().contains(name.as_str()))
        {
            bail!("{command} runs as process {pid}, for another server than {name}\n  fix: plait down");
        }
        let process = Pid::from_raw(i32::try_from(pid)?);
        match kill(process, Signal::SIGTERM) {
            // It has just ended.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot end {command}, process {pid}")),
        }
        let started = Instant::now();
        while process::is_up(owner, pid) {
            if started.elapsed() > LIMIT {
                bail!("{command}, process {pid}, has not ended within {} seconds", LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // It was killed meanwhile.
        if matches!(State::of(owner), State::Crashed) { clean_up() } else { Ok(()) }
    }
}

impl Cleanup {
    #[expect(clippy::unused_self, reason = "as the other commands")]
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(missing) = prerequisite::first(&[Check::Privileges, Check::Nft]) {
            return Err(missing.into());
        }
        for owner in Owner::ALL {
            if let State::Up(pid) = State::of(owner) {
                bail!("{} runs as process {pid}: its rules stay\n  fix: plait down", owner.name());
            }
        }
        clean_up()
    }
}

/// Removes what no running process uses, and prints each part.
fn clean_up() -> anyhow::Result<()> {
    // The stack first: until then nothing leaves.
    let mut removed = plait::remove_leftovers().context("cannot remove what the stack has left")?;
    let tables = Owner::ALL.into_iter().filter(|owner| table::remove(*owner));
    removed.extend(tables.map(|owner| format!("table inet {}", owner.table())));
    let lines: String = removed.iter().map(|part| format!("removed: {part}\n")).collect();
    crate::output::result(if lines.is_empty() { "nothing was left\n".to_owned() } else { lines })
}
