//! `plait proxy`: SOCKS5 and HTTP for browsers, each connection a stream of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plait_keys::read_secret;
use plait_proxy::convert::Destination;
use plait_proxy::direct::{Direct, DirectRule};
use plait_proxy::socks::Credentials;
use plait_proxy::{http_server, socket, socks_server};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::datagrams::{DatagramOptions, FlowDial};
use crate::dial::Towards;
use crate::exit;
use crate::late_dial::{LateDial, TowardsLater, is_away};
use crate::listening::{Passed, accept};
use crate::output::say;
use crate::reload::Reload;
use crate::running::Running;
use crate::shortage::Shortage;
use crate::system::limits;
use crate::system::prerequisite;
use crate::system::service::Service;

/// Most clients at a time; more wait in the kernel.
const MAX_CLIENTS: usize = 8192;
/// How long connections may go on after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION)]
pub(crate) struct Proxy {
    /// Address and port at which SOCKS5 clients connect. They may ask for connections, and for associations of UDP.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1080")]
    socks: SocketAddr,
    /// Address and port at which clients of an HTTP proxy connect (CONNECT and http:// addresses), beside SOCKS5. Browsers can configure
    /// themselves by the PAC file http://ADDR:PORT/proxy.pac.
    #[arg(long, value_name = "ADDR:PORT")]
    http: Option<SocketAddr>,
    /// The user name that clients must give.
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// File with the password that clients must give, in its first line.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Connect to these destinations directly and without protection (repeatable): NAME, *.NAME for all names below it, a network, or @FILE
    /// with such values, one a line. This host looks the names up. Networks are about addresses that clients name, not about those of names.
    #[arg(long, value_name = "WHAT")]
    direct: Vec<DirectRule>,
    #[command(flatten)]
    datagrams: DatagramOptions,
    #[command(flatten)]
    server: TowardsLater,
}

impl Proxy {
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
        let credentials = self.credentials()?;
        let mut passed = Passed::take()?;
        let socks = passed.listen(self.socks).await?;
        let http = match self.http {
            Some(at) => Some(passed.listen(at).await?),
            None => None,
        };
        passed.finish()?;
        limits::raise_open_files();
        let mut what = format!("SOCKS5 at {}", socks.local_addr()?);
        if let Some(http) = &http {
            what += &format!(", HTTP at {}", http.local_addr()?);
        }
        let running = Running::new("proxy", what.clone(), reload);
        let mut service = Service::new(&running);
        let (dial, mut reaching) = tokio::select! {
            opened = self.server.open(running, is_away) => opened?,
            _ = &mut stopped => return Ok(()),
        };
        let direct = Arc::new(Direct::new(&self.direct));
        if let Some(warning) = direct.warning() {
            say(&warning);
        }
        // For people, and for scripts that wait for it.
        say(&what);
        service.is_ready().await;
        let flows = FlowDial::new(dial.clone(), self.datagrams);
        let mut clients = JoinSet::new();
        let mut shortage = Shortage::default();
        loop {
            let has_room = clients.len() < MAX_CLIENTS;
            let (accepted, speaks) = tokio::select! {
                _ = &mut stopped => break,
                error = &mut reaching => return Err(error),
                Some(_) = clients.join_next() => continue,
                accepted = socks.accept(), if has_room => (accepted, Speaks::Socks),
                accepted = accept(http.as_ref()), if has_room => (accepted, Speaks::Http),
            };
            match accepted {
                Ok((client, _)) => {
                    let ways = (dial.clone(), direct.clone(), flows.clone());
                    clients.spawn(serve_one((client, speaks), ways, credentials.clone()));
                }
                Err(error) => shortage.wait(&error).await,
            }
        }
        service.stops(2 * FAREWELL).await;
        drop((socks, http));
        let _ = timeout(FAREWELL, async { while clients.join_next().await.is_some() {} }).await;
        clients.shutdown().await;
        drop(flows);
        let _ = timeout(FAREWELL, dial.drained()).await;
        Ok(())
    }

    /// Returns the credentials of clients; a proxy that others can reach must ask for some.
    fn credentials(&self) -> anyhow::Result<Option<Credentials>> {
        let (Some(user), Some(file)) = (&self.user, &self.password_file) else {
            let exposed =
                [Some(self.socks), self.http].into_iter().flatten().find(|at| !at.ip().is_loopback());
            if let Some(at) = exposed {
                bail!(
                    "every host that reaches {at} could use this proxy\n  fix: ask for --user and --password-file, \
                     or listen on 127.0.0.1"
                );
            }
            return Ok(None);
        };
        let secret = read_secret(file)?;
        let text = std::str::from_utf8(&secret).with_context(|| format!("in {}", file.display()))?;
        let password = text.lines().next().unwrap_or_default().to_owned();
        if !(1..=255).contains(&password.len()) || !(1..=255).contains(&user.len()) {
            bail!("user name and password have between 1 and 255 bytes");
        }
        Ok(Some(Credentials { user: user.clone(), password }))
    }
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug)]
enum Speaks {
    Socks,
    Http,
}

async fn serve_one(
    (client, speaks): (TcpStream, Speaks),
    (dial, direct, flows): (Arc<LateDial>, Arc<Direct>, Arc<FlowDial>),
    credentials: Option<Credentials>,
) {
    socket::prepare(&client);
    let (mut destination, mut is_direct) = (None, false);
    let heard = |to: &Destination| (destination, is_direct) = (Some(to.to_string()), direct.takes(to));
    let ways = (&*dial, &*direct);
    let served = match (speaks, client.local_addr()) {
        (Speaks::Socks, _) => {
            socks_server::serve_client(client, (&*dial, &*direct, &flows), credentials, heard).await
        }
        (Speaks::Http, Ok(at)) => http_server::serve_client(client, ways, (credentials, at), heard).await,
        // It has gone already.
        (Speaks::Http, Err(error)) => Err(error.into()),
    };
    match served {
        Ok((sent, received)) => {
            tracing::info!(destination, is_direct, sent, received, "a connection has ended");
        }
        Err(error) => tracing::info!(destination, is_direct, %error, "a connection has ended early"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        proxy: Proxy,
    }

    fn parse(words: &str) -> Result<Proxy, clap::Error> {
        Words::try_parse_from(format!("proxy -s gw {words}").split_whitespace()).map(|words| words.proxy)
    }

    #[test]
    fn a_proxy_that_others_reach_asks_for_a_password() {
        let decide = |words: &str| parse(words).expect(words).credentials().map(|found| found.is_some()).ok();
        assert_eq!(decide(""), Some(false));
        assert_eq!(decide("--socks [::1]:1080"), Some(false));
        assert_eq!(decide("--socks 0.0.0.0:1080"), None);
        assert_eq!(decide("--http [::1]:3128"), Some(false));
        assert_eq!(decide("--http 0.0.0.0:3128"), None);
        assert_eq!(parse("--user ada").expect_err("no password").exit_code(), 2);
        let file = std::env::temp_dir().join(format!("plait-proxy-{}", std::process::id()));
        std::fs::write(&file, "secret\n").expect("written");
        let words = format!("--socks 0.0.0.0:1080 --user ada --password-file {}", file.display());
        let found_with = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("ours");
            parse(&words).expect("good words").credentials()
        };
        let exposed = found_with(0o644).map(|_| ()).expect_err("others can read it").to_string();
        assert!(exposed.contains("fix: chmod 600"), "{exposed}");
        let found = found_with(0o600);
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(found.expect("credentials").map(|found| found.password), Some("secret".to_owned()));
    }
}
