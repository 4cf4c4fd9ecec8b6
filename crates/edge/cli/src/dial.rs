//! Connections to the server of `run`, `proxy` and `forward`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Args;
use plait::{ErrorKind, Fingerprint, Peer, Protection, Remote, Stream, Subflow};
use plait_proxy::client::{self, Dialer};
use plait_proxy::convert::{Destination, Instance};
use plait_proxy::relay::Abort;
use plait_proxy::request::RequestError;
use plait_proxy::silence::SilenceLimit;
use plait_proxy::url::ServerUrl;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::certificate::Authorities;
use crate::half_closed::HalfClosed;
use crate::line::{Line, is_proved};
use crate::options::{Options, seconds};
use crate::protection::HostPaths;
use crate::running::{Listed, Running};
use crate::server_addresses::ServerAddresses;
use crate::server_identity::{ServerIdentity, Sighting, shown_by};
use crate::sightings::{PROBE_TIMEOUT, look_around};
use crate::status::{Reporter, log_carriers};
use crate::system::arguments::Command;
use crate::system::control::{self, Control};
use crate::system::firewall::Opening;
use crate::time_limit::TimeLimit;
use crate::warm::{Kept, Warm, WarmLimit, supply};
use crate::{exit, output, protection, server_addresses, server_watch, session, stripped, way_out};

/// The server of `run`, `proxy` and `forward`.
#[derive(Debug, Args)]
pub(crate) struct Towards {
    /// A server by its name in the configuration, or by its address as for --server.
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    /// The server, as `plait serve` prints it: plait://HOST:7443#FINGERPRINT. Or its name in the configuration.
    #[arg(
        short,
        long,
        value_name = "SERVER",
        env = "PLAIT_SERVER",
        overrides_with = "server",
        required = false,
        required_unless_present = "name"
    )]
    server: ServerUrl,
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
    authorities: Authorities,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Opens streams to one server.
pub(crate) struct Dial {
    line: Arc<Line>,
    reporter: Arc<Mutex<Reporter>>,
    watching: [JoinHandle<()>; 4],
    silence: SilenceLimit,
    _control: Control,
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
    /// Opens the stack and the connection to the server. The server is asked once first, so that an unreachable or wrong server is reported
    /// before a program starts.
    pub(crate) async fn open(&self, running: Running) -> anyhow::Result<Dial> {
        if !protection::is_sealed(&self.options) && self.server.pin.is_some() {
            anyhow::bail!(
                "the server's key in {} can only be checked where connections are sealed\n  fix: leave out \
                 --protect, or the part behind '#'",
                self.server
            );
        }
        let limit = TimeLimit::new(Some(self.connect_timeout));
        let addresses = limit.all(self.remote().resolve()).await??;
        let found_at = Instant::now();
        let known_peers = protection::store(&self.options).known_peers();
        let accepts_new = self.authorities.accepts_new();
        let mut server_identity = ServerIdentity::new(self.server.clone(), known_peers, accepts_new)?;
        let reporter = Reporter::open(&self.options)?;
        // Contradicting options are reported before a network is set up.
        self.protection(self.server.pin, HostPaths::Several)?;
        let host = session::host_for(&self.options, addresses.first().map(SocketAddr::ip))?;
        let host = self.authorities.with_anchors(host)?.start()?;
        let firewall = session::clear_the_way(&self.options, &host)?;
        let place = format!("the server {}", self.server.authority());
        way_out::require(&host, &place, &addresses).await?;
        let paths = HostPaths::of(&host);
        let mut protection = self.protection(self.server.pin, paths)?;
        let limit = limit.without(found_at.elapsed());
        let addresses = match protection::is_sealed(&self.options) && !self.authorities.are_given() {
            true => server_identity.look_up(&host, &self.remote(), addresses, limit).await?,
            false => addresses,
        };
        if let Some(keys) = server_identity.published() {
            protection = protection::published(&self.options, keys)?;
        }
        let remote = self.remote().at(addresses.iter().copied());
        let rest = limit.rest();
        let opened = limit.patiently(&place, host.connect_with(remote, protection.clone(), &rest)).await;
        let (server, first) = match opened {
            Ok(mut first) => {
                log_carriers(first.status().as_ref());
                let open_at = Instant::now();
                if protection::is_sealed(&self.options) {
                    protection = self.settle(&first, &server_identity, protection, paths)?;
                }
                // The user may have been asked.
                let instance = self.greet(&mut first, limit.without(open_at.elapsed())).await?;
                (first.peer_identity().clone(), Kept::new(first, instance))
            }
            Err(error) => {
                drop(host);
                return Err(self.explain(error, &server_identity, &addresses).await);
            }
        };
        let name = self.server.authority();
        running.is_now(format!("{} through {name}", running.what()));
        running.is_up();
        let control = control::open(&self.options, &host, &running)?;
        let line = Arc::new(Line {
            name,
            running,
            host,
            addresses: ServerAddresses::new(self.remote(), addresses, is_bound(&self.options, &server)),
            warm: Warm::new(self.warm.most(), first),
            protection,
            server,
            limit: self.connect_timeout,
            moved: AtomicU64::new(0),
            written: Mutex::default(),
        });
        let watching = self.watch(&line);
        Ok(Dial {
            line,
            reporter: Arc::new(Mutex::new(reporter)),
            watching,
            silence: self.silence_limit(),
            _control: control,
            _firewall: firewall,
        })
    }

    /// Starts the tasks that follow the options, the server and its addresses, and keep connections ready.
    fn watch(&self, line: &Arc<Line>) -> [JoinHandle<()>; 4] {
        let reload = line.running.reload().clone();
        let towards = line.addresses.current().first().map(SocketAddr::ip);
        let paths = (line.host.path_control(), line.running.kind());
        let changed = line.clone();
        let apply = async move |option: &str, new: &Command| match (option, new.towards()) {
            ("warm", Some(new)) => {
                changed.warm.set_most(new.warm.most());
                true
            }
            _ => false,
        };
        [
            tokio::spawn(reload.keep(paths, towards, apply)),
            tokio::spawn(server_watch::watch(line.clone(), self.dead_after)),
            tokio::spawn(server_addresses::follow(line.clone())),
            tokio::spawn(supply::keep(line.clone())),
        ]
    }

    /// Waits for the greeting of the server. A server that does not accept our key reports it only after it has seen the key, and data may
    /// already be sent by then.
    async fn greet(&self, first: &mut Stream, limit: TimeLimit) -> anyhow::Result<Option<Instance>> {
        let late = || RequestError::Lost(io::ErrorKind::TimedOut.into());
        let greeted = limit.whole(client::greet(first)).await;
        greeted.unwrap_or_else(|| Err(late())).map_err(|error| {
            let name = self.server.authority();
            let kind = match &error {
                RequestError::Lost(error) => ErrorKind::of(error),
                RequestError::Refused(_) | RequestError::Nonsense(_) => ErrorKind::Other,
            };
            let context = match exit::remedy_of_refusal(kind) {
                Some(remedy) => format!("the server {name} does not take us\n  fix: {remedy}"),
                None => format!("the server {name} has not answered the first request"),
            };
            anyhow::Error::new(error).context(context)
        })
    }

    /// The limit for connections of which one direction has ended.
    pub(crate) fn silence_limit(&self) -> SilenceLimit {
        self.half_closed.limit()
    }

    fn remote(&self) -> Remote {
        Remote::from((self.server.host.as_str(), self.server.port))
    }

    /// Returns the protection of connections to the server. The server must have this key if one is given, otherwise the known one.
    fn protection(&self, key: Option<Fingerprint>, paths: HostPaths) -> anyhow::Result<Protection> {
        let server = ServerUrl { pin: key, ..self.server.clone() };
        Ok(protection::opener(&self.options, &self.authorities, &server, paths)?.0)
    }

    /// Decides about the server of the first connection, and returns the key that binds all other connections to it.
    fn settle(
        &self,
        first: &Stream,
        server_identity: &ServerIdentity,
        protection: Protection,
        paths: HostPaths,
    ) -> anyhow::Result<Protection> {
        let is_known = self.authorities.are_given() || !server_identity.expected().is_empty();
        let is_required = protection::requires_sealing(&self.options);
        let sealed = protection::sealed_with(first.status().as_ref(), is_required)?;
        match shown_by(first.peer_identity()) {
            _ if is_known && sealed.is_some() => Ok(protection),
            Some(shown) => {
                server_identity.meet(shown, server_identity.paths_to(first))?;
                self.protection(Some(shown), paths)
            }
            // Only with --policy prefer or --handshake tcpcrypt.
            None => {
                output::say(
                    "warning: the identity of the server is unproved, and the connection may not be sealed",
                );
                Ok(protection)
            }
        }
    }

    /// Returns the path of a wrong server, if the server is another than expected.
    async fn explain(
        &self,
        error: plait::Error,
        server_identity: &ServerIdentity,
        addresses: &[SocketAddr],
    ) -> anyhow::Error {
        let is_unproved = matches!(error.kind(), ErrorKind::NotProtected | ErrorKind::PathsMissing);
        let first_contact_remedy = server_identity.first_contact_remedy().filter(|_| is_unproved);
        let is_wrong = error.kind() == ErrorKind::NotAuthenticated || first_contact_remedy.is_some();
        if is_wrong && !self.authorities.are_given() {
            let seen = self.look_around(addresses).await;
            if let Some(wrong) = server_identity.changed(&seen).or_else(|| server_identity.disagree(&seen)) {
                return wrong.into();
            }
        }
        let mut context = format!("cannot reach the server {}", self.server.authority());
        let at = (self.remote().at(addresses.iter().copied()), addresses);
        let stripped = stripped::explain(&error, &self.options, &self.authorities, &self.server, at).await;
        if let Some(stripped) = stripped {
            context += &format!(": {stripped}");
        } else if error.kind() == ErrorKind::Refused {
            context +=
                ": nothing listens there\n  fix: start plait serve there, or use the URL that it prints";
        } else if error.kind() == ErrorKind::TimedOut {
            let port = self.server.port;
            context +=
                &format!("\n  fix: see that it is up, and that no firewall keeps TCP port {port} from it");
        } else if let Some(remedy) = exit::remedy_of_refusal(error.kind()) {
            context += &format!("\n  fix: {remedy}");
        } else if let Some(remedy) = first_contact_remedy {
            context += &format!("\n  fix: {remedy}");
        } else if let Some(remedy) = self.authorities.remedy(&error) {
            context += &format!("\n  fix: {remedy}");
        } else if let Some(remedy) = server_identity.remedy().filter(|_| is_wrong) {
            context += &format!("\n  fix: {remedy}");
        }
        anyhow::Error::new(error).context(context)
    }

    async fn look_around(&self, addresses: &[SocketAddr]) -> Vec<Sighting> {
        let limit = self.connect_timeout.min(PROBE_TIMEOUT);
        let remote = self.remote().at(addresses.iter().copied());
        look_around(&self.options, &self.authorities, &self.server, (remote, addresses), limit).await
    }
}

/// Whether each connection fails unless its peer proves the identity of this server, which has answered the first one.
fn is_bound(options: &Options, server: &Peer) -> bool {
    is_proved(server) && protection::requires_sealing(options)
}

impl Dial {
    /// Bytes that went through all streams, both directions together.
    pub(crate) fn moved(&self) -> u64 {
        self.line.moved.load(Ordering::Relaxed)
    }

    /// Lists a stream for a request.
    fn watched(&self, stream: Stream, to: &Destination) -> Watched {
        let line = self.line.clone();
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
        let mut devices: Vec<_> =
            self.line.host.paths().iter().map(|path| path.device().to_owned()).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// Ends the connections that are ready: there are no more requests.
    pub(crate) fn close(&self) {
        self.line.warm.close();
    }

    /// Waits until all subflows are closed.
    pub(crate) async fn drained(&self) {
        self.close();
        self.line.host.drained().await;
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        // The tasks hold the host, which ends with its last holder.
        self.watching.iter().for_each(JoinHandle::abort);
    }
}

impl Dialer for Dial {
    type Stream = Watched;

    fn ready(&self, to: &Destination) -> Option<Watched> {
        let Kept { stream, instance, .. } = self.line.warm.take()?;
        let watched = self.watched(stream, to);
        self.line.running.is_at(watched.listed.number(), instance);
        Some(watched)
    }

    fn patience(&self, stream: &Watched) -> Duration {
        let subflows = stream.stream.paths();
        let longest = subflows.iter().filter_map(Subflow::round_trip_time).max();
        longest.map_or(client::ACKNOWLEDGMENT, |longest| client::ACKNOWLEDGMENT.max(3 * longest))
    }

    fn distrust(&self) {
        self.line.warm.distrust();
    }

    async fn dial(&self, to: &Destination) -> io::Result<Watched> {
        Ok(self.watched(self.line.open().await?, to))
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
        self.line.running.answered(number, instance);
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
