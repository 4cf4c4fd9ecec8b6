//! Connections to the server of `run` and `proxy`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use host::{ConnectionError, Failure, Host, Stream};
use proxy::client::Dialer;
use proxy::relay::Abort;
use proxy::url::ServerUrl;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use crate::arguments::{Options, seconds};
use crate::status::Reporter;
use crate::{protection, session};

/// How `run` and `proxy` get to their server.
#[derive(Debug, Args)]
pub(crate) struct Towards {
    /// The server, as `plait serve` prints it: plait://HOST:7443#FINGERPRINT.
    #[arg(short, long, value_name = "SERVER", env = "PLAIT_SERVER")]
    server: ServerUrl,
    /// Give up a connection to the server that is not there after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "20")]
    connect_timeout: Duration,
    #[command(flatten)]
    options: Options,
}

/// Opens streams to one server.
pub(crate) struct Dial {
    host: Host,
    config: host::Config,
    remotes: Vec<SocketAddr>,
    limit: Duration,
    watcher: Arc<Watcher>,
}

/// What is known of all streams together.
struct Watcher {
    peer: Option<SocketAddr>,
    reporter: Mutex<Reporter>,
    moved: AtomicU64,
}

/// One stream; its status is reported at its end.
pub(crate) struct Watched {
    stream: Stream,
    paths: Vec<host::Path>,
    watcher: Arc<Watcher>,
}

impl Towards {
    /// The stack, and where it connects to. The server has been asked once, so that whoever cannot reach it, or
    /// finds another, learns so before a program starts.
    pub(crate) async fn open(&self) -> anyhow::Result<Dial> {
        let authority = self.server.authority();
        let config = protection::config(&self.options)?;
        if !protection::is_sealed(&self.options) && self.server.pin.is_some() {
            anyhow::bail!(
                "the server's key in {} can only be checked where connections are sealed\n  fix: leave out \
                 --protect, or the part behind '#'",
                self.server
            );
        }
        let found = tokio::net::lookup_host((self.server.host.as_str(), self.server.port)).await;
        let mut remotes: Vec<SocketAddr> = Vec::new();
        for address in found.with_context(|| format!("cannot find the address of {}", self.server.host))? {
            if !remotes.contains(&address) {
                remotes.push(address);
            }
        }
        let reporter = Reporter::open(&self.options)?;
        let host = session::host_for(&self.options, remotes.first().map(SocketAddr::ip))?;
        let watcher = Watcher {
            peer: remotes.first().copied(),
            reporter: Mutex::new(reporter),
            moved: AtomicU64::new(0),
        };
        let dial = Dial { host, config, remotes, limit: self.connect_timeout, watcher: Arc::new(watcher) };
        let first = dial.connect().await.with_context(|| format!("cannot reach the server {authority}"))?;
        // Nothing was asked for: a server need not think that something is to come.
        first.abort();
        Ok(dial)
    }
}

impl Dial {
    async fn connect(&self) -> io::Result<Stream> {
        let connecting = self.host.connect_with(self.config.clone(), &self.remotes);
        let late = || io::Error::new(io::ErrorKind::TimedOut, Failure(ConnectionError::TimedOut));
        timeout(self.limit, connecting).await.unwrap_or_else(|_| Err(late()))
    }

    /// Bytes that went through all streams, both directions together.
    pub(crate) fn moved(&self) -> u64 {
        self.watcher.moved.load(Ordering::Relaxed)
    }

    /// Waits until what was written is delivered.
    pub(crate) async fn drained(&self) {
        self.host.drained().await;
    }
}

impl Dialer for Dial {
    type Stream = Watched;

    async fn dial(&self) -> io::Result<Watched> {
        let stream = self.connect().await?;
        Ok(Watched { stream, paths: self.host.paths(), watcher: self.watcher.clone() })
    }
}

impl Watcher {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Abort for Watched {
    fn abort(&mut self) {
        Stream::abort(&self.stream);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(status) = self.stream.status() else { return };
        let mut reporter = self.watcher.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = reporter.report(&self.paths, self.watcher.peer, &status) {
            tracing::warn!(%error, "no status");
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watcher.count(buffer.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, data);
        if let Poll::Ready(Ok(written)) = polled {
            self.watcher.count(written);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
