//! What a handshake needs to know beforehand.

use core::fmt;
use std::sync::Arc;

use plait_protect::handshake::Tep;
use plait_protect::sealed::Suite;
use rustls::pki_types::ServerName;
use rustls::{KeyLog, NoKeyLog, RootCertStore};

use crate::certificate::Certificate;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::sessions::Sessions;
use crate::tickets::Tickets;

/// How the active opener knows the server.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    /// By one of these raw public keys, as ssh knows its hosts.
    Pinned(Vec<Fingerprint>),
    /// Any raw public key will do; [`Peer::Key`](crate::Peer::Key) reports it, and the caller compares or asks before
    /// it sends data.
    AcceptNew,
    /// By a certificate for its name under one of these roots.
    Roots(Arc<RootCertStore>),
}

impl ServerTrust {
    /// Whether the server has to be told which name is asked for: only a certificate is for a name.
    pub(crate) fn needs_name(&self) -> bool {
        match self {
            Self::Roots(_) => true,
            Self::Pinned(_) | Self::AcceptNew => false,
        }
    }
}

/// Which clients a listener takes.
#[derive(Clone, Debug)]
pub enum ClientPolicy {
    /// Anybody; no client is asked for a key.
    Anonymous,
    /// Anybody; a client that has a key shows it, and [`Peer::Key`](crate::Peer::Key) reports it.
    AskForKey,
    /// Only clients with one of these keys.
    Authorised(Vec<Fingerprint>),
}

/// Which key exchanges a handshake may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyExchanges {
    /// The hybrid first, then those that a quantum computer could break.
    #[default]
    All,
    /// Only the hybrid of X25519 and ML-KEM-768, which TLS 1.3 has and tcpcrypt has not: what is recorded today stays secret if either
    /// of the two holds.
    PostQuantum,
}

impl KeyExchanges {
    /// Whether a handshake of this kind can do with them.
    pub(crate) fn allow(self, tep: Tep) -> bool {
        match self {
            Self::All => true,
            Self::PostQuantum => tep == Tep::Tls13,
        }
    }
}

/// What the active opener brings along.
#[derive(Clone)]
pub struct OpenerSettings {
    /// Cipher suites, best first. They go for the handshake and for the blocks.
    pub suites: Vec<Suite>,
    /// How the keys may be agreed on.
    pub key_exchanges: KeyExchanges,
    /// The server's name, for certificates, which are asked for by it in clear (RFC 6066, section 3). With raw keys it stays here, and any
    /// name or address will do.
    pub server_name: ServerName<'static>,
    /// How it is known.
    pub server: ServerTrust,
    /// Our own key, for servers that ask for one.
    pub identity: Option<Arc<Identity>>,
    /// What servers have given us for later handshakes, with which these cost less; `None`: each handshake is in full.
    pub tickets: Option<Tickets>,
    /// Where the secrets of TLS and tcpcrypt go for analysis (SSLKEYLOGFILE): with them all of a connection can be read.
    pub key_log: Arc<dyn KeyLog>,
}

impl OpenerSettings {
    /// All suites and key exchanges, no key of our own, tickets for these settings and their clones, no key log.
    pub fn new(server_name: ServerName<'static>, server: ServerTrust) -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            key_exchanges: KeyExchanges::All,
            server_name,
            server,
            identity: None,
            tickets: Some(Tickets::default()),
            key_log: Arc::new(NoKeyLog {}),
        }
    }
}

impl fmt::Debug for OpenerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenerSettings")
            .field("suites", &self.suites)
            .field("key_exchanges", &self.key_exchanges)
            .field("server_name", &self.server_name)
            .field("server", &self.server)
            .field("identity", &self.identity)
            .field("tickets", &self.tickets)
            .finish_non_exhaustive()
    }
}

/// What a listener brings along.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Cipher suites, best first.
    pub suites: Vec<Suite>,
    /// How the keys may be agreed on.
    pub key_exchanges: KeyExchanges,
    /// Our key, for clients that pin or learn it.
    pub identity: Option<Arc<Identity>>,
    /// Our certificate, for clients that go by roots.
    pub certificate: Option<Arc<Certificate>>,
    /// Whom we take.
    pub clients: ClientPolicy,
    /// Sessions that clients may continue, to whom their tickets cost less; `None`: each handshake is in full.
    pub sessions: Option<Sessions>,
    /// Where the secrets of TLS and tcpcrypt go for analysis.
    pub key_log: Arc<dyn KeyLog>,
}

impl ListenerSettings {
    /// All suites and key exchanges, a raw public key, anonymous clients, sessions for these settings and their clones, no key log.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            key_exchanges: KeyExchanges::All,
            identity: Some(identity),
            certificate: None,
            clients: ClientPolicy::Anonymous,
            sessions: Some(Sessions::default()),
            key_log: Arc::new(NoKeyLog {}),
        }
    }
}

impl fmt::Debug for ListenerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerSettings")
            .field("suites", &self.suites)
            .field("key_exchanges", &self.key_exchanges)
            .field("identity", &self.identity)
            .field("certificate", &self.certificate)
            .field("clients", &self.clients)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}
