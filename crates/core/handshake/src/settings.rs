//! Settings of handshakes.

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

/// How the opener authenticates the server.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    /// By one of these raw public keys, like the host keys of ssh.
    Pinned(Vec<Fingerprint>),
    /// Any raw public key is accepted. [`Peer::Key`](crate::Peer::Key) reports it, and the caller compares it or asks the user before it
    /// sends data.
    AcceptNew,
    /// By a certificate for its name under one of these root certificates.
    Roots(Arc<RootCertStore>),
}

impl ServerTrust {
    /// Whether the server must learn the requested name: only a certificate is for a name.
    pub(crate) fn needs_name(&self) -> bool {
        match self {
            Self::Roots(_) => true,
            Self::Pinned(_) | Self::AcceptNew => false,
        }
    }
}

/// The clients that a listener accepts.
#[derive(Clone, Debug)]
pub enum ClientPolicy {
    /// All clients. No client is asked for a key.
    Anonymous,
    /// All clients. A client that has a key shows it, and [`Peer::Key`](crate::Peer::Key) reports it.
    AskForKey,
    /// Only clients with one of these keys.
    Authorised(Vec<Fingerprint>),
}

/// The key exchanges that a handshake may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyExchanges {
    /// The hybrid first, then those that a quantum computer could break.
    #[default]
    All,
    /// Only the hybrid of X25519 and ML-KEM-768, which TLS 1.3 has and tcpcrypt lacks. Bytes recorded today stay secret if either of the
    /// two remains unbroken.
    PostQuantum,
}

impl KeyExchanges {
    /// Whether a handshake of this kind can use them.
    pub(crate) fn allow(self, tep: Tep) -> bool {
        match self {
            Self::All => true,
            Self::PostQuantum => tep == Tep::Tls13,
        }
    }
}

/// Settings of the opener.
#[derive(Clone)]
pub struct OpenerSettings {
    /// Cipher suites, best first, for the handshake and for the blocks.
    pub suites: Vec<Suite>,
    /// The allowed key exchanges.
    pub key_exchanges: KeyExchanges,
    /// The server's name for certificates, which are requested by this name in clear (RFC 6066, section 3). With raw keys it is not sent,
    /// and any name or address is valid.
    pub server_name: ServerName<'static>,
    /// How the server is authenticated.
    pub server: ServerTrust,
    /// Our own key, for servers that request one.
    pub identity: Option<Arc<Identity>>,
    /// Tickets from servers, which make later handshakes cheaper; `None`: each handshake is a full one.
    pub tickets: Option<Tickets>,
    /// The log of the secrets of TLS and tcpcrypt, for analysis (SSLKEYLOGFILE). With it all bytes of a connection can be read.
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

/// Settings of a listener.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Cipher suites, best first.
    pub suites: Vec<Suite>,
    /// The allowed key exchanges.
    pub key_exchanges: KeyExchanges,
    /// Our key, for clients that pin or learn it.
    pub identity: Option<Arc<Identity>>,
    /// Our certificate, for clients that require one.
    pub certificate: Option<Arc<Certificate>>,
    /// The accepted clients.
    pub clients: ClientPolicy,
    /// Sessions that clients may resume by cheaper handshakes; `None`: each handshake is a full one.
    pub sessions: Option<Sessions>,
    /// The log of the secrets of TLS and tcpcrypt, for analysis.
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
