//! Resumption of a session (RFC 8446, section 2.2), `psk_dhe_ke` only: the session stores of rustls, one for each handshake.
//!
//! rustls expects one store for all handshakes, indexed by the server's name alone, and does not repeat its verification. Here each
//! handshake gets at most one ticket, which [`Tickets`](crate::Tickets) or [`Sessions`](crate::Sessions) have checked against all settings.
//! Its result is stored only if the handshake has succeeded. There is no early data.

use core::fmt;
use std::sync::{Mutex, PoisonError};

use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::StoresServerSessions;
use rustls::{Connection, HandshakeKind, NamedGroup};
use zeroize::Zeroizing;

use crate::sessions::{MAX_SESSION, Session, Sessions, Terms};
use crate::tickets::{Context, Credentials, Ticket, Tickets};

/// A client's handshake.
pub(super) struct Client {
    tickets: Tickets,
    context: Context,
    credentials: Credentials,
    /// When the server has signed something, if the session that we offer is resumed.
    proved_before: Option<UnixTime>,
    now: UnixTime,
}

/// The ticket for rustls, and the one from rustls.
pub(super) struct Slot {
    offered: Mutex<Option<Tls13ClientSessionValue>>,
    given: Mutex<Option<Tls13ClientSessionValue>>,
}

impl Client {
    /// Returns a store with a ticket, if there is one, or else with these credentials.
    ///
    /// # Errors
    /// The credentials cannot be created.
    pub(super) fn new<E>(
        tickets: &Tickets,
        context: Context,
        now: UnixTime,
        credentials: impl FnOnce() -> Result<Credentials, E>,
    ) -> Result<(Self, Slot), E> {
        let (credentials, proved_before, offered) = match tickets.take(&context, now) {
            Some(Ticket { credentials, proved_at, session, context: _, chain: _ }) => {
                (credentials, Some(proved_at), Some(session))
            }
            None => (credentials()?, None, None),
        };
        let slot = Slot { offered: Mutex::new(offered), given: Mutex::new(None) };
        Ok((Self { tickets: tickets.clone(), context, credentials, proved_before, now }, slot))
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Stores the ticket that rustls got after this handshake.
    pub(super) fn keep(&self, connection: &Connection, slot: &Slot) {
        let Some(session) = take(&slot.given) else { return };
        let Some(shown) = connection.peer_certificates() else { return };
        let proved_at = if is_resumed(connection) { self.proved_before } else { Some(self.now) };
        let Some(proved_at) = proved_at else { return };
        self.tickets.put(Ticket {
            context: self.context.clone(),
            credentials: self.credentials.clone(),
            chain: shown.iter().map(|shown| CertificateDer::from(shown.to_vec())).collect(),
            proved_at,
            session,
        });
    }
}

impl ClientSessionStore for Slot {
    /// The first group of our list is tried first, whatever a server has chosen before.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        set(&self.given, session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        take(&self.offered)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot(..)")
    }
}

/// A server's handshake.
pub(super) struct Server {
    sessions: Sessions,
    terms: Terms,
    now: UnixTime,
    /// When both sides were authenticated, if a session is resumed.
    proved_before: Mutex<Option<UnixTime>>,
    made: Mutex<Option<Made>>,
}

/// A session created by rustls: its name and its secrets.
struct Made(Vec<u8>, Zeroizing<Vec<u8>>);

impl Server {
    pub(super) fn new(sessions: &Sessions, terms: Terms, now: UnixTime) -> Self {
        let (proved_before, made) = (Mutex::new(None), Mutex::new(None));
        Self { sessions: sessions.clone(), terms, now, proved_before, made }
    }

    /// Stores the session of the ticket after a successful handshake. Returns `false` if there is none.
    pub(super) fn keep(&self, connection: &Connection) -> bool {
        let Some(Made(name, secrets)) = take(&self.made) else { return false };
        let proved_at = if is_resumed(connection) { take(&self.proved_before) } else { Some(self.now) };
        let Some(proved_at) = proved_at else { return false };
        self.sessions.put(name, Session { terms: self.terms, proved_at, secrets }, self.now);
        true
    }
}

impl StoresServerSessions for Server {
    fn put(&self, name: Vec<u8>, secrets: Vec<u8>) -> bool {
        let secrets = Zeroizing::new(secrets);
        let fits = secrets.len() <= MAX_SESSION;
        if fits {
            set(&self.made, Made(name, secrets));
        }
        fits
    }

    /// A session counts once.
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, name: &[u8]) -> Option<Vec<u8>> {
        let (proved_at, secrets) = self.sessions.take(name, self.terms, self.now)?;
        set(&self.proved_before, proved_at);
        Some(secrets.to_vec())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server(..)")
    }
}

/// Whether the handshake has resumed a session.
pub(super) fn is_resumed(connection: &Connection) -> bool {
    connection.handshake_kind() == Some(HandshakeKind::Resumed)
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn set<T>(place: &Mutex<Option<T>>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}
