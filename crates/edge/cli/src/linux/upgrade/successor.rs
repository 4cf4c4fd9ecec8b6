//! The part of the server that replaces another one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait::Host;
use rustix::stdio::{dup2_stdin, stdin};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::line::{self, Line};
use super::{LIMIT, Message, VARIABLE, VERSION};
use crate::linux::control::Question;
use crate::linux::{asking, directory};

/// The process that this one has replaced, while it runs; otherwise 0.
static PREDECESSOR: AtomicU32 = AtomicU32::new(0);

/// The end of the line, for the report of a failure.
static LINE: OnceLock<OwnedFd> = OnceLock::new();

/// The replacement of another server by this one.
pub(crate) struct Succession {
    line: Arc<Line>,
    pid: u32,
    /// Waits for the end of the predecessor.
    watch: Option<JoinHandle<()>>,
}

/// The process that this one has replaced, if it still runs.
pub(super) fn has_predecessor() -> Option<u32> {
    Some(PREDECESSOR.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// The predecessor in the environment, if standard input leads to it.
fn announced() -> Option<u32> {
    let pid = std::env::var(VARIABLE).ok()?.parse().ok()?;
    line::is_end(stdin()).then_some(pid)
}

/// Tells the predecessor, if there is one that waits, why this process ends.
pub(crate) fn report_failure(why: &str) {
    let failed = Message::Failed { why: line::shortened(why) };
    let Ok(text) = serde_json::to_vec(&failed) else { return };
    if let Some(line) = LINE.get() {
        let _ = line::send(line, &text, None);
    } else if announced().is_some() {
        let _ = line::send(stdin(), &text, None);
    }
}

impl Succession {
    /// Takes the line to the predecessor, if this process was started as a successor. Programs that are started from now on do not have it.
    pub(crate) fn take() -> anyhow::Result<Option<Self>> {
        let Some(pid) = announced() else { return Ok(None) };
        let take = || -> io::Result<Line> {
            let line = stdin().try_clone_to_owned()?;
            let _ = LINE.set(line.try_clone()?);
            dup2_stdin(File::open("/dev/null")?)?;
            Line::of(line)
        };
        let line = Arc::new(take().context("cannot talk to the process that is replaced")?);
        Ok(Some(Self { line, pid, watch: None }))
    }

    /// Takes the ports of the predecessor over to `host`, which is ready to listen.
    pub(crate) async fn take_ports(&self, host: &Host) -> anyhow::Result<()> {
        self.line.send(&Message::Ready { version: VERSION }, None).await?;
        let Some((Message::Ports, Some(ports))) = self.receive().await? else {
            bail!("process {} does not give its ports", self.pid);
        };
        host.take_over(ports).await?;
        Ok(())
    }

    /// Tells the predecessor that this process listens, and waits until it is the server.
    pub(crate) async fn complete(&mut self) -> anyhow::Result<()> {
        PREDECESSOR.store(self.pid, Ordering::Relaxed);
        self.line.send(&Message::Listening, None).await?;
        match self.receive().await? {
            Some((Message::Go, _)) => {}
            // It was killed a moment ago.
            None => tracing::warn!(pid = self.pid, "the replaced process has ended before it was asked to"),
            Some(_) => bail!("process {} has taken its ports back", self.pid),
        }
        let (line, pid) = (Arc::clone(&self.line), self.pid);
        self.watch = Some(tokio::spawn(async move {
            tokio::select! {
                _ = line.stop_or_end() => {}
                () = pass_signals(pid) => {}
            }
            tracing::info!(pid, "the replaced process has ended");
            PREDECESSOR.store(0, Ordering::Relaxed);
        }));
        Ok(())
    }

    async fn receive(&self) -> anyhow::Result<Option<(Message, Option<OwnedFd>)>> {
        let received = timeout(LIMIT, self.line.receive()).await;
        received.with_context(|| format!("process {} does not answer", self.pid))?.map_err(Into::into)
    }

    /// Lets the predecessor stop.
    pub(crate) async fn stop(&self) {
        let _ = self.line.send(&Message::Stop, None).await;
    }

    /// Waits until the predecessor has ended, this long at most.
    pub(crate) async fn end(self, limit: Duration) {
        if let Some(watch) = self.watch {
            let _ = timeout(limit, watch).await;
        }
    }
}

/// Passes the signals for a reload and for new files on to the predecessor. Its line shows that the process is still the same. Never
/// returns.
async fn pass_signals(pid: u32) {
    let (Ok(mut hangup), Ok(mut reopen)) =
        (signal(SignalKind::hangup()), signal(SignalKind::user_defined1()))
    else {
        return std::future::pending().await;
    };
    loop {
        let signal = tokio::select! {
            _ = hangup.recv(), if !crate::unix::ignores_hangup() => Signal::SIGHUP,
            _ = reopen.recv() => Signal::SIGUSR1,
        };
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Asks the predecessor the same, if there is one: its connections obey the same changes.
pub(crate) async fn tell_predecessor(question: Question) {
    let Some(pid) = has_predecessor() else { return };
    let asked = spawn_blocking(move || {
        let sockets = directory::sockets();
        let socket = sockets.iter().find(|socket| socket.pid == pid);
        socket.map(|socket| asking::ask_socket(socket, &question, &mut asking::Budget::new()))
    });
    if let Ok(Some(Err(error))) = asked.await {
        tracing::warn!(%error, pid, "the replaced process does not follow a change");
    }
}
