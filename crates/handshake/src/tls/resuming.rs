//! Continuing a session (RFC 8446, section 2.2), `psk_dhe_ke` alone: what rustls asks of a store, for one handshake each.
//!
//! rustls would have one store for all handshakes, by the name of the server alone, and leaves out what it has verified before. Here each handshake
//! gets at most one ticket, which [`Tickets`](crate::Tickets) or [`Sessions`](crate::Sessions) have judged by all that counts, and what it
//! brings is kept only if the handshake has come to something. There is no early data.

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
    /// When the server has signed something, if the session is continued that we offer to.
    proved_before: Option<UnixTime>,
    now: UnixTime,
}

/// What rustls gets and gives.
pub(super) struct Slot {
    offered: Mutex<Option<Tls13ClientSessionValue>>,
    given: Mutex<Option<Tls13ClientSessionValue>>,
}

impl Client {
    /// With a ticket, if there is one; else with these credentials.
    ///
    /// # Errors
    /// The credentials cannot be made.
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

    /// Keeps what rustls was given behind this handshake.
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
    /// The first group of our list is tried first, whatever a server has chosen once.
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
    /// When both have proved who they are, if a session is continued.
    proved_before: Mutex<Option<UnixTime>>,
    made: Mutex<Option<Made>>,
}

/// A session that rustls has made: its name and its secrets.
struct Made(Vec<u8>, Zeroizing<Vec<u8>>);

impl Server {
    pub(super) fn new(sessions: &Sessions, terms: Terms, now: UnixTime) -> Self {
        let (proved_before, made) = (Mutex::new(None), Mutex::new(None));
        Self { sessions: sessions.clone(), terms, now, proved_before, made }
    }

    /// The handshake has come to something: keeps the session that its ticket stands for. `false` if there is none.
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

/// Whether the handshake has continued a session.
pub(super) fn is_resumed(connection: &Connection) -> bool {
    connection.handshake_kind() == Some(HandshakeKind::Resumed)
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn set<T>(place: &Mutex<Option<T>>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}
