//! The part of the server that is replaced.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use plait::Host;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::line::{self, Line};
use super::successor::has_predecessor;
use super::{LIMIT, Message, Upgraded, VERSION, starter};
use crate::linux::control::Public;
use crate::linux::service;

/// The time in which openings that were begun before an upgrade become connections.
pub(crate) const OPENINGS: Duration = Duration::from_secs(5);

/// The way of the control socket to the server of this process.
static REQUESTS: Mutex<Option<mpsc::Sender<Request>>> = Mutex::new(None);

/// A request for an upgrade, with the way to its answer: the new process.
type Request = oneshot::Sender<Result<u32, String>>;

/// Answers a request at the control socket, whenever the upgrade is over.
pub(crate) async fn answer(mut stream: UnixStream) {
    let (reply, answer) = oneshot::channel();
    let requests = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let refused = |why: &str| Err(why.to_owned());
    let answer = match requests.map(|requests| requests.try_send(reply)) {
        Some(Ok(())) => answer.await.unwrap_or_else(|_| refused("it is ending")),
        Some(Err(TrySendError::Full(_))) => refused("it is busy\n  fix: try again"),
        Some(Err(TrySendError::Closed(_))) => refused("it is ending"),
        None => refused("only plait serve can be replaced\n  fix: restart it"),
    };
    let answer = match answer {
        Ok(pid) => Upgraded { pid: Some(pid), error: None },
        Err(error) => Upgraded { pid: None, error: Some(error) },
    };
    let _ = stream.write_all(format!("{}\n", json!(answer)).as_bytes()).await;
}

/// The upgrades of this server, one after another.
pub(crate) struct Upgrades {
    requests: mpsc::Receiver<Request>,
    running: JoinSet<Option<Successor>>,
    host: Host,
    public: Public,
}

/// The process that has taken the ports.
pub(crate) struct Successor {
    line: Line,
    pid: u32,
}

/// What happens at the successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It stops, and this process must, too.
    Stops,
    /// It has ended.
    HasEnded,
}

impl Upgrades {
    /// Takes requests for the server on this host, whose public sockets a successor opens again.
    pub(crate) fn of(host: &Host, public: Public) -> Self {
        let (sender, requests) = mpsc::channel(1);
        *REQUESTS.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Self { requests, running: JoinSet::new(), host: host.clone(), public }
    }

    /// Waits for a successor that has taken over. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Successor {
        loop {
            tokio::select! {
                Some(request) = self.requests.recv() => self.begin(request),
                Some(ended) = self.running.join_next() => {
                    if let Ok(Some(successor)) = ended {
                        return successor;
                    }
                }
                // The sender lives as long as the process.
                else => std::future::pending().await,
            }
        }
    }

    /// Refuses requests, because another process is the server. Never returns.
    pub(crate) async fn refuse(&mut self) {
        while let Some(request) = self.requests.recv().await {
            let _ = request.send(Err("another process has replaced it already".to_owned()));
        }
        std::future::pending::<()>().await;
    }

    fn begin(&mut self, request: Request) {
        let refusal = if !self.running.is_empty() {
            Some("another upgrade is in progress".to_owned())
        } else if self.public.has_capture() {
            Some("it writes a capture (--pcap), which has one writer\n  fix: restart it".to_owned())
        } else {
            has_predecessor().map(|pid| {
                format!(
                    "process {pid}, which it has replaced, still serves connections\n  fix: wait, or end them: kill {pid}"
                )
            })
        };
        if let Some(refusal) = refusal {
            let _ = request.send(Err(refusal));
            return;
        }
        let (host, public) = (self.host.clone(), self.public.clone());
        self.running.spawn(async move {
            match upgrade(&host, &public).await {
                Ok(successor) => {
                    tracing::info!(pid = successor.pid, "replaced: connections go on here to their end");
                    let _ = request.send(Ok(successor.pid));
                    Some(successor)
                }
                Err(error) => {
                    tracing::error!("not replaced: {error:#}");
                    let _ = request.send(Err(format!("{error:#}")));
                    None
                }
            }
        });
    }
}

/// Starts a successor and gives it the ports.
async fn upgrade(host: &Host, public: &Public) -> anyhow::Result<Successor> {
    let (near, far) = line::pair()?;
    let started = spawn_blocking(move || starter::start(&far));
    let pid = started.await.context("the starter was not asked")??;
    let line = Line::of(near)?;
    let successor = Successor { line, pid };
    if let Err(error) = successor.take_over(host, public).await {
        // It ends, if it has not ended.
        let why = "the replaced process goes on".to_owned();
        let _ = successor.line.send(&Message::Failed { why }, None).await;
        return Err(error);
    }
    host.leave_ports().await?;
    service::is_replaced_by(pid).await;
    // If it has ended meanwhile, this process learns it when it waits for the next message.
    let _ = successor.line.send(&Message::Go, None).await;
    Ok(successor)
}

impl Successor {
    /// Waits until the successor is ready, and gives it the ports. After an error this process has them.
    async fn take_over(&self, host: &Host, public: &Public) -> anyhow::Result<()> {
        let late = |what: &str| anyhow::anyhow!("the new process {what} after {LIMIT:?}");
        timeout(LIMIT, self.expect_ready()).await.map_err(|_| late("is not ready"))??;
        public.close().await;
        let taken = timeout(LIMIT, self.take_ports(host)).await;
        let taken = taken.unwrap_or_else(|_| Err(late("does not listen")));
        if taken.is_err() {
            host.take_back().await?;
            public.open()?;
        }
        taken
    }

    async fn expect_ready(&self) -> anyhow::Result<()> {
        match self.receive().await? {
            Message::Ready { version: VERSION } => Ok(()),
            Message::Ready { version } => {
                bail!(
                    "the new program has version {version} of the handover, this one {VERSION}\n  fix: restart it"
                )
            }
            other => bail!("the new process said {other:?}"),
        }
    }

    async fn take_ports(&self, host: &Host) -> anyhow::Result<()> {
        let ports = host.hand_over().await?;
        self.line.send(&Message::Ports, Some(std::os::fd::AsFd::as_fd(&ports))).await?;
        drop(ports);
        match self.receive().await? {
            Message::Listening => Ok(()),
            other => bail!("the new process said {other:?}"),
        }
    }

    async fn receive(&self) -> anyhow::Result<Message> {
        match self.line.receive().await? {
            Some((Message::Failed { why }, _)) => bail!("the new process has failed: {why}"),
            Some((message, _)) => Ok(message),
            None => bail!(
                "the new process ended before it was ready; its messages are where those of this one are"
            ),
        }
    }

    /// Waits for its next event.
    pub(crate) async fn event(&self) -> Event {
        if self.line.stop_or_end().await { Event::Stops } else { Event::HasEnded }
    }
}
