//! `plait forward`: local ports for services behind the server, like `ssh -L`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plait_proxy::client::forward;
use plait_proxy::convert::Destination;
use plait_proxy::socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::dial::Towards;
use crate::exit;
use crate::late_dial::{LateDial, TowardsLater, is_away};
use crate::listening::Passed;
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::shortage::Shortage;
use crate::system::service::Service;
use crate::system::{limits, prerequisite};

/// Most connections at a time; more wait in the kernel.
const MAX_CLIENTS: usize = 8192;
/// How long connections may go on after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Forward {
    /// Listen on PORT of this host, at ADDR (127.0.0.1), and connect each client to PORT of HOST behind the server (repeatable).
    /// The rules of the server must allow the destination. An ADDR that other hosts reach lets them use the forward: there is a warning.
    #[arg(short = 'L', long = "local", value_name = "[ADDR:]PORT:HOST:PORT", required = true)]
    locals: Vec<Local>,
    #[command(flatten)]
    server: TowardsLater,
}

/// A local port and its destination.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Local {
    at: SocketAddr,
    to: Destination,
}

impl Forward {
    pub(crate) fn towards(&self) -> &Towards {
        &self.server.towards
    }

    pub(crate) async fn run(self, reload: Reload) -> anyhow::Result<()> {
        let checks = self.towards().options.checks();
        self.run_until_stopped(reload).await.map_err(|error| prerequisite::explain(error, checks))
    }

    async fn run_until_stopped(self, reload: Reload) -> anyhow::Result<()> {
        // Listen from the start, so that a signal leaves no half-built network behind.
        let mut stopped = tokio::spawn(exit::stopped());
        let mut listeners = Vec::new();
        let mut passed = Passed::take()?;
        let what: Vec<_> = self.locals.iter().map(Local::to_string).collect();
        for Local { at, to } in self.locals {
            listeners.push((passed.listen(at).await?, to));
        }
        passed.finish()?;
        limits::raise_open_files();
        let running = Running::new("forward", what.join(", "), reload);
        let mut service = Service::new(&running);
        let (dial, mut reaching) = tokio::select! {
            opened = self.server.open(running, is_away) => opened?,
            _ = &mut stopped => return Ok(()),
        };
        let room = Arc::new(Semaphore::new(MAX_CLIENTS));
        let mut ports = JoinSet::new();
        for (listener, to) in listeners {
            // For people, and for scripts that wait for it.
            let at = listener.local_addr()?;
            say(&format!("forwarding {at} to {to}"));
            if !at.ip().is_loopback() {
                say(&format!(
                    "warning: every host that reaches {at} can use it, with the rights of this client"
                ));
            }
            ports.spawn(accept_all(listener, to, dial.clone(), room.clone()));
        }
        service.is_ready().await;
        tokio::select! {
            _ = &mut stopped => {}
            error = &mut reaching => return Err(error),
        }
        service.stops(2 * FAREWELL).await;
        ports.shutdown().await;
        let all = u32::try_from(MAX_CLIENTS).unwrap_or(u32::MAX);
        let _ = timeout(FAREWELL, room.acquire_many(all)).await;
        let _ = timeout(FAREWELL, dial.drained()).await;
        Ok(())
    }
}

/// Accepts clients of one port. Connections continue after this ends.
async fn accept_all(listener: TcpListener, to: Destination, dial: Arc<LateDial>, room: Arc<Semaphore>) {
    let mut shortage = Shortage::default();
    loop {
        // It is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((mut program, _)) => {
                let (dial, to) = (dial.clone(), to.clone());
                tokio::spawn(async move {
                    socket::prepare(&program);
                    serve_one(&mut program, to, &dial).await;
                    drop(place);
                });
            }
            Err(error) => shortage.wait(&error).await,
        }
    }
}

async fn serve_one(program: &mut TcpStream, to: Destination, dial: &LateDial) {
    let destination = to.to_string();
    match forward(dial, program, to).await {
        Ok((sent, received)) => tracing::info!(destination, sent, received, "a connection has ended"),
        Err(error) => tracing::info!(destination, %error, "a connection has ended early"),
    }
}

/// `PORT:HOST:PORT`, optionally with `ADDR:` in front; IPv6 addresses are in brackets.
impl FromStr for Local {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "not [ADDR:]PORT:HOST:PORT, as in 8080:web.example:80 or [::1]:8080:[2001:db8::1]:80";
        let words = words(text).ok_or(WRONG)?;
        let port = |word: &str| word.parse::<u16>().map_err(|_| WRONG);
        let (address, at, host, to) = match words[..] {
            [at, host, to] => (IpAddr::V4(Ipv4Addr::LOCALHOST), at, host, to),
            [address, at, host, to] => (address.parse().map_err(|_| WRONG)?, at, host, to),
            _ => return Err(WRONG),
        };
        let to = match (port(to)?, host.parse()) {
            (0, _) => return Err(WRONG),
            (port, Ok(address)) => Destination::Address(SocketAddr::new(address, port)),
            (_, Err(_)) if host.is_empty() || host.len() > 255 || host.contains('\0') => return Err(WRONG),
            (port, Err(_)) => Destination::Name(host.to_owned(), port),
        };
        Ok(Self { at: SocketAddr::new(address, port(at)?), to })
    }
}

/// Splits at colons; colons in brackets do not count, and the brackets are removed. `None` if the brackets do not match.
fn words(text: &str) -> Option<Vec<&str>> {
    let (mut words, mut rest) = (Vec::new(), text);
    loop {
        let (word, behind) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']')?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        words.push(word);
        match behind.strip_prefix(':') {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(words),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.at, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forwarded_is_written_as_for_ssh() {
        let parse = |text: &str| text.parse::<Local>().map(|local| local.to_string());
        assert_eq!(parse("8080:web.example:80"), Ok("127.0.0.1:8080:web.example:80".to_owned()));
        assert_eq!(parse("0:10.0.0.1:80"), Ok("127.0.0.1:0:10.0.0.1:80".to_owned()));
        assert_eq!(parse("0.0.0.0:22:gw:2222"), Ok("0.0.0.0:22:gw:2222".to_owned()));
        assert_eq!(parse("[::1]:80:[2001:db8::1]:443"), Ok("[::1]:80:[2001:db8::1]:443".to_owned()));
        for wrong in [
            "",
            "80",
            "80:web",
            "80:web:0",
            "80::80",
            "x:web:80",
            "80:web:http",
            "a:b:c:d:e",
            "[::1:80:web:80",
            "here:80:web:80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
