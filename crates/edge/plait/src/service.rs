//! The protection of connections that we accept.

use ::plait_host::{Capability, Config, Protect, SealedSettings};
use plait_handshake::{KeyExchanges, ListenerSettings};

use crate::certificate::SharedCertificate;
use crate::clients::Clients;
use crate::identity::Identity;
use crate::protection::Plain;
use crate::scrambling::Scrambling;
use crate::sealing::{CipherSuite, Handshake, KeyLog, Weaker, suites_of, teps_of};

/// The identity of a service, and the clients that it accepts. A [`SealedService`] has more settings of sealed connections; a
/// [`Scrambling`] is a weaker protection.
#[derive(Clone, Debug)]
pub struct Service(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sealed(Box<SealedService>),
    Scrambled(Scrambling),
    Plain(Plain),
}

/// How connections that we accept are sealed.
///
/// ```
/// use plait::{Clients, Handshake, Identity, SealedService, Service};
///
/// # fn main() -> std::io::Result<()> {
/// let us = Identity::generate()?;
/// let service = Service::from(SealedService::new(&us, Clients::anyone()).handshakes([Handshake::Tls13]));
/// # drop(service);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is listened with"]
pub struct SealedService {
    identity: Identity,
    certificate: Option<SharedCertificate>,
    clients: Clients,
    handshakes: Option<Vec<Handshake>>,
    suites: Option<Vec<CipherSuite>>,
    key_log: Option<KeyLog>,
    require_paths: u8,
    key_exchanges: KeyExchanges,
    continues_sessions: bool,
    datagrams: bool,
    weaker: Weaker,
}

impl Service {
    /// Accepts sealed connections only, with this key of ours, from these clients.
    #[must_use]
    pub fn sealed(identity: &Identity, clients: Clients) -> Self {
        SealedService::new(identity, clients).into()
    }

    /// The same as [`Service::sealed`]; clients that trust authorities are shown a certificate instead of the key.
    #[must_use]
    pub fn certified(
        identity: &Identity,
        certificate: impl Into<SharedCertificate>,
        clients: Clients,
    ) -> Self {
        SealedService::new(identity, clients).certificate(certificate).into()
    }

    /// Accepts scrambled connections only: obfuscation, not encryption.
    #[must_use]
    pub fn scrambled() -> Self {
        Scrambling::new().into()
    }

    /// Accepts plain connections: Multipath TCP as the Linux kernel supports it, or TCP. Each host on the path can read and change the
    /// data.
    #[must_use]
    pub fn plain() -> Self {
        Self(Kind::Plain(Plain::Any))
    }

    /// As [`Service::plain`], but not plain TCP.
    #[must_use]
    pub fn plain_multipath() -> Self {
        Self(Kind::Plain(Plain::Multipath))
    }

    /// As [`Service::plain`], without Multipath TCP.
    #[must_use]
    pub fn plain_tcp() -> Self {
        Self(Kind::Plain(Plain::Tcp))
    }

    /// The same with datagrams beside the stream ([`SealedService::datagrams`]). Without sealing there are none, and nothing changes.
    #[must_use]
    pub fn datagrams(self) -> Self {
        match self.0 {
            Kind::Sealed(service) => service.datagrams().into(),
            Kind::Scrambled(_) | Kind::Plain(_) => self,
        }
    }

    pub(crate) fn settings(&self, config: &Config) -> Config {
        match &self.0 {
            Kind::Sealed(service) => service.settings(config),
            Kind::Scrambled(scrambling) => scrambling.settings(config),
            Kind::Plain(plain) => plain.settings(config),
        }
    }
}

impl SealedService {
    /// Accepts sealed connections only, with this key of ours, from these clients.
    pub fn new(identity: &Identity, clients: Clients) -> Self {
        Self {
            identity: identity.clone(),
            certificate: None,
            clients,
            handshakes: None,
            suites: None,
            key_log: None,
            require_paths: 0,
            key_exchanges: KeyExchanges::All,
            continues_sessions: true,
            datagrams: false,
            weaker: Weaker::Nothing,
        }
    }

    /// Shows this certificate, instead of the key, to clients that trust authorities. A [`SharedCertificate`] can be replaced later.
    pub fn certificate(self, certificate: impl Into<SharedCertificate>) -> Self {
        Self { certificate: Some(certificate.into()), ..self }
    }

    /// Accepts these handshakes only, best first. If not every client is accepted, only those of them that prove the identity of a client
    /// are used. Default: all that can.
    pub fn handshakes(self, handshakes: impl IntoIterator<Item = Handshake>) -> Self {
        Self { handshakes: Some(handshakes.into_iter().collect()), ..self }
    }

    /// The same as [`Sealing::require_paths`](crate::Sealing::require_paths), for incoming connections. A client that has not asked for as
    /// many paths is refused. Only sealed connections are accepted then.
    pub fn require_paths(self, paths: u8) -> Self {
        Self { require_paths: paths, ..self }
    }

    /// The same as [`Sealing::require_post_quantum`](crate::Sealing::require_post_quantum). Only sealed connections are accepted then.
    pub fn require_post_quantum(self) -> Self {
        Self { key_exchanges: KeyExchanges::PostQuantum, ..self }
    }

    /// Accepts these cipher suites only, best first. Default: [`CipherSuite::by_speed`]. The client's order counts, unless ChaCha20 is our best.
    pub fn cipher_suites(self, suites: impl IntoIterator<Item = CipherSuite>) -> Self {
        Self { suites: Some(suites.into_iter().collect()), ..self }
    }

    /// Gives no client a ticket, as [`Sealing::full_handshakes`](crate::Sealing::full_handshakes).
    pub fn full_handshakes(self) -> Self {
        Self { continues_sessions: false, ..self }
    }

    /// Takes datagrams beside the stream from clients that do too ([`Stream::datagrams`](crate::Stream::datagrams)). The application then has
    /// to accept or refuse the flows that a client opens.
    pub fn datagrams(self) -> Self {
        Self { datagrams: true, ..self }
    }

    /// Writes the secrets of the connections to this file.
    pub fn key_log(self, log: &KeyLog) -> Self {
        Self { key_log: Some(log.clone()), ..self }
    }

    /// Also accepts clients that cannot seal, without any protection, by Multipath TCP or plain TCP.
    pub fn or_plain(self) -> Self {
        Self { weaker: Weaker::Tcp, ..self }
    }

    /// The same as [`SealedService::or_plain`], but without plain TCP.
    pub fn or_plain_multipath(self) -> Self {
        Self { weaker: Weaker::Multipath, ..self }
    }

    fn settings(&self, config: &Config) -> Config {
        let mut settings = ListenerSettings {
            clients: self.clients.policy(),
            ..ListenerSettings::new(self.identity.0.clone())
        };
        settings.suites = suites_of(self.suites.as_deref());
        if let Some(KeyLog(log)) = &self.key_log {
            settings.key_log = log.clone();
        }
        settings.key_exchanges = self.key_exchanges;
        if !self.continues_sessions {
            settings.sessions = None;
        }
        let mut sealed =
            SealedSettings::listener(self.clients.handshakes(settings, self.certificate.clone()));
        // What is not sealed has no keys that a path could give a share to, or a quantum computer could not break.
        let is_strict = self.require_paths > 1 || self.key_exchanges == KeyExchanges::PostQuantum;
        let weaker = if is_strict { Weaker::Nothing } else { self.weaker };
        sealed.policy = weaker.policy();
        sealed.require_paths = self.require_paths;
        sealed.teps = teps_of(self.handshakes.as_deref());
        if self.datagrams {
            sealed.capabilities = sealed.capabilities.with(Capability::Datagrams);
        }
        let fallback = weaker.fallback();
        Config { protect: Protect::Sealed(sealed), fallback, ..config.clone() }
    }
}

impl From<SealedService> for Service {
    fn from(service: SealedService) -> Self {
        Self(Kind::Sealed(Box::new(service)))
    }
}

impl From<Scrambling> for Service {
    fn from(scrambling: Scrambling) -> Self {
        Self(Kind::Scrambled(scrambling))
    }
}
