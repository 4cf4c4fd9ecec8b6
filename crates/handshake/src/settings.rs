//! What a handshake needs to know beforehand.

use core::fmt;
use std::sync::Arc;

use plait_protect::sealed::Suite;
use rustls::pki_types::ServerName;
use rustls::{KeyLog, NoKeyLog, RootCertStore};

use crate::certificate::Certificate;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;

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

/// What the active opener brings along.
#[derive(Clone)]
pub struct OpenerSettings {
    /// Cipher suites, best first. They go for the handshake and for the blocks.
    pub suites: Vec<Suite>,
    /// The server's name, for certificates and the name extension. With raw keys any name or address will do.
    pub server_name: ServerName<'static>,
    /// How it is known.
    pub server: ServerTrust,
    /// Our own key, for servers that ask for one.
    pub identity: Option<Arc<Identity>>,
    /// Where the secrets of TLS and tcpcrypt go for analysis (SSLKEYLOGFILE): with them all of a connection can be read.
    pub key_log: Arc<dyn KeyLog>,
}

impl OpenerSettings {
    /// All suites, no key of our own, no key log.
    pub fn new(server_name: ServerName<'static>, server: ServerTrust) -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            server_name,
            server,
            identity: None,
            key_log: Arc::new(NoKeyLog {}),
        }
    }
}

impl fmt::Debug for OpenerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenerSettings")
            .field("suites", &self.suites)
            .field("server_name", &self.server_name)
            .field("server", &self.server)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// What a listener brings along.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Cipher suites, best first.
    pub suites: Vec<Suite>,
    /// Our key, for clients that pin or learn it.
    pub identity: Option<Arc<Identity>>,
    /// Our certificate, for clients that go by roots.
    pub certificate: Option<Arc<Certificate>>,
    /// Whom we take.
    pub clients: ClientPolicy,
    /// Where the secrets of TLS and tcpcrypt go for analysis.
    pub key_log: Arc<dyn KeyLog>,
}

impl ListenerSettings {
    /// All suites, a raw public key, anonymous clients, no key log.
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            identity: Some(identity),
            certificate: None,
            clients: ClientPolicy::Anonymous,
            key_log: Arc::new(NoKeyLog {}),
        }
    }
}

impl fmt::Debug for ListenerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerSettings")
            .field("suites", &self.suites)
            .field("identity", &self.identity)
            .field("certificate", &self.certificate)
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}
