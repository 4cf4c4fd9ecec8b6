//! Children that cannot outlive the run.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netns::Namespace;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

/// How often a waiting loop looks again.
const INTERVAL: Duration = Duration::from_millis(5);

/// A program in a namespace, in a process group of its own, with its output in files. Dropping it kills the group.
pub(crate) struct Program {
    child: Child,
    name: String,
    out: PathBuf,
    err: PathBuf,
    status: Option<ExitStatus>,
}

/// Where standard input comes from, or standard output goes.
pub(crate) enum End {
    /// Nothing there, or the program's own file.
    Own,
    /// This.
    Given(Stdio),
}

impl Program {
    /// Starts `command`; its standard error is `directory/NAME.err`, its standard output `directory/NAME.out` unless given.
    pub(crate) fn start(
        namespace: &Namespace,
        directory: &Path,
        name: &str,
        mut command: Command,
        input: End,
        output: End,
    ) -> Result<Self> {
        let (out, err) = (directory.join(format!("{name}.out")), directory.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).with_context(|| format!("create {}", path.display()));
        command.stderr(create(&err)?).process_group(0);
        command.stdin(match input {
            End::Own => Stdio::null(),
            End::Given(stdio) => stdio,
        });
        match output {
            End::Own => command.stdout(create(&out)?),
            End::Given(stdio) => command.stdout(stdio),
        };
        let child = namespace.spawn(&mut command)?;
        Ok(Self { child, name: name.to_owned(), out, err, status: None })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended: then there is nobody to tell.
        let _ = killpg(self.group(), signal);
    }

    /// Takes the write end of its standard input, if that was made as a pipe; dropping it is the end of the input.
    pub(crate) fn take_input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    /// Waits until its standard error contains `text`.
    pub(crate) fn wait_for_line(&mut self, text: &str, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        loop {
            if self.errors().contains(text) {
                return Ok(());
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

    /// Waits for its end.
    pub(crate) fn wait(&mut self, until: Instant) -> Result<ExitStatus> {
        loop {
            self.has_ended()?;
            if let Some(status) = self.status {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("{} did not end in time and was killed: {}", self.name, self.last_words());
            }
            sleep(INTERVAL);
        }
    }

    /// The last line of JSON on its standard output.
    pub(crate) fn report<T: DeserializeOwned>(&self) -> Result<T> {
        let text = std::fs::read_to_string(&self.out)?;
        let Some(line) = text.lines().last() else {
            bail!("{} ended without a report: {}", self.name, self.last_words());
        };
        serde_json::from_str(line).with_context(|| format!("{} reported `{line}`", self.name))
    }

    /// The file of its standard output.
    pub(crate) fn output(&self) -> &Path {
        &self.out
    }

    /// What it wrote to its standard error.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// The end of its standard error, in one line.
    pub(crate) fn last_words(&self) -> String {
        let text = self.errors();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }

    /// Memory in use that is its own or touched, in bytes (`VmRSS`).
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .with_context(|| format!("{} has ended: {}", self.name, self.last_words()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .with_context(|| format!("{} has ended: {}", self.name, self.last_words()))?
            .count())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = killpg(self.group(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Waits until `done` says yes.
pub(crate) fn wait_until(
    what: &str,
    patience: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let until = Instant::now() + patience;
    while !done()? {
        if Instant::now() > until {
            bail!("{what} did not come in {patience:?}");
        }
        sleep(INTERVAL);
    }
    Ok(())
}
