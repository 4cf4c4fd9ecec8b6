//! `plait connect`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use plait::{ErrorKind, Fingerprint, Remote, Stream};
use plait_proxy::convert::Destination;
use plait_proxy::request::{self, RequestError};
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::forward::destination_of;
use crate::options::{Options, seconds};
use crate::protection::{self, HostPaths, Trust};
use crate::reload::Reload;
use crate::running::{End, Running};
use crate::session::{self, Terminal};
use crate::sightings::{PROBE_TIMEOUT, look_around};
use crate::status::{Reporter, log_carriers};
use crate::system::control;
use crate::time_limit::TimeLimit;
use crate::{exit, stripped, way_out};

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Connect {
    /// Name or address of the host; all its addresses are tried. Or the URL that listen and serve print:
    /// plait://HOST:PORT#FINGERPRINT.
    host: ServerUrl,
    /// TCP port, if it is not in the URL.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Connect to this destination behind the server: HOST:PORT, the path of a socket there, or the name of a service (serve --service). As a
    /// ProxyCommand of ssh: --to %h:%p.
    #[arg(long, value_name = "HOST:PORT", value_parser = destination_of)]
    to: Option<Destination>,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6')]
    ipv6: bool,
    /// Give up if there is no connection after so many seconds [default: when the attempts on all paths are used
    /// up, about two minutes].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    connect_timeout: Option<Duration>,
    /// The server's key, as its `plait listen` shows it [default: the key that the server is known by].
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "ca")]
    server_key: Option<Fingerprint>,
    #[command(flatten)]
    authorities: Authorities,
    #[command(flatten)]
    pub(crate) options: Options,
}

pub(crate) async fn run(arguments: Connect, reload: Reload) -> anyhow::Result<()> {
    let remote = remote(&arguments);
    let addresses = remote.resolve().await?;
    let ServerUrl { host, port, .. } = server(&arguments);
    let place = format!("{host} port {port}");
    let mut reporter = Reporter::open(&arguments.options)?;
    let opener =
        |paths| protection::opener(&arguments.options, &arguments.authorities, &server(&arguments), paths);
    // Contradicting options are reported before a network is set up.
    opener(HostPaths::Several)?;
    let host = session::host_for(&arguments.options, addresses.first().map(SocketAddr::ip))?;
    let host = arguments.authorities.with_anchors(host)?.start()?;
    let _firewall = session::clear_the_way(&arguments.options, &host)?;
    way_out::require(&host, &place, &addresses).await?;
    let (mut protection, mut trust) = opener(HostPaths::of(&host))?;
    let limit = TimeLimit::new(arguments.connect_timeout);
    let addresses = trust.look_up(&host, &remote, addresses, limit).await?;
    if let Some(keys) = trust.published() {
        protection = protection::published(&arguments.options, keys)?;
    }
    let running = Running::new("connect", &place, reload);
    let control = control::open(&arguments.options, &host, &running)?;
    let peer = addresses.first().copied();
    let remote = remote.at(addresses.iter().copied());
    let rest = limit.rest();
    let opened = limit.patiently(&place, host.connect_with(remote.clone(), protection, &rest)).await;
    let stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            drop((control, host));
            return Err(diagnose(error, &place, &arguments, &trust, (remote, &addresses)).await);
        }
    };
    log_carriers(stream.status().as_ref());
    trust.judge(stream.peer_identity(), trust.paths_to(&stream))?;
    let (stream, first) = asked(stream, arguments.to.as_ref(), &place).await?;
    let mut terminal = Terminal::open()?;
    running.is_up();
    let listed = running.list(stream.monitor(), peer);
    if let Some(to) = &arguments.to {
        listed.goes_to(&to.to_string());
    }
    terminal.print(first).await;
    let (result, status) = terminal.attach(stream).await;
    if result.is_err() {
        listed.ends(End::Failed);
    }
    let reported = status.map_or(Ok(()), |status| reporter.report(&host, &listed.about(), &status));
    drop(listed);
    let written = terminal.close().await;
    session::end(host, None).await;
    // If standard output failed, the connection ended for that reason.
    written?;
    result.map_err(|error| ended_early(error, &place))?;
    reported
}

/// The stream once the server has connected it to this destination, if there is one, and the first bytes from there.
async fn asked(
    mut stream: Stream,
    to: Option<&Destination>,
    place: &str,
) -> anyhow::Result<(Stream, Vec<u8>)> {
    let Some(to) = to else { return Ok((stream, Vec::new())) };
    let answered = async {
        request::ask(&mut stream, to.clone()).await?;
        request::answer(&mut stream).await
    };
    match answered.await {
        Ok(answer) => Ok((stream, answer.first)),
        Err(RequestError::Lost(error)) => Err(ended_early(error, place)),
        Err(error) => Err(anyhow::Error::new(error).context(format!("{place} cannot connect to {to}"))),
    }
}

/// The reason of an early end of the connection, and the fix.
fn ended_early(error: std::io::Error, place: &str) -> anyhow::Error {
    let context = match exit::remedy_of_refusal(ErrorKind::of(&error)) {
        Some(remedy) => format!("{place} does not accept this client\n  fix: {remedy}"),
        None => format!("the connection to {place} has ended early"),
    };
    anyhow::Error::new(error).context(context)
}

/// The reason of a failed connection, and the fix, after a look at each path if that may tell more.
async fn diagnose(
    error: plait::Error,
    place: &str,
    arguments: &Connect,
    trust: &Trust,
    (remote, addresses): (Remote, &[SocketAddr]),
) -> anyhow::Error {
    let (options, authorities, server) = (&arguments.options, &arguments.authorities, server(arguments));
    let at = (remote.clone(), addresses);
    if let Some(why) = stripped::explain(&error, options, authorities, &server, at).await {
        return anyhow::Error::new(error).context(format!("cannot connect to {place}: {why}"));
    }
    let is_unproved = matches!(error.kind(), ErrorKind::NotProtected | ErrorKind::PathsMissing);
    let are_paths_missing = is_unproved && trust.goes_by_paths();
    let error = explain(error, place, arguments, trust);
    if are_paths_missing { name_hosts(error, arguments, trust, (remote, addresses)).await } else { error }
}

/// The reason of a failed connection, and the fix.
fn explain(error: plait::Error, place: &str, arguments: &Connect, trust: &Trust) -> anyhow::Error {
    let context = format!("cannot connect to {place}");
    let refusal = exit::remedy_of_refusal(error.kind());
    let remedy = refusal.map(str::to_owned).or_else(|| arguments.authorities.remedy(&error));
    let remedy = remedy.or_else(|| trust.remedy(&error));
    let fix = remedy.map_or_else(String::new, |remedy| format!("\n  fix: {remedy}"));
    anyhow::Error::new(error).context(context + &fix)
}

/// The hosts that answer on the paths, if another host than the server answers on one of them.
async fn name_hosts(
    error: anyhow::Error,
    arguments: &Connect,
    trust: &Trust,
    remote: (Remote, &[SocketAddr]),
) -> anyhow::Error {
    let limit = arguments.connect_timeout.unwrap_or(PROBE_TIMEOUT).min(PROBE_TIMEOUT);
    let (options, authorities) = (&arguments.options, &arguments.authorities);
    let seen = look_around(options, authorities, &server(arguments), remote, limit).await;
    trust.disagree(&seen).map_or(error, anyhow::Error::from)
}

/// The host on the command line.
fn server(Connect { host, port, server_key, .. }: &Connect) -> ServerUrl {
    let named = host.clone();
    ServerUrl { port: port.unwrap_or(named.port), pin: server_key.or(named.pin), ..named }
}

fn remote(arguments: &Connect) -> Remote {
    let ServerUrl { host, port, .. } = server(arguments);
    let remote = Remote::from((host.as_str(), port));
    match (arguments.ipv4, arguments.ipv6) {
        (true, _) => remote.ipv4_only(),
        (false, true) => remote.ipv6_only(),
        (false, false) => remote,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        connect: Connect,
    }

    #[test]
    fn a_host_is_named_by_a_url_or_by_its_name_and_port() {
        let pin = Fingerprint::new([7; 32]);
        let parse = |words: &[&str]| {
            let words = Words::try_parse_from([&["connect"], words].concat()).expect("good words");
            server(&words.connect)
        };
        let url = format!("plait://gw:4242#{}", pin.compact());
        let expected = ServerUrl { host: "gw".to_owned(), port: 4242, pin: Some(pin) };
        assert_eq!(parse(&[&url]), expected);
        assert_eq!(parse(&["gw", "4242", "--server-key", &pin.to_string()]), expected);
        assert_eq!(parse(&["2001:db8::1", "80"]).authority(), "[2001:db8::1]:80");
    }
}
