//! The allowed clients of `plait serve`, and the log lines about refused ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::bail;
use plait::{Applicant, Peer, Refusal};
use plait_proxy::clients::{AuthorizedClient, AuthorizedClients};
use plait_proxy::keys::KeyStore;

use crate::linux::repeated::Repeated;
use crate::output::say;
use crate::server_identity::shown_by;
use crate::shown::shown;

/// Judges each client before its connection is accepted.
#[derive(Debug)]
pub(crate) struct Door {
    /// `None`: every client is accepted.
    clients: Option<AuthorizedClients>,
    /// Most connections at a time.
    most: AtomicUsize,
    open: AtomicUsize,
    is_stopping: AtomicBool,
    refused: Repeated,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Door>);

impl Door {
    /// Accepts the clients of a list, or all, up to this many connections.
    pub(crate) fn new(clients: Option<AuthorizedClients>, most: usize) -> Arc<Self> {
        let (open, is_stopping) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self {
            clients,
            most: AtomicUsize::new(most),
            open,
            is_stopping,
            refused: Repeated::default(),
        })
    }

    /// Decides whether a client may have a connection. It is called before the connection is accepted, on the thread of the host.
    ///
    /// # Errors
    /// The reason of the refusal, which is also logged.
    pub(crate) fn judge(&self, applicant: &Applicant) -> Result<(), Refusal> {
        let verdict = self.verdict(applicant);
        if let Err(refusal) = verdict
            && let Some(more) = self.refused.note(kind(refusal))
        {
            tracing::warn!("{}", line(applicant, refusal, more));
        }
        verdict
    }

    fn verdict(&self, applicant: &Applicant) -> Result<(), Refusal> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        self.find(applicant.peer())?;
        if self.open.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// The client of the list with this identity; `None` if every client is accepted.
    ///
    /// # Errors
    /// The list does not have it.
    pub(crate) fn find(&self, peer: &Peer) -> Result<Option<AuthorizedClient>, Refusal> {
        let Some(list) = &self.clients else { return Ok(None) };
        let found = shown_by(peer).and_then(|shown| list.find(shown));
        found.map(Some).ok_or(Refusal::NotAuthorized)
    }

    /// Counts a connection, if there is room for one.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        (self.open.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed)).then_some(place)
    }

    /// The most connections at a time.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the most connections at a time. Those beyond it stay.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Accepts no more clients.
    pub(crate) fn close(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn kind(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotAuthorized => "refused: not authorized",
        Refusal::Full => "refused: too many connections",
        Refusal::Draining => "refused: stopping",
        _ => "refused",
    }
}

/// The line of the log for a refused client. Its form is documented for programs (docs/use.md, "Refused clients"): fail2ban reads it.
fn line(applicant: &Applicant, refusal: Refusal, more: u64) -> String {
    let from = applicant.peer_addr();
    let (address, port) = (from.ip().to_canonical(), from.port());
    let key = shown_by(applicant.peer()).map_or_else(|| "none".to_owned(), |key| key.to_string());
    let fix = match (refusal, applicant.public_key()) {
        (Refusal::NotAuthorized, Some(key)) => format!("; fix: plait key authorize {key}"),
        (Refusal::NotAuthorized, None) => "; fix: plait key gen on the client".to_owned(),
        (Refusal::Full, _) => "; too many connections (--max-connections)".to_owned(),
        _ => String::new(),
    };
    format!("refused a client: address={address} port={port} key={key} reason={refusal} more={more}{fix}")
}

/// The clients that may use a server; `None`: all. Without a file no client may: the file is read again once it exists.
///
/// # Errors
/// The file is invalid, or clients cannot be distinguished because not all connections are sealed.
pub(crate) fn clients(
    store: &KeyStore,
    (anyone, requires_sealing): (bool, bool),
) -> anyhow::Result<Option<AuthorizedClients>> {
    if anyone {
        return Ok(None);
    }
    let file = store.path("authorized_clients");
    let file = file.display();
    if !requires_sealing {
        bail!(
            "clients can only be told apart where all connections are sealed, and only those in {file} are accepted\n  fix: leave out \
             --protect and --policy, or accept every client by --anyone"
        );
    }
    let list = store.authorized_clients()?.unwrap_or_default();
    for mistake in &list.mistakes {
        say(&format!("warning: no client is allowed by {}", shown(mistake)));
    }
    if list.clients.is_empty() {
        say(&format!(
            "warning: no client is accepted yet: {file} names none\n  fix: plait key authorize KEY, KEY as plait key show says it on the \
             client (no restart is needed); or accept every client by --anyone"
        ));
    }
    Ok(Some(AuthorizedClients::in_store(store.clone())))
}
