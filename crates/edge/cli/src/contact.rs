//! The first connection to a server of `run`, `proxy` and `forward`: finds the server, and decides whether it is the right one.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use plait::{ErrorKind, Fingerprint, Host, Peer, Protection, Remote, Stream};
use plait_proxy::client;
use plait_proxy::convert::Instance;
use plait_proxy::request::RequestError;
use plait_proxy::url::ServerUrl;
use tokio::time::Instant;

use crate::dial::Towards;
use crate::line::{Line, is_proved};
use crate::options::Options;
use crate::protection::{self, HostPaths};
use crate::running::Running;
use crate::server_addresses::ServerAddresses;
use crate::server_identity::{ServerIdentity, Sighting, shown_by};
use crate::sightings::{PROBE_TIMEOUT, look_around};
use crate::status::log_carriers;
use crate::time_limit::TimeLimit;
use crate::warm::{Kept, Warm};
use crate::{exit, output, stripped, way_out};

/// One server, and the options for it.
#[derive(Clone, Copy)]
pub(crate) struct Contact<'a> {
    pub(crate) towards: &'a Towards,
    pub(crate) server: &'a ServerUrl,
}

/// A failure to reach a server, before it is explained.
pub(crate) enum Unreached {
    /// This error says it all.
    Said(anyhow::Error),
    /// The connection to these addresses failed. An explanation may need connections of its own, when no other host holds the paths.
    Failed { error: plait::Error, server_identity: Box<ServerIdentity>, addresses: Vec<SocketAddr> },
}

impl<E: Into<anyhow::Error>> From<E> for Unreached {
    fn from(error: E) -> Self {
        Self::Said(error.into())
    }
}

impl<'a> Contact<'a> {
    /// Looks up the server.
    pub(crate) async fn resolve(self, limit: TimeLimit) -> anyhow::Result<Vec<SocketAddr>> {
        Ok(limit.all(self.remote().resolve()).await??)
    }

    /// Connects over the paths of `host`, and waits until the server has accepted this client. `found`: its addresses.
    pub(crate) async fn reach(
        self,
        (host, running): (&Host, &Running),
        found: Vec<SocketAddr>,
        limit: TimeLimit,
    ) -> Result<Line, Unreached> {
        let Towards { options, authorities, .. } = self.towards;
        let known_peers = protection::store(options).known_peers();
        let mut server_identity =
            ServerIdentity::new(self.server.clone(), known_peers, authorities.accepts_new())?;
        let place = format!("the server {}", self.server.authority());
        let began = Instant::now();
        way_out::require(host, &place, &found).await?;
        let paths = HostPaths::of(host);
        let mut protection = self.protection(self.server.pin, paths)?;
        let limit = limit.without(began.elapsed());
        let addresses = match protection::is_sealed(options) && !authorities.are_given() {
            true => server_identity.look_up(host, &self.remote(), found, limit).await?,
            false => found,
        };
        if let Some(keys) = server_identity.published() {
            protection = protection::published(options, keys)?;
        }
        let remote = self.remote().at(addresses.iter().copied());
        let rest = limit.rest();
        let opened = limit.patiently(&place, host.connect_with(remote, protection.clone(), &rest)).await;
        let mut first = match opened {
            Ok(first) => first,
            Err(error) => {
                let server_identity = Box::new(server_identity);
                return Err(Unreached::Failed { error, server_identity, addresses });
            }
        };
        log_carriers(first.status().as_ref());
        let open_at = Instant::now();
        if protection::is_sealed(options) {
            protection = self.settle(&first, &server_identity, protection, paths)?;
        }
        // The user may have been asked.
        let instance = self.greet(&mut first, limit.without(open_at.elapsed())).await?;
        let server = first.peer_identity().clone();
        Ok(Line {
            name: self.server.authority(),
            running: running.clone(),
            host: host.clone(),
            addresses: ServerAddresses::new(self.remote(), addresses, is_bound(options, &server)),
            warm: Warm::new(self.towards.warm(), Kept::new(first, instance)),
            protection,
            server,
            limit: self.towards.connect_timeout(),
            moved: AtomicU64::new(0),
            written: Mutex::default(),
        })
    }

    /// Waits for the greeting of the server. A server that does not accept our key reports it only after it has seen the key, and data may
    /// already be sent by then.
    async fn greet(self, first: &mut Stream, limit: TimeLimit) -> anyhow::Result<Option<Instance>> {
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

    fn remote(self) -> Remote {
        let remote = Remote::from((self.server.host.as_str(), self.server.port));
        match plait::own_mark() {
            Some(_) => remote.over_default_routes(self.towards.options.nameservers.iter().copied()),
            None => remote,
        }
    }

    /// Returns the protection of connections to the server. The server must have this key if one is given, otherwise the known one.
    pub(crate) fn protection(self, key: Option<Fingerprint>, paths: HostPaths) -> anyhow::Result<Protection> {
        let server = ServerUrl { pin: key, ..self.server.clone() };
        Ok(protection::opener(&self.towards.options, &self.towards.authorities, &server, paths)?.0)
    }

    /// Decides about the server of the first connection, and returns the key that binds all other connections to it.
    fn settle(
        self,
        first: &Stream,
        server_identity: &ServerIdentity,
        protection: Protection,
        paths: HostPaths,
    ) -> anyhow::Result<Protection> {
        let is_known = self.towards.authorities.are_given() || !server_identity.expected().is_empty();
        let is_required = protection::requires_sealing(&self.towards.options);
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

    /// Returns the failure as an error for people. Paths may be tried again for that: the host must be gone.
    pub(crate) async fn explain(self, unreached: Unreached) -> anyhow::Error {
        let (error, server_identity, addresses) = match unreached {
            Unreached::Said(error) => return error,
            Unreached::Failed { error, server_identity, addresses } => (error, server_identity, addresses),
        };
        let Towards { options, authorities, .. } = self.towards;
        let is_unproved = matches!(error.kind(), ErrorKind::NotProtected | ErrorKind::PathsMissing);
        let first_contact_remedy = server_identity.first_contact_remedy().filter(|_| is_unproved);
        let is_wrong = error.kind() == ErrorKind::NotAuthenticated || first_contact_remedy.is_some();
        if is_wrong && !authorities.are_given() {
            let seen = self.look_around(&addresses).await;
            if let Some(wrong) = server_identity.changed(&seen).or_else(|| server_identity.disagree(&seen)) {
                return wrong.into();
            }
        }
        let mut context = format!("cannot reach the server {}", self.server.authority());
        let at = (self.remote().at(addresses.iter().copied()), &addresses[..]);
        let stripped = stripped::explain(&error, options, authorities, self.server, at).await;
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
        } else if let Some(remedy) = authorities.remedy(&error) {
            context += &format!("\n  fix: {remedy}");
        } else if let Some(remedy) = server_identity.remedy().filter(|_| is_wrong) {
            context += &format!("\n  fix: {remedy}");
        }
        anyhow::Error::new(error).context(context)
    }

    async fn look_around(self, addresses: &[SocketAddr]) -> Vec<Sighting> {
        let limit = self.towards.connect_timeout().min(PROBE_TIMEOUT);
        let remote = self.remote().at(addresses.iter().copied());
        let Towards { options, authorities, .. } = self.towards;
        look_around(options, authorities, self.server, (remote, addresses), limit).await
    }
}

/// Whether each connection fails unless its peer proves the identity of this server, which has answered the first one.
pub(crate) fn is_bound(options: &Options, server: &Peer) -> bool {
    is_proved(server) && protection::requires_sealing(options)
}
