//! Programs in a namespace that cannot outlive the process that started them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use plait_netns::Namespace;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Interval of a waiting loop.
const INTERVAL: Duration = Duration::from_millis(5);
/// Lines of standard error in messages.
const LAST_LINES: usize = 4;
/// The carrier of `plait` in a lab, unless its command line selects one: attackers and captures here decode TCP alone.
pub(crate) const CARRIER: (&str, &str) = ("PLAIT_CARRIER", "tcp");

/// A program in a namespace, the first of a process group of its own, with its output in files. Dropping it kills the group.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    out: PathBuf,
    err: PathBuf,
    status: Option<ExitStatus>,
}

/// The source of standard input, or the destination of standard output.
#[derive(Debug)]
pub enum End {
    /// Empty, or the program's own file.
    Own,
    /// A pipe, to be taken by the caller.
    Pipe,
    /// This file.
    Given(Stdio),
}

impl Program {
    /// Starts `command`; its standard error is `directory/NAME.err`, its standard output `directory/NAME.out` unless it goes elsewhere.
    ///
    /// # Errors
    /// The files cannot be created, the program is missing, or the namespace is gone.
    pub fn start(
        namespace: &Namespace,
        directory: &Path,
        name: &str,
        mut command: Command,
        input: End,
        output: End,
    ) -> Result<Self> {
        let files = prepare(&mut command, directory, name, input, output)?;
        command.env(CARRIER.0, CARRIER.1);
        Ok(Self::of(namespace.spawn(&mut command)?, name, files))
    }

    /// The same in the namespace of the caller.
    ///
    /// # Errors
    /// The files cannot be created, or the program is missing.
    pub fn start_here(
        directory: &Path,
        name: &str,
        mut command: Command,
        input: End,
        output: End,
    ) -> Result<Self> {
        let files = prepare(&mut command, directory, name, input, output)?;
        let child = command.spawn().map_err(Error::system(format!("start {name}")))?;
        Ok(Self::of(child, name, files))
    }

    fn of(child: Child, name: &str, [out, err]: [PathBuf; 2]) -> Self {
        Self { child, name: name.to_owned(), out, err, status: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program and its children; does nothing if the program has ended.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The program may have ended unseen: then there is no process to signal.
            let _ = killpg(self.group(), signal);
        }
    }

    /// Takes the write end of its standard input, if that is a pipe; dropping it is the end of the input.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the read end of its standard output, if that is a pipe.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// Here and below: the kernel does not return the state.
    pub fn has_ended(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(Error::system(format!("wait for {}", self.name)))?;
        }
        Ok(self.status.is_some())
    }

    /// Its exit status, if it has ended and was waited for.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Waits until its standard error contains `text`; returns that line.
    ///
    /// # Errors
    /// It ended before, or did not write the text in time.
    pub fn wait_for_line(&mut self, text: &str, timeout: Duration) -> Result<String> {
        let file = self.err.clone();
        self.wait_for_line_in(&file, text, timeout)
    }

    /// The same in its standard output, if that is a file of its own.
    ///
    /// # Errors
    /// It ended before, or did not write the text in time.
    pub fn wait_for_output(&mut self, text: &str, timeout: Duration) -> Result<String> {
        let file = self.out.clone();
        self.wait_for_line_in(&file, text, timeout)
    }

    fn wait_for_line_in(&mut self, file: &Path, text: &str, timeout: Duration) -> Result<String> {
        let until = Instant::now() + timeout;
        loop {
            // Checked before the read: the last output counts as well.
            let has_ended = self.has_ended()?;
            let said = std::fs::read_to_string(file).unwrap_or_default();
            // A line is complete when its end is there.
            let mut lines = said.split_inclusive('\n').filter(|line| has_ended || line.ends_with('\n'));
            if let Some(line) = lines.find(|line| line.contains(text)) {
                return Ok(line.trim_end().to_owned());
            }
            if has_ended {
                return Err(self.wrong(&format!("ended before it said `{text}`")));
            }
            if Instant::now() > until {
                return Err(self.wrong(&format!("did not say `{text}` in {timeout:?}")));
            }
            sleep(INTERVAL);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It still runs.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.wait_by(Instant::now() + timeout)
    }

    /// The same with a deadline.
    ///
    /// # Errors
    /// It still runs.
    pub fn wait_by(&mut self, until: Instant) -> Result<ExitStatus> {
        loop {
            self.has_ended()?;
            if let Some(status) = self.status {
                return Ok(status);
            }
            if Instant::now() > until {
                return Err(self.wrong("did not end in time"));
            }
            sleep(INTERVAL);
        }
    }

    /// Terminates it, and waits until it has removed its devices and rules.
    ///
    /// # Errors
    /// It still runs.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.wait(timeout)
    }

    /// The last line of JSON on its standard output.
    ///
    /// # Errors
    /// There is none, or it has another form.
    pub fn report<T: DeserializeOwned>(&self) -> Result<T> {
        let text = std::fs::read_to_string(&self.out)
            .map_err(Error::system(format!("read what {} wrote", self.name)))?;
        let line = text.lines().last().ok_or_else(|| self.wrong("ended without a report"))?;
        serde_json::from_str(line).map_err(|error| self.wrong(&format!("reported `{line}` ({error})")))
    }

    /// The file of its standard output.
    pub fn output(&self) -> &Path {
        &self.out
    }

    /// Its standard error.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// The end of its standard error, in one line.
    pub fn last_words(&self) -> String {
        let text = self.errors();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// Memory in use that is its own or touched, in bytes (`VmRSS`).
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .map_err(|_| self.wrong("has ended"))?;
        let kilobytes =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        let number = kilobytes.and_then(|text| text.trim().parse::<u64>().ok());
        Ok(number.ok_or_else(|| self.wrong("has no VmRSS"))? * 1024)
    }

    /// Open descriptors.
    ///
    /// # Errors
    /// It has ended.
    pub fn descriptors(&self) -> Result<usize> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        Ok(open.map_err(|_| self.wrong("has ended"))?.count())
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Program(format!("{} {what}: {}", self.name, self.last_words()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After the wait, its number may belong to another process.
        if self.status.is_none() {
            let _ = killpg(self.group(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Connects standard input and output of a program before its start: the files of its standard output and of its standard error.
fn prepare(
    command: &mut Command,
    directory: &Path,
    name: &str,
    input: End,
    output: End,
) -> Result<[PathBuf; 2]> {
    let [out, err] = ["out", "err"].map(|end| directory.join(format!("{name}.{end}")));
    let create =
        |path: &Path| File::create(path).map_err(Error::system(format!("create {}", path.display())));
    command.stderr(create(&err)?).process_group(0);
    command.stdin(match input {
        End::Own => Stdio::null(),
        End::Pipe => Stdio::piped(),
        End::Given(stdio) => stdio,
    });
    match output {
        End::Own => command.stdout(create(&out)?),
        End::Pipe => command.stdout(Stdio::piped()),
        End::Given(stdio) => command.stdout(stdio),
    };
    Ok([out, err])
}

/// Polls until `done` returns true.
///
/// # Errors
/// It does not in time, or fails.
pub fn wait_until<E: From<Error>>(
    what: &str,
    timeout: Duration,
    mut done: impl FnMut() -> std::result::Result<bool, E>,
) -> std::result::Result<(), E> {
    let until = Instant::now() + timeout;
    while !done()? {
        if Instant::now() > until {
            return Err(Error::Program(format!("{what} did not come in {timeout:?}")).into());
        }
        sleep(INTERVAL);
    }
    Ok(())
}
