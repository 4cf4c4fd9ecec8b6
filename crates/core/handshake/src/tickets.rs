//! Tickets of servers, with which a client opens its next connection to them more cheaply.
//!
//! **Meaning of a ticket.** It resumes a session in which the server was authenticated. It therefore counts only if that authentication
//! would succeed now: for the same name, the same trust, the same key of ours, the same cipher suites and key exchanges ([`Context`]), and
//! if the verifier of that handshake still accepts the server's identity. It is valid for a day after the server has signed something
//! ([`MAX_AGE`]), however often the session was resumed in between. The keys are new in any case.
//!
//! **Once.** A ticket is removed when it is offered and does not come back: an observer of two connections sees no ticket twice.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use plait_protect::sealed::Suite;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, Tls13ClientSessionValue};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::identity::PublicKey;
use crate::settings::{KeyExchanges, OpenerSettings, ServerTrust};

/// How long an authentication is valid.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Tickets that a client keeps in memory. Clones share the tickets; each ticket is offered once.
#[derive(Clone, Default)]
pub struct Tickets(Arc<Mutex<VecDeque<Ticket>>>);

/// Tickets for one server: the number of connections that are opened to it at about the same time.
const MAX_FOR_ONE: usize = 8;
/// All tickets.
const MAX_TICKETS: usize = 256;
/// Largest size of a server's certificate chain, so that a ticket cannot be used to store more.
const MAX_CHAIN: usize = 8 << 10;

/// All settings that must be equal when a ticket is offered.
#[derive(Clone)]
pub(crate) struct Context {
    server_name: ServerName<'static>,
    server: ServerTrust,
    identity: Option<PublicKey>,
    suites: Vec<Suite>,
    key_exchanges: KeyExchanges,
}

/// The verifier of the server, and our identity. rustls resumes a session only with the same values in memory.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) verifier: Arc<dyn ServerCertVerifier>,
    pub(crate) ours: Arc<dyn ResolvesClientCert>,
}

/// A ticket and its session.
pub(crate) struct Ticket {
    pub(crate) context: Context,
    pub(crate) credentials: Credentials,
    /// The identity that the server has shown.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// When the server has signed something.
    pub(crate) proved_at: UnixTime,
    pub(crate) session: Tls13ClientSessionValue,
}

impl Tickets {
    /// Returns the number of tickets.
    pub fn len(&self) -> usize {
        self.with(|tickets| tickets.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns the latest ticket that is valid in this context.
    pub(crate) fn take(&self, context: &Context, now: UnixTime) -> Option<Ticket> {
        self.with(|tickets| {
            tickets.retain(|ticket| is_recent(ticket.proved_at, now));
            loop {
                let at = tickets.iter().rposition(|ticket| ticket.context.is_same(context))?;
                let ticket = tickets.remove(at)?;
                if ticket.is_still_believed(now) {
                    return Some(ticket);
                }
            }
        })
    }

    /// Stores a ticket, in place of the oldest if there are too many.
    pub(crate) fn put(&self, ticket: Ticket) {
        if ticket.chain.iter().map(|shown| shown.len()).sum::<usize>() > MAX_CHAIN {
            return;
        }
        self.with(|tickets| {
            let is_rival = |other: &Ticket| other.context.is_same(&ticket.context);
            let rivals = tickets.iter().filter(|other| is_rival(other)).count();
            if rivals >= MAX_FOR_ONE
                && let Some(oldest) = tickets.iter().position(is_rival)
            {
                tickets.remove(oldest);
            }
            if tickets.len() >= MAX_TICKETS {
                tickets.pop_front();
            }
            tickets.push_back(ticket);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Ticket>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets({})", self.len())
    }
}

impl Context {
    pub(crate) fn of(settings: &OpenerSettings) -> Self {
        let OpenerSettings { suites, key_exchanges, server_name, server, identity, tickets: _, key_log: _ } =
            settings;
        Self {
            server_name: server_name.clone(),
            server: server.clone(),
            identity: identity.as_ref().map(|identity| identity.public_key()),
            suites: suites.clone(),
            key_exchanges: *key_exchanges,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let Self { server_name, server, identity, suites, key_exchanges } = self;
        let is_same_trust = match (server, &other.server) {
            (ServerTrust::Pinned(ours), ServerTrust::Pinned(theirs)) => ours == theirs,
            (ServerTrust::AcceptNew, ServerTrust::AcceptNew) => true,
            // Each keeps its roots alive, so that no other roots can have the same address.
            (ServerTrust::Roots(ours), ServerTrust::Roots(theirs)) => Arc::ptr_eq(ours, theirs),
            (ServerTrust::Pinned(_) | ServerTrust::AcceptNew | ServerTrust::Roots(_), _) => false,
        };
        is_same_trust
            && *server_name == other.server_name
            && *identity == other.identity
            && *suites == other.suites
            && *key_exchanges == other.key_exchanges
    }
}

impl Ticket {
    /// Whether the server's identity is still valid. rustls does not check the chain of a resumed session: a certificate may have expired
    /// since.
    fn is_still_believed(&self, now: UnixTime) -> bool {
        let Some((end_entity, intermediates)) = self.chain.split_first() else { return false };
        let name = &self.context.server_name;
        self.credentials.verifier.verify_server_cert(end_entity, intermediates, name, &[], now).is_ok()
    }
}

/// Whether an authentication at that time is no longer valid, and never will be.
pub(crate) fn is_over(proved_at: UnixTime, now: UnixTime) -> bool {
    now.as_secs().saturating_sub(proved_at.as_secs()) >= MAX_AGE.as_secs()
}

/// Whether an authentication at that time is still valid. After a clock was set back, no age is known.
pub(crate) fn is_recent(proved_at: UnixTime, now: UnixTime) -> bool {
    proved_at.as_secs() <= now.as_secs() && !is_over(proved_at, now)
}
