//! `plait listen`.

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use plait::{Fingerprint, Host, Listener, Stream};
use plait_proxy::url::ServerUrl;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::certificate::OwnCertificate;
use crate::exit;
use crate::linux::control;
use crate::linux::limits::StrangerLimits;
use crate::linux::port;
use crate::linux::prerequisite;
use crate::linux::renewal::Renewal;
use crate::linux::repeated::Repeated;
use crate::linux::service;
use crate::options::Options;
use crate::output;
use crate::protection::{self, Clients};
use crate::reload::Reload;
use crate::running::{End, Listed, Running};
use crate::scrambling;
use crate::session::{self, Terminal};
use crate::status::Reporter;

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Listen {
    /// TCP port.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Accept the next connection when one has ended; only the first connection gets standard input.
    #[arg(short, long)]
    keep: bool,
    /// As --keep, and end after so many connections.
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// Serve all connections at once and send each its own bytes back, instead of using standard input and
    /// output.
    #[arg(long)]
    echo: bool,
    /// Accept only clients that show this key, as their `plait key show` prints it (repeatable) [default: all
    /// clients].
    #[arg(long = "client-key", value_name = "FINGERPRINT")]
    client_keys: Vec<Fingerprint>,
    /// Most connections at a time, accepted or not [default: 65536].
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    #[command(flatten)]
    certificate: OwnCertificate,
    #[command(flatten)]
    pub(crate) limits: StrangerLimits,
    #[command(flatten)]
    pub(crate) options: Options,
}

pub(crate) async fn run(arguments: Listen, reload: Reload) -> anyhow::Result<()> {
    prerequisite::of_carrier(&arguments.options)?;
    port::of_listener(&arguments.options, arguments.port)?;
    let reporter = Reporter::open(&arguments.options)?;
    let clients = match &arguments.client_keys[..] {
        [] => Clients::Any,
        keys => Clients::Keys(keys.to_vec()),
    };
    let renewal = arguments.certificate.begin()?;
    let shown = renewal.as_ref().map(Renewal::shown);
    let (service, key) = protection::listener(&arguments.options, clients, shown)?;
    if let Some(key) = key {
        output::say(&format!("our key is {key}"));
    }
    let limits = arguments.limits.limits(arguments.max_connections);
    let host = session::host_for(&arguments.options, None)?.limits(limits).start()?;
    let _firewall = session::clear_the_way(&arguments.options, &host)?;
    let running = Running::new("listen", format!("port {}", arguments.port), reload);
    let _control = control::open(&arguments.options, &host, &running)?;
    let listener = host
        .listen(arguments.port, service)
        .await
        .with_context(|| format!("cannot listen on port {}", arguments.port))?;
    running.is_up();
    // For people, and for scripts that wait for it.
    for address in session::public_addresses(&host.paths()) {
        let url = ServerUrl { host: address.to_string(), port: listener.port(), pin: key };
        output::say(&format!("plait connect {url}"));
    }
    output::say(&format!("listening on port {}", listener.port()));
    let mut kept = JoinSet::new();
    let (reloads, reloading) = service::reloads_of_one(&running);
    kept.spawn(reloading);
    renewal.map(|renewal| kept.spawn(renewal.keep(running.clone(), reloads)));
    kept.spawn(running.reload().clone().keep((host.path_control(), "listen"), None, async |_, _| false));
    let count = match (arguments.count, arguments.keep || arguments.echo) {
        (Some(count), _) => count.get(),
        (None, true) => u64::MAX,
        (None, false) => 1,
    };
    let result = if arguments.echo {
        echo_all(&host, &listener, (reporter, running), count).await
    } else {
        one_by_one(&host, &listener, (reporter, &running), count).await
    };
    session::end(host, Some(listener)).await;
    result
}

/// Each connection in turn is standard input and output; a failed one is an error only if it is the last.
async fn one_by_one(
    host: &Host,
    listener: &Listener,
    (mut reporter, running): (Reporter, &Running),
    count: u64,
) -> anyhow::Result<()> {
    let mut terminal = Terminal::open()?;
    let strangers = Repeated::default();
    let mut last = Ok(());
    for _ in 0..count {
        let stream = listener.accept().await?;
        let from = stream.peer_addr();
        let listed = running.list(stream.monitor(), Some(from));
        let (result, status) = terminal.attach(stream).await;
        if let Some(status) = status {
            reporter.report(host, &listed.about(), &status)?;
        }
        if result.is_err() {
            listed.ends(End::Failed);
        }
        drop(listed);
        if let Err(error) = &result {
            ended_early(&strangers, from, error);
        }
        last = result.with_context(|| format!("the connection from {from} has ended early"));
        if terminal.is_closed() {
            break;
        }
    }
    // If standard output failed, the last connection ended for that reason.
    terminal.close().await?;
    last
}

/// Any host can cause this, as often as it likes.
fn ended_early(strangers: &Repeated, from: SocketAddr, error: &io::Error) {
    if let Some(more_like_it) = strangers.note("a connection has ended early") {
        tracing::info!(%error, more_like_it, "a connection has ended early");
        tracing::debug!(%from, "it came from there");
    }
}

/// All connections at once, each gets its own bytes back.
async fn echo_all(
    host: &Host,
    listener: &Listener,
    (reporter, running): (Reporter, Running),
    count: u64,
) -> anyhow::Result<()> {
    let reporter = Arc::new(Mutex::new(reporter));
    let strangers = Arc::new(Repeated::default());
    let mut connections = JoinSet::new();
    for _ in 0..count {
        let stream = listener.accept().await?;
        let listed = running.list(stream.monitor(), Some(stream.peer_addr()));
        connections.spawn(echo(host.clone(), reporter.clone(), strangers.clone(), (stream, listed)));
        // Ended connections are removed on the way.
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn echo(
    host: Host,
    reporter: Arc<Mutex<Reporter>>,
    strangers: Arc<Repeated>,
    (mut stream, listed): (Stream, Listed),
) {
    let from = stream.peer_addr();
    let monitor = stream.monitor();
    let conversation = async {
        while let Some(mut bytes) = stream.read_chunk().await? {
            stream.write_chunk(&mut bytes).await?;
        }
        stream.shutdown().await?;
        stream.closed().await
    };
    if let Err(error) = scrambling::watched(monitor, conversation).await {
        listed.ends(End::Failed);
        ended_early(&strangers, from, &error);
    }
    if let Some(status) = stream.status() {
        let mut reporter = reporter.lock().await;
        if let Err(error) = reporter.report(&host, &listed.about(), &status) {
            tracing::warn!(%error, "no status");
        }
    }
}
