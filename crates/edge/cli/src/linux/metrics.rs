//! `--metrics`: the counters of this process over HTTP, in the formats of OpenMetrics and Prometheus.
//!
//! Nothing is counted for the metrics: a scrape reads the counters that exist. Its cost is bounded whatever the scrapers do: there are
//! at most [`MAX_SCRAPERS`] at a time, each sends one short request within a time limit, and all share what was read a moment ago.

mod http;
mod snapshot;
mod table;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use self::snapshot::Snapshot;
use crate::linux::control::{self, Subject};
use crate::metrics_place::MetricsPlace;
use crate::output::say;

/// Most scrapers at a time. More are disconnected at once.
const MAX_SCRAPERS: usize = 8;
/// Time limit of a scrape, from its connection to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which scrapers share what was read: looking at thousands of connections takes time.
const FRESH: Duration = Duration::from_millis(500);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves the metrics until it is dropped.
#[must_use = "metrics are no longer served when it is dropped"]
pub(crate) struct Metrics {
    task: JoinHandle<()>,
    /// The socket to remove at the end.
    socket: Option<PathBuf>,
}

/// What all scrapers share.
struct Shared {
    subject: Subject,
    last: Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves the metrics of `subject` at `place`.
///
/// # Errors
/// The place cannot be listened on.
pub(crate) fn serve(place: &MetricsPlace, subject: Subject) -> anyhow::Result<Metrics> {
    let context =
        || format!("cannot serve metrics at {place}\n  fix: another --metrics ADDRESS:PORT|unix:PATH");
    let (listener, socket) = match place {
        MetricsPlace::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address).with_context(context)?;
            listener.set_nonblocking(true)?;
            say(&format!("metrics at http://{}/metrics", listener.local_addr()?));
            (Listener::Tcp(TcpListener::from_std(listener)?), None)
        }
        MetricsPlace::Unix(path) => {
            let listener = UnixListener::from_std(control::bind(path).with_context(context)?)?;
            (Listener::Unix(listener), Some(path.clone()))
        }
    };
    let shared = Arc::new(Shared { subject, last: Mutex::default() });
    Ok(Metrics { task: tokio::spawn(accept_all(listener, shared)), socket })
}

impl Metrics {
    /// Serves them no longer: another process can listen at the place when this returns.
    pub(crate) async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.task.abort();
        // It may have been removed before.
        self.socket.iter().for_each(|socket| drop(fs::remove_file(socket)));
    }
}

async fn accept_all(listener: Listener, shared: Arc<Shared>) {
    // Ends with this task.
    let mut scrapers = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = scrapers.join_next() => continue,
            accepted = accept(&listener) => accepted,
        };
        match accepted {
            // The connection is dropped.
            Ok(_) if scrapers.len() >= MAX_SCRAPERS => tracing::debug!("too many scrapers"),
            Ok(stream) => {
                let shared = shared.clone();
                scrapers.spawn(async move {
                    let scraped = timeout(TIMEOUT, stream.scrape(&shared)).await;
                    tracing::debug!(?scraped, "metrics were asked for");
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a scraper must wait");
                sleep(PAUSE).await;
            }
        }
    }
}

/// A connection of a scraper.
enum Scraper {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> io::Result<Scraper> {
    match listener {
        Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| Scraper::Tcp(stream)),
        Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| Scraper::Unix(stream)),
    }
}

impl Scraper {
    async fn scrape(self, shared: &Shared) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => answer(stream, shared, http::Hosts::Loopback).await,
            Self::Unix(stream) => {
                control::check_user(&stream)?;
                answer(stream, shared, http::Hosts::Any).await
            }
        }
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
    hosts: http::Hosts,
) -> io::Result<()> {
    let request = http::read(&mut stream, hosts).await?;
    let response = match request {
        Ok(request) => {
            let page = shared.snapshot().await?.page(request.format);
            http::Response::page(&request, page)
        }
        Err(refusal) => http::Response::refusal(refusal),
    };
    response.write(&mut stream).await
}

impl Shared {
    /// The counters now, or a moment ago.
    async fn snapshot(&self) -> io::Result<Arc<Snapshot>> {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, snapshot)) if at.elapsed() < FRESH => Ok(snapshot.clone()),
            Some(_) | None => {
                let subject = self.subject.clone();
                // On a thread of its own: the connections go on meanwhile.
                let taken = spawn_blocking(move || Snapshot::take(&subject)).await?;
                let snapshot = Arc::new(taken);
                *last = Some((Instant::now(), snapshot.clone()));
                Ok(snapshot)
            }
        }
    }
}
