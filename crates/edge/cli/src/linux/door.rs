//! The allowed clients of `plait serve`, and the log lines about refused ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use plait::{Applicant, Fingerprint, Peer, Refusal, Stream};
use plait_proxy::clients::{AuthorizedClient, AuthorizedClients, Standing, collisions};
use plait_proxy::keys::KeyStore;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::linux::repeated::Repeated;
use crate::output::say;
use crate::running::Tallies;
use crate::server_identity::shown_by;
use crate::shown::shown;

/// Connections without a request that a client with a limit may have beside those that it may have.
const WITHOUT_REQUEST: usize = 64;
/// Time between two looks at the list. A change that stays for two looks ends connections: a file that is being written is no list.
const LOOK: Duration = Duration::from_millis(200);

/// Judges each client before its connection is accepted.
#[derive(Debug)]
pub(crate) struct Door {
    /// `None`: every client is accepted.
    clients: Option<AuthorizedClients>,
    tallies: Arc<Tallies>,
    /// Changes after the clients have.
    changes: watch::Sender<()>,
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
    /// Accepts the clients of a list, or all, up to this many connections. `tallies` counts them.
    pub(crate) fn new(clients: Option<AuthorizedClients>, most: usize, tallies: Arc<Tallies>) -> Arc<Self> {
        let (open, is_stopping) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self {
            clients,
            tallies,
            changes: watch::Sender::new(()),
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
        if let Err(refusal) = verdict {
            let (kind, name) = kind(refusal);
            self.tallies.refuses(name);
            if let Some(more) = self.refused.note(kind) {
                tracing::warn!("{}", line(applicant, refusal, more));
            }
        }
        verdict
    }

    fn verdict(&self, applicant: &Applicant) -> Result<(), Refusal> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        if let Some(client) = self.find(applicant.peer())?
            && let Some(most) = client.connections
        {
            let most = most.get() as usize;
            let (open, served) = self.tallies.open(client.key.fingerprint());
            if served >= most || open >= most.saturating_add(WITHOUT_REQUEST) {
                return Err(Refusal::TooMany);
            }
        }
        if self.open.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// The client of the list with this identity; `None` if every client is accepted.
    ///
    /// # Errors
    /// The list does not have it, or its access has expired.
    pub(crate) fn find(&self, peer: &Peer) -> Result<Option<Arc<AuthorizedClient>>, Refusal> {
        let Some(list) = &self.clients else { return Ok(None) };
        match shown_by(peer).and_then(|shown| list.find(shown)) {
            None => Err(Refusal::NotAuthorized),
            Some(client) if client.has_expired(Timestamp::now()) => Err(Refusal::Expired),
            Some(client) => Ok(Some(client)),
        }
    }

    /// The key that tells the client of a connection from others; `None` if every client is accepted: it may have as many keys as it likes.
    pub(crate) fn key_of(&self, stream: &Stream) -> Option<Fingerprint> {
        shown_by(stream.peer_identity()).filter(|_| self.clients.is_some())
    }

    /// What is known of a client.
    pub(crate) fn standing(&self, key: Fingerprint) -> Standing {
        self.clients.as_ref().map_or(Standing::Unknown, |list| list.standing(key))
    }

    /// Changes when the standing of a client may have.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Replaces the clients of the configuration. Returns `false` where every client is accepted: there is no list.
    pub(crate) fn configure(&self, configured: Vec<AuthorizedClient>) -> bool {
        self.clients.as_ref().map(|list| list.configure(configured)).is_some()
    }

    /// Reports changes of the list, and clients whose access ends. Never returns.
    pub(crate) async fn keep(self: Arc<Self>) {
        let Some(list) = &self.clients else { return std::future::pending().await };
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut before, mut told) = (None, None);
        loop {
            look.tick().await;
            let now = Some((list.look(), list.expired(Timestamp::now())));
            if now == before && now != told {
                told = now;
                self.changes.send_replace(());
            }
            before = now;
        }
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

/// The kind of its line in the log, and its name in metrics.
fn kind(refusal: Refusal) -> (&'static str, &'static str) {
    match refusal {
        Refusal::NotAuthorized => ("refused: not authorized", "not-authorized"),
        Refusal::Full => ("refused: too many connections", "full"),
        Refusal::Draining => ("refused: stopping", "draining"),
        Refusal::Expired => ("refused: expired", "expired"),
        Refusal::TooMany => ("refused: too many connections of one client", "too-many"),
        _ => ("refused", "other"),
    }
}

/// The reasons of refusals in metrics.
pub(crate) const REASONS: [&str; 5] = ["draining", "expired", "full", "not-authorized", "too-many"];

/// The line of the log for a refused client. Its form is documented for programs (docs/book/operators.md, "Refused clients"): fail2ban reads it.
fn line(applicant: &Applicant, refusal: Refusal, more: u64) -> String {
    let from = applicant.peer_addr();
    let (address, port) = (from.ip().to_canonical(), from.port());
    let key = shown_by(applicant.peer()).map_or_else(|| "none".to_owned(), |key| key.to_string());
    let fix = match (refusal, applicant.public_key()) {
        (Refusal::NotAuthorized, Some(key)) => format!("; fix: plait key authorize {key}"),
        (Refusal::NotAuthorized, None) => "; fix: plait key gen on the client".to_owned(),
        (Refusal::Expired, _) => {
            "; fix: a later date (plait key authorize --expires, or expires in the configuration)".to_owned()
        }
        (Refusal::TooMany, _) => "; as many connections as the client may have (connections=)".to_owned(),
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
    configured: &[AuthorizedClient],
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
    if let [mistake, ..] = &collisions(store, configured)?[..] {
        bail!("{mistake}\n  fix: keep one of them");
    }
    if list.clients.is_empty() && configured.is_empty() {
        say(&format!(
            "warning: no client is accepted yet: {file} names none\n  fix: plait key authorize KEY, KEY as plait key show says it on the \
             client (no restart is needed); or accept every client by --anyone"
        ));
    }
    Ok(Some(AuthorizedClients::in_store(store.clone(), configured.to_vec())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tokio::time::sleep;

    use super::*;

    const ADA: &str = "plait-ed25519 1NXPWtMg7F0Ndy1LkyoiLUBkzCOYqNcM0mD9YoRoWg8 ada";

    fn door(directory: &Path, text: &str) -> Arc<Door> {
        fs::write(directory.join("authorized_clients"), text).expect("written");
        let list = AuthorizedClients::in_store(KeyStore::new(directory), Vec::new());
        Door::new(Some(list), 8, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_being_written_ends_nothing_and_one_that_stays_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let door = door(directory.path(), ADA);
        let key = ADA.parse::<AuthorizedClient>().expect("good").key.fingerprint();
        let mut changes = door.changes();
        let kept = tokio::spawn(Arc::clone(&door).keep());
        sleep(LOOK * 5 / 2).await;
        changes.mark_unchanged();
        let write =
            |text: &str| fs::write(directory.path().join("authorized_clients"), text).expect("written");
        write("");
        sleep(LOOK).await;
        assert_eq!(door.standing(key), Standing::Gone);
        assert!(!changes.has_changed().expect("it is kept"), "it may be half written");
        write(ADA);
        sleep(LOOK * 2).await;
        assert!(matches!(door.standing(key), Standing::Allowed(_)));
        changes.mark_unchanged();
        write("");
        sleep(LOOK * 2).await;
        assert!(changes.has_changed().expect("it is kept"), "it stays like that");
        kept.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_expire_are_a_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let soon = Timestamp::now() + Duration::from_millis(700);
        let door = door(directory.path(), &format!("expires={soon} {ADA}"));
        let mut changes = door.changes();
        let kept = tokio::spawn(Arc::clone(&door).keep());
        sleep(LOOK * 3).await;
        changes.mark_unchanged();
        while Timestamp::now() < soon {
            std::thread::sleep(Duration::from_millis(10));
        }
        sleep(LOOK * 3).await;
        assert!(changes.has_changed().expect("it is kept"));
        kept.abort();
    }
}
