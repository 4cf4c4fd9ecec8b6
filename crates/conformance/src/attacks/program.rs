//! Children that cannot outlive their trial.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::Host;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often a waiting loop looks again.
const INTERVAL: Duration = Duration::from_millis(5);

/// A program in a host of the lab, with pipes as standard input and output and its words in a file. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    name: &'static str,
    words: PathBuf,
    ended: Option<ExitStatus>,
}

/// How a program ended.
pub(crate) struct Ending {
    /// Its exit code; `None`: it was killed, by us or by a signal.
    pub(crate) code: Option<i32>,
    /// The last lines of its standard error.
    pub(crate) said: String,
}

impl Program {
    /// Starts `command`; its standard error goes to `directory/NAME.err`.
    pub(crate) fn start(
        host: &Host,
        directory: &Path,
        name: &'static str,
        command: &mut Command,
    ) -> Result<Self> {
        let words = directory.join(format!("{name}.err"));
        let errors = File::create(&words).with_context(|| format!("create {}", words.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        Ok(Self { child: host.spawn(command)?, name, words, ended: None })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Both ends of its pipes, once.
    pub(crate) fn take_pipes(&mut self) -> Result<(ChildStdin, ChildStdout)> {
        let input = self.child.stdin.take().context("its standard input is taken")?;
        Ok((input, self.child.stdout.take().context("its standard output is taken")?))
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        if !self.has_ended()? {
            kill(Pid::from_raw(self.child.id().cast_signed()), signal)?;
        }
        Ok(())
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended.is_some())
    }

    /// Waits until its standard error contains `text`; the line with it.
    pub(crate) fn wait_for_words(&mut self, text: &str, patience: Duration) -> Result<String> {
        let until = Instant::now() + patience;
        loop {
            let words = self.words();
            if let Some(line) = words.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if self.has_ended()? {
                bail!("{} ended before it said `{text}`: {}", self.name, self.last_words());
            }
            if Instant::now() > until {
                bail!("{} did not say `{text}` in {patience:?}: {}", self.name, self.last_words());
            }
            sleep(INTERVAL);
        }
    }

    /// Waits until it ends; an error if it does not.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<Ending> {
        let until = Instant::now() + patience;
        while !self.has_ended()? {
            if Instant::now() > until {
                bail!("{} does not end in {patience:?}: {}", self.name, self.last_words());
            }
            sleep(INTERVAL);
        }
        Ok(Ending { code: self.ended.and_then(|status| status.code()), said: self.last_words() })
    }

    /// Asks it to end, and waits until it has taken its devices and rules away.
    pub(crate) fn stop(&mut self, patience: Duration) -> Result<Ending> {
        self.signal(Signal::SIGTERM)?;
        self.wait(patience)
    }

    /// What it wrote to its standard error.
    pub(crate) fn words(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let text = self.words();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It may have ended since: then there is nobody to kill.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
