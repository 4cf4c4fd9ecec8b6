//! The service protocol of systemd, sd_notify(3): the service manager learns when a server is ready, what it does, that it still runs,
//! that it reads files again, and that it stops.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. In both cases, SIGHUP is passed on to the tasks that read files again.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plait::PathState;
use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::running::Running;
use crate::session::is_told;
use crate::system::Hangups;

/// Time between two looks at the status. A status is sent if it has changed.
const LOOK: Duration = Duration::from_secs(3);
/// Time limit for reading files again, after which the reload counts as done.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);
/// Most devices that a status names: it is one line, which `systemctl status` cuts off at the width of the terminal.
const MAX_NAMED: usize = 8;
/// Time that the stop may take in addition to that of the connections.
const REST: Duration = Duration::from_secs(10);

/// A request to read files again. It is done when this is dropped.
#[derive(Debug)]
pub(crate) struct Reload(#[allow(dead_code, reason = "dropping it is the answer")] oneshot::Sender<()>);

/// The requests to read files again, one for each SIGHUP.
pub(crate) type Reloads = mpsc::Receiver<Reload>;

/// The tasks that talk to the service manager and wait for SIGHUP. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    running: Running,
    readers: Vec<mpsc::Sender<Reload>>,
    tasks: JoinSet<()>,
}

/// Whether a service manager has started this process and waits for messages. It retries what fails, and the machine may be starting
/// without a network: then missing paths are waited for.
pub(crate) fn is_supervised() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

impl Service {
    pub(crate) fn new(running: &Running) -> Self {
        Self { running: running.clone(), readers: Vec::new(), tasks: JoinSet::new() }
    }

    /// Returns the requests to read files again, for one more reader. SIGHUP arrives from [`Self::is_ready`] on.
    pub(crate) fn reloads(&mut self) -> Reloads {
        let (reader, reloads) = mpsc::channel(1);
        self.readers.push(reader);
        reloads
    }

    /// Tells the service manager that the sockets are bound, and from now on what this process does.
    pub(crate) async fn is_ready(&mut self) {
        self.tasks.spawn(reload_at_hangup(std::mem::take(&mut self.readers), self.running.clone()));
        if !is_supervised() {
            return;
        }
        let status = status(&self.running);
        send(vec![Message::Ready, Message::Status(status.clone())]).await;
        self.tasks.spawn(tell_status(self.running.clone(), status));
        if let Some(limit) = sd_notify::watchdog_enabled() {
            self.tasks.spawn(feed_watchdog(self.running.clone(), limit / 2));
        }
    }

    /// Tells the service manager that this process stops, and that connections may go on for so long.
    pub(crate) async fn stops(&self, farewell: Duration) {
        let limit = u32::try_from((farewell + REST).as_micros()).unwrap_or(u32::MAX);
        send(vec![Message::Stopping, Message::ExtendTimeout(limit), Message::Status("stopping".to_owned())])
            .await;
    }
}

/// A message to the service manager, for another thread.
#[derive(Debug)]
enum Message {
    Ready,
    MainPid(u32),
    Status(String),
    Watchdog,
    Reloading,
    Stopping,
    ExtendTimeout(u32),
}

/// Tells the service manager that another process is the service now. It hears nothing more of this one.
pub(crate) async fn is_replaced_by(pid: u32) {
    send(vec![Message::Ready, Message::MainPid(pid)]).await;
    IS_REPLACED.store(true, Ordering::Relaxed);
}

/// Whether another process talks to the service manager.
static IS_REPLACED: AtomicBool = AtomicBool::new(false);

/// Sends a message. If the service manager cannot be reached, the process continues.
async fn send(message: Vec<Message>) {
    if !is_supervised() || IS_REPLACED.load(Ordering::Relaxed) {
        return;
    }
    let sent = spawn_blocking(move || {
        let mut states = Vec::new();
        for part in &message {
            match part {
                Message::Ready => states.push(NotifyState::Ready),
                Message::MainPid(pid) => states.push(NotifyState::MainPid(*pid)),
                Message::Status(words) => states.push(NotifyState::Status(words)),
                Message::Watchdog => states.push(NotifyState::Watchdog),
                // The manager tells by the time which reload it was.
                Message::Reloading => {
                    states.extend([NotifyState::Reloading, NotifyState::monotonic_usec_now()?]);
                }
                Message::Stopping => states.push(NotifyState::Stopping),
                Message::ExtendTimeout(micros) => states.push(NotifyState::ExtendTimeoutUsec(*micros)),
            }
        }
        sd_notify::notify(&states)
    });
    if let Ok(Err(error)) = sent.await {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// Sends the status whenever it has changed. Never returns.
async fn tell_status(running: Running, mut told: String) {
    let mut look = ticks(LOOK);
    loop {
        look.tick().await;
        let now = status(&running);
        if now != told && !running.is_stopping() {
            send(vec![Message::Status(now.clone())]).await;
            told = now;
        }
    }
}

/// Tells the watchdog of the service manager that this process runs, as long as the event loop turns. Never returns.
async fn feed_watchdog(running: Running, period: Duration) {
    let mut beat = ticks(period);
    let mut last = None;
    loop {
        beat.tick().await;
        // Before the first host is there, this task is the evidence.
        let turns = running.host().map(|(_, pulse)| pulse.turns());
        if turns.is_none() || turns != last {
            send(vec![Message::Watchdog]).await;
        } else {
            tracing::error!("the event loop has not turned for {period:?}: the watchdog is not told");
        }
        last = turns;
    }
}

/// Passes each SIGHUP on to all readers, and tells the service manager when it begins and when all have read. Never returns.
pub(crate) async fn reload_at_hangup(readers: Vec<mpsc::Sender<Reload>>, running: Running) {
    let mut hangups = Hangups::listen();
    loop {
        hangups.next().await;
        send(vec![Message::Reloading]).await;
        let mut answers = Vec::new();
        for reader in &readers {
            let (done, answer) = oneshot::channel();
            // A reader that is still reading has not seen the files of now.
            if timeout(RELOAD_LIMIT, reader.send(Reload(done))).await.is_ok_and(|sent| sent.is_ok()) {
                answers.push(answer);
            }
        }
        for answer in answers {
            let _ = timeout(RELOAD_LIMIT, answer).await;
        }
        let reloaded = running.reload().ask().await;
        tracing::debug!(?reloaded, "SIGHUP");
        send(vec![Message::Ready]).await;
    }
}

/// Returns requests to read files again for a single reader, and the task that passes SIGHUP on to it.
pub(crate) fn reloads_of_one(running: &Running) -> (Reloads, impl Future<Output = ()> + use<>) {
    let (reader, reloads) = mpsc::channel(1);
    (reloads, reload_at_hangup(vec![reader], running.clone()))
}

fn ticks(period: Duration) -> tokio::time::Interval {
    // A period of zero is none.
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What this process does, in a line.
fn status(running: &Running) -> String {
    let (opened, open) = running.counts();
    let connections = format!("connections: {open} of {opened}");
    if let Some(why) = running.waits_for() {
        return format!("{}; waiting for the server: {why}", running.what());
    }
    match running.host() {
        Some((control, _)) => {
            let paths = control.paths();
            format!("{}; {}; {connections}", running.what(), reachability(&paths))
        }
        None => format!("{}; no path yet", running.what()),
    }
}

/// The usable paths, each device once.
fn reachability(paths: &[PathState]) -> String {
    let told: Vec<_> = paths.iter().filter(|path| is_told(path, paths)).map(PathState::device).collect();
    let is_up = |device: &&str| paths.iter().any(|path| path.device() == *device && path.is_up());
    let (up, down): (Vec<&str>, Vec<&str>) = told.into_iter().partition(is_up);
    let others: Vec<_> = up.iter().filter(|device| **device != plait::LOOPBACK).collect();
    match (&up[..], &down[..]) {
        ([], []) => "waiting for a path".to_owned(),
        ([], down) => format!("waiting for a path: {} cannot be used", names(down)),
        (up, _) if others.is_empty() => format!("paths up: {}: no other host is reached", names(up)),
        (up, []) => format!("paths up: {}", names(up)),
        (up, down) => format!("paths up: {}, down: {}", names(up), names(down)),
    }
}

fn names(devices: &[&str]) -> String {
    let named = devices.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(" ");
    match devices.len().checked_sub(MAX_NAMED) {
        None | Some(0) => named,
        Some(more) => format!("{named} and {more} more"),
    }
}
