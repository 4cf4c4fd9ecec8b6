//! Connections to the server of `run`, `proxy` and `forward`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Args;
use plait::{Datagrams, Host, Status, Stream, Subflow};
use plait_proxy::client::{self, Dialer};
use plait_proxy::convert::{Destination, Instance};
use plait_proxy::relay::Abort;
use plait_proxy::silence::SilenceLimit;
use plait_proxy::url::ServerUrl;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::certificate::Authorities;
use crate::contact::Contact;
use crate::half_closed::HalfClosed;
use crate::line::{Beside, Line};
use crate::options::{Options, seconds};
use crate::protection::HostPaths;
use crate::running::{Listed, Running};
use crate::servers::{Choice, Failure, Servers};
use crate::status::Reporter;
use crate::system::arguments::Command;
use crate::system::control::{self, Control};
use crate::system::firewall::Opening;
use crate::time_limit::TimeLimit;
use crate::warm::{Kept, WarmLimit};
use crate::{protection, session};

/// The server of `run`, `proxy` and `forward`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Towards {
    /// A server by its name in the configuration, or by its address as for --server.
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    /// The server, as `plait serve` prints it: plait://HOST:7443#FINGERPRINT. Or its name in the configuration. Repeatable: the other servers
    /// are used while the first does not answer. Then the key of each must be known, and connections must be sealed.
    #[arg(
        id = "server",
        short,
        long = "server",
        value_name = "SERVER",
        required = false,
        required_unless_present = "name"
    )]
    servers: Vec<ServerUrl>,
    /// How to choose among several servers. The chosen one is kept until it does not answer any more.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    server_choice: Choice,
    /// Give up a connection to the server that is not open after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "20")]
    connect_timeout: Duration,
    /// Reset stalled connections if the server has not answered for so many seconds [default: they wait about two minutes]. Connections to
    /// a server that was restarted are reset as soon as the server has proved that.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    dead_after: Option<Duration>,
    #[command(flatten)]
    half_closed: HalfClosed,
    #[command(flatten)]
    warm: WarmLimit,
    #[command(flatten)]
    pub(crate) authorities: Authorities,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Opens streams to the server, or to one of several.
pub(crate) struct Dial {
    servers: Arc<Servers>,
    host: Host,
    reporter: Arc<Mutex<Reporter>>,
    /// `None` for a further stack of the process, whose paths are fixed.
    reloads: Option<JoinHandle<()>>,
    silence: SilenceLimit,
    _control: Option<Control>,
    _firewall: Option<Opening>,
}

/// One stream; its status is reported at its end.
pub(crate) struct Watched {
    listed: Listed,
    stream: Stream,
    written: Arc<AtomicU64>,
    line: Arc<Line>,
    reporter: Arc<Mutex<Reporter>>,
}

impl Towards {
    /// Opens the stack and the connection to a server. The server is asked once first, so that an unreachable or wrong server is reported
    /// before a program starts.
    pub(crate) async fn open(self: &Arc<Self>, running: Running) -> anyhow::Result<Dial> {
        self.require_keys()?;
        let limit = TimeLimit::new(Some(self.connect_timeout));
        let found = self.resolve(limit).await?;
        let found_at = Instant::now();
        let reporter = Reporter::open(&self.options)?;
        // Contradicting options are reported before a network is set up.
        for server in &self.servers {
            self.contact(server).protection(server.pin, HostPaths::Several)?;
        }
        let towards = found.iter().flatten().next().map(SocketAddr::ip);
        let host = session::host_for(&self.options, towards)?;
        let host = self.authorities.with_anchors(host)?.start()?;
        let firewall = session::clear_the_way(&self.options, &host)?;
        let servers = Servers::new(self, (host.clone(), running.clone()), found);
        if let Err(failures) = servers.begin(limit.without(found_at.elapsed())).await {
            drop((servers, host));
            return Err(self.explain(failures).await);
        }
        running.is_up();
        let is_first = !running.is_beside();
        let control = is_first.then(|| control::open(&self.options, &host, &running)).transpose()?;
        let servers = Arc::new(servers);
        let changed = servers.clone();
        let apply = async move |option: &str, new: &Command| match (option, new.towards()) {
            ("warm", Some(new)) => {
                changed.keeps_warm(new.warm.most());
                true
            }
            _ => false,
        };
        let paths = (host.path_control(), running.kind());
        Ok(Dial {
            servers,
            reporter: Arc::new(Mutex::new(reporter)),
            reloads: is_first.then(|| tokio::spawn(running.reload().clone().keep(paths, towards, apply))),
            host,
            silence: self.silence_limit(),
            _control: control,
            _firewall: firewall,
        })
    }

    /// The same servers over these paths alone, for a further stack of this process. Files and sockets are those of the first one.
    #[cfg(target_os = "linux")]
    pub(crate) fn over(&self, paths: Vec<plait::Path>) -> Self {
        let mut towards = self.clone();
        let options = &mut towards.options;
        options.paths = paths;
        (options.control, options.metrics, options.pcap, options.status_json) = (None, None, None, None);
        (options.status, options.open_firewall) = (false, false);
        towards
    }

    /// A key of one server must be checkable; of several, each must be known, and no question interrupts the search.
    fn require_keys(&self) -> anyhow::Result<()> {
        let is_sealed = protection::is_sealed(&self.options);
        if let Some(server) = self.servers.iter().find(|server| !is_sealed && server.pin.is_some()) {
            anyhow::bail!(
                "the server's key in {server} can only be checked where connections are sealed\n  fix: leave out \
                 --protect, or the part behind '#'"
            );
        }
        if self.servers.len() <= 1 {
            return Ok(());
        }
        if !protection::requires_sealing(&self.options) {
            anyhow::bail!(
                "several servers need sealed connections\n  fix: leave out --protect and --policy, or name one server"
            );
        }
        let known_peers = protection::store(&self.options).known_peers();
        for server in self.servers.iter().filter(|_| !self.authorities.are_given()) {
            let authority = server.authority();
            if server.pin.is_none() && known_peers.keys_of(&authority)?.is_empty() {
                anyhow::bail!(
                    "the key of the server {authority} is not known, as the key of each of several servers must be\n  \
                     fix: the URL that plait serve prints there, or plait key trust with it"
                );
            }
        }
        Ok(())
    }

    /// The addresses of the servers: of the only one, or up to the first one of several that has some.
    async fn resolve(&self, limit: TimeLimit) -> anyhow::Result<Vec<Vec<SocketAddr>>> {
        let (mut found, mut failed) = (Vec::new(), None);
        for server in &self.servers {
            match self.contact(server).resolve(limit).await {
                Ok(addresses) => {
                    found.push(addresses);
                    return Ok(found);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
            found.push(Vec::new());
        }
        // The command line requires a server.
        Err(failed.unwrap_or_else(|| anyhow::anyhow!("no server is named")))
    }

    /// Returns the failure of the server that time does not mend, or of the first one, and the reasons of the others.
    async fn explain(&self, mut failures: Vec<Failure>) -> anyhow::Error {
        failures.sort_by_key(|failure| (failure.unreached.is_away(), failure.index));
        let mut failures = failures.into_iter();
        let Some(Failure { index, unreached }) = failures.next() else {
            return anyhow::anyhow!("no server is named");
        };
        let others: Vec<_> = failures
            .map(|other| format!("{}: {}", self.servers[other.index].authority(), other.unreached.reason()))
            .collect();
        let error = self.contact(&self.servers[index]).explain(unreached).await;
        if others.is_empty() {
            return error;
        }
        error.context(format!("no server can be reached ({})", others.join("; ")))
    }

    fn contact<'a>(&'a self, server: &'a ServerUrl) -> Contact<'a> {
        Contact { towards: self, server }
    }

    /// The limit for connections of which one direction has ended.
    pub(crate) fn silence_limit(&self) -> SilenceLimit {
        self.half_closed.limit()
    }

    /// At least one.
    pub(crate) fn servers(&self) -> &[ServerUrl] {
        &self.servers
    }

    pub(crate) fn choice(&self) -> Choice {
        self.server_choice
    }

    /// Time limit of the opening of one connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn dead_after(&self) -> Option<Duration> {
        self.dead_after
    }

    /// Most warm connections to a server.
    pub(crate) fn warm(&self) -> usize {
        self.warm.most()
    }
}

impl Dial {
    /// Bytes that went through all streams, both directions together.
    pub(crate) fn moved(&self) -> u64 {
        self.servers.lines().map(|line| line.moved.load(Ordering::Relaxed)).sum()
    }

    /// Opens a stream that has datagrams beside it, for a request.
    pub(crate) async fn dial_with_datagrams(&self) -> io::Result<Watched> {
        let (line, stream) = self.servers.open(Beside::Datagrams).await?;
        Ok(self.watched(&line, stream, &Destination::Datagrams))
    }

    /// Lists a stream for a request.
    fn watched(&self, line: &Arc<Line>, stream: Stream, to: &Destination) -> Watched {
        let line = line.clone();
        let listed = line.running.list(stream.monitor(), Some(stream.peer_addr()));
        listed.goes_to(&to.to_string());
        // What was said before the request does not count.
        let written = Arc::new(AtomicU64::new(stream.status().map_or(0, |status| status.bytes_delivered())));
        let mut all = line.written.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(listed.number(), written.clone());
        drop(all);
        Watched { listed, stream, written, line, reporter: self.reporter.clone() }
    }

    /// The devices of its paths, each once.
    pub(crate) fn devices(&self) -> Vec<String> {
        let mut devices: Vec<_> = self.host.paths().iter().map(|path| path.device().to_owned()).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// Ends the connections that are ready: there are no more requests.
    pub(crate) fn close(&self) {
        self.servers.lines().for_each(|line| line.warm.close());
    }

    /// Waits until all subflows are closed.
    pub(crate) async fn drained(&self) {
        self.close();
        self.host.drained().await;
    }

    /// Ends the tasks that hold the stack, so that it ends when this is dropped.
    #[cfg(target_os = "linux")]
    pub(crate) async fn end(&self) {
        self.servers.end().await;
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        // The task holds the servers, which end with their last holder.
        if let Some(reloads) = &self.reloads {
            reloads.abort();
        }
    }
}

impl Dialer for Dial {
    type Stream = Watched;

    fn ready(&self, to: &Destination) -> Option<Watched> {
        let line = self.servers.current();
        let Kept { stream, instance, .. } = line.warm.take()?;
        let watched = self.watched(line, stream, to);
        line.running.is_at(watched.listed.number(), instance);
        Some(watched)
    }

    fn patience(&self, stream: &Watched) -> Duration {
        let subflows = stream.stream.paths();
        let longest = subflows.iter().filter_map(Subflow::round_trip_time).max();
        longest.map_or(client::ACKNOWLEDGMENT, |longest| client::ACKNOWLEDGMENT.max(3 * longest))
    }

    fn distrust(&self) {
        self.servers.current().warm.distrust();
    }

    async fn dial(&self, to: &Destination) -> io::Result<Watched> {
        let (line, stream) = self.servers.open(Beside::Nothing).await?;
        Ok(self.watched(&line, stream, to))
    }

    fn silence_limit(&self) -> SilenceLimit {
        self.silence.clone()
    }

    async fn delivered(&self, stream: &Watched) -> io::Result<()> {
        stream.stream.closed().await
    }

    fn number(&self, stream: &Watched) -> u64 {
        stream.listed.number()
    }

    fn answered(&self, number: u64, instance: Option<Instance>) {
        self.servers.current().running.answered(number, instance);
    }
}

impl Watched {
    /// The datagrams beside it.
    pub(crate) fn datagrams(&self) -> Datagrams {
        self.stream.datagrams()
    }

    pub(crate) fn status(&self) -> Option<Status> {
        self.stream.status()
    }
}

impl Abort for Watched {
    fn abort(&mut self) {
        Stream::abort(&self.stream);
    }

    fn acknowledged(&self) -> u64 {
        self.stream.acknowledged()
    }

    fn check(&self) -> io::Result<()> {
        self.stream.check()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.line.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.listed.number());
        let Some(status) = self.stream.status() else { return };
        let mut reporter = self.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = reporter.report(&self.line.host, &self.listed.about(), &status) {
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
        self.line.count(buffer.filled().len() - before);
        self.listed.note(&polled);
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
            self.line.count(written);
            self.written.fetch_add(written as u64, Ordering::Relaxed);
        }
        self.listed.note(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
