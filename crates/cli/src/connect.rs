//! `plait connect`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plait_handshake::Fingerprint;
use plait_host::{ConnectionError, Failure, Host, Stream};
use plait_proxy::url::ServerUrl;
use tokio::time::timeout;

use crate::certificate::Authorities;
use crate::control;
use crate::options::{Options, seconds};
use crate::protection;
use crate::session::{self, Terminal};
use crate::status::Reporter;

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Name or address of the host; all its addresses are tried.
    host: String,
    /// TCP port.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6')]
    ipv6: bool,
    /// Give up if there is no connection after so many seconds [default: when the attempts on all paths are
    /// used up, about two minutes].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    connect_timeout: Option<Duration>,
    /// The server's key, as its `plait listen` shows it; without it the key that it was known by before.
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "ca")]
    server_key: Option<Fingerprint>,
    #[command(flatten)]
    authorities: Authorities,
    #[command(flatten)]
    pub(crate) options: Options,
}

pub(crate) async fn run(arguments: Connect) -> anyhow::Result<()> {
    let remotes = resolve(&arguments).await?;
    let place = format!("{} port {}", arguments.host, arguments.port);
    let mut reporter = Reporter::open(&arguments.options)?;
    let (config, trust) =
        protection::opener(&arguments.options, &arguments.authorities, &server(&arguments))?;
    let host = session::host_for(&arguments.options, config, remotes.first().map(SocketAddr::ip))?;
    let _control = control::open(&arguments.options, &host)?;
    let stream = open(&host, &remotes, arguments.connect_timeout).await.map_err(|error| {
        let context = format!("cannot connect to {place}");
        match arguments.authorities.remedy(&error).map(str::to_owned).or_else(|| trust.remedy(&error)) {
            Some(remedy) => anyhow::Error::new(error).context(format!("{context}\n  fix: {remedy}")),
            None => anyhow::Error::new(error).context(context),
        }
    })?;
    trust.judge(stream.status().as_ref())?;
    let mut terminal = Terminal::open()?;
    let (result, status) = terminal.attach(stream).await;
    if let Some(status) = status {
        reporter.report(&host.paths(), remotes.first().copied(), &status)?;
    }
    let written = terminal.close().await;
    session::end(host, None).await;
    result.with_context(|| format!("the connection to {place} has ended early"))?;
    written
}

/// The host as the command line names it.
fn server(Connect { host, port, server_key, .. }: &Connect) -> ServerUrl {
    ServerUrl { host: host.clone(), port: *port, pin: *server_key }
}

/// All addresses of the host, of the families that are wanted, best first.
async fn resolve(arguments: &Connect) -> anyhow::Result<Vec<SocketAddr>> {
    let Connect { host, port, ipv4, ipv6, .. } = arguments;
    let addresses = tokio::net::lookup_host((host.as_str(), *port))
        .await
        .with_context(|| format!("cannot find the address of {host}"))?;
    let mut remotes: Vec<SocketAddr> = Vec::new();
    for address in addresses.filter(|address| !(*ipv4 && address.is_ipv6() || *ipv6 && address.is_ipv4())) {
        if !remotes.contains(&address) {
            remotes.push(address);
        }
    }
    if remotes.is_empty() {
        bail!("{host} has no {} address", if *ipv6 { "IPv6" } else { "IPv4" });
    }
    Ok(remotes)
}

async fn open(host: &Host, remotes: &[SocketAddr], limit: Option<Duration>) -> io::Result<Stream> {
    let connecting = host.connect(remotes);
    let Some(limit) = limit else { return connecting.await };
    let late = || io::Error::new(io::ErrorKind::TimedOut, Failure::from(ConnectionError::TimedOut));
    timeout(limit, connecting).await.unwrap_or_else(|_| Err(late()))
}
