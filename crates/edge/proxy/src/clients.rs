//! The allowed clients of `plait serve`: a file with a line for each, and those of the configuration.

mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use plait_handshake::Fingerprint;
use plait_keys::{Stamp, lock_list, read_list, replace_file};

pub use self::entry::{AuthorizedClient, Expiry};
use crate::keys::KeyStore;

/// The file's name in its directory.
const FILE: &str = "authorized_clients";

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientList {
    /// The allowed clients.
    pub clients: Vec<AuthorizedClient>,
    /// Invalid lines, with the file, their number from 1, and the reason. A client in an invalid line is not allowed.
    pub mistakes: Vec<String>,
}

/// The clients of the file and of the configuration together. The file is read again after each change: adding or removing a line needs no
/// restart of the server.
#[derive(Debug)]
pub struct AuthorizedClients {
    store: KeyStore,
    known: Mutex<Known>,
}

/// Clients, each with its place, and the invalid lines.
type Lines = (Vec<(String, AuthorizedClient)>, Vec<String>);

/// What is known of a client, for the connections that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is allowed, with these limits.
    Allowed(Arc<AuthorizedClient>),
    /// It is not allowed.
    Gone,
    /// The file cannot be read now.
    Unknown,
}

#[derive(Debug, Default)]
struct Known {
    configured: Vec<AuthorizedClient>,
    /// The file that was read last; `None` if there was none, or if it could not be read.
    stamp: Option<Stamp>,
    /// Its clients.
    listed: Vec<(String, AuthorizedClient)>,
    /// All clients.
    clients: BTreeMap<[u8; 32], Arc<AuthorizedClient>>,
    /// The last failure to read the file, which is logged once.
    failure: Option<String>,
    /// Changes with the clients.
    generation: u64,
}

impl AuthorizedClients {
    /// The clients in the file of `store`, and these ones.
    #[must_use]
    pub fn in_store(store: KeyStore, configured: Vec<AuthorizedClient>) -> Self {
        let known = Known { configured, ..Known::default() };
        let clients = Self { store, known: Mutex::new(known) };
        clients.known().settle();
        clients
    }

    /// Returns the client with this key, as the file is now. While the file is missing, or other users can change it, it allows no client.
    /// An invalid line allows no client and excludes no other; it is logged once for each change of the file.
    pub fn find(&self, shown: Fingerprint) -> Option<Arc<AuthorizedClient>> {
        let mut known = self.known();
        known.look(&self.store);
        known.clients.get(shown.as_bytes()).cloned()
    }

    /// Returns what was known of the client with this key when the file was looked at last.
    pub fn standing(&self, shown: Fingerprint) -> Standing {
        let known = self.known();
        match known.clients.get(shown.as_bytes()) {
            Some(client) => Standing::Allowed(Arc::clone(client)),
            None if known.failure.is_some() => Standing::Unknown,
            None => Standing::Gone,
        }
    }

    /// Looks at the file. Returns a number that changes with the clients.
    pub fn look(&self) -> u64 {
        let mut known = self.known();
        known.look(&self.store);
        known.generation
    }

    /// Returns the number of clients whose access has ended at this time.
    pub fn expired(&self, now: jiff::Timestamp) -> usize {
        self.known().clients.values().filter(|client| client.has_expired(now)).count()
    }

    /// Replaces the clients of the configuration.
    pub fn configure(&self, configured: Vec<AuthorizedClient>) {
        let mut known = self.known();
        known.configured = configured;
        known.settle();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Reads the file again if it has changed.
    fn look(&mut self, store: &KeyStore) {
        let stamp = Stamp::of(&store.path(FILE));
        match (&stamp, self.stamp) {
            (Ok(now), Some(before)) if *now == before && self.failure.is_none() => return,
            (Err(error), None) if error.kind() == ErrorKind::NotFound && self.failure.is_none() => return,
            _ => {}
        }
        match store.listed() {
            Ok(listed) => {
                self.stamp = stamp.ok().filter(|_| listed.is_some());
                self.failure = None;
                let (listed, mistakes) = listed.unwrap_or_default();
                mistakes.iter().for_each(|mistake| tracing::error!("no client is allowed by {mistake}"));
                self.listed = listed;
            }
            Err(error) => {
                let failure = format!("{error:#}");
                if self.failure.as_ref() == Some(&failure) {
                    return;
                }
                tracing::error!("{FILE} allows no client: {failure}");
                (self.stamp, self.failure) = (None, Some(failure));
                self.listed = Vec::new();
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        let (clients, mistakes) = Both { configured: &self.configured, listed: &self.listed }.together();
        mistakes.iter().for_each(|mistake| tracing::error!("no client is allowed by {mistake}"));
        let by_key = |client: AuthorizedClient| (*client.key.fingerprint().as_bytes(), Arc::new(client));
        self.clients = clients.into_iter().map(by_key).collect();
        self.generation += 1;
    }
}

/// The lines of the file with the key or the name of one of these clients of the configuration.
///
/// # Errors
/// The file cannot be read, or others can change it.
pub fn collisions(store: &KeyStore, configured: &[AuthorizedClient]) -> anyhow::Result<Vec<String>> {
    let (listed, _) = store.listed()?.unwrap_or_default();
    let both = Both { configured, listed: &listed };
    let are_configured = |(first, _, _): &(usize, usize, &str)| *first < configured.len();
    Ok(both.twins().into_iter().filter(are_configured).map(|twins| both.mistake(twins)).collect())
}

/// The pairs of these clients that have one key or one name, as places in the list, with what they share.
#[must_use]
pub fn twins(clients: &[AuthorizedClient]) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    let (mut keys, mut names) = (BTreeMap::new(), BTreeMap::new());
    for (at, client) in clients.iter().enumerate() {
        if let Some(first) = keys.insert(*client.key.fingerprint().as_bytes(), at) {
            found.push((first, at, "key"));
        } else if !client.comment.is_empty()
            && let Some(first) = names.insert(client.comment.as_str(), at)
        {
            found.push((first, at, "name"));
        }
    }
    found
}

/// The clients of the configuration, and those of the file, each with its place.
struct Both<'a> {
    configured: &'a [AuthorizedClient],
    listed: &'a [(String, AuthorizedClient)],
}

impl Both<'_> {
    fn all(&self) -> Vec<AuthorizedClient> {
        let listed = self.listed.iter().map(|(_, client)| client);
        self.configured.iter().chain(listed).cloned().collect()
    }

    fn twins(&self) -> Vec<(usize, usize, &'static str)> {
        twins(&self.all())
    }

    fn mistake(&self, (first, second, what): (usize, usize, &str)) -> String {
        format!("{}: it has the {what} of {}", self.place(second), self.place(first))
    }

    fn place(&self, at: usize) -> String {
        if let Some(at) = at.checked_sub(self.configured.len()) {
            return self.listed[at].0.clone();
        }
        let client = &self.configured[at];
        match client.comment.as_str() {
            "" => format!("the client {} of the configuration", client.key.fingerprint()),
            name => format!("the client {name} of the configuration"),
        }
    }

    /// The clients, and the mistakes. If entries have one key, none of them counts: they may differ in what they allow. If they have one
    /// name, the first one counts.
    fn together(&self) -> (Vec<AuthorizedClient>, Vec<String>) {
        let (mut mistakes, mut left_out) = (Vec::new(), BTreeSet::new());
        for (first, second, what) in self.twins() {
            mistakes.push(self.mistake((first, second, what)));
            left_out.insert(second);
            if what == "key" {
                left_out.insert(first);
            }
        }
        let kept = self.all().into_iter().enumerate().filter(|(at, _)| !left_out.contains(at));
        (kept.map(|(_, client)| client).collect(), mistakes)
    }
}

impl ClientList {
    /// Reads the text of a file. A line is `[allow=RULES] [expires=DATE] [connections=N] plait-ed25519 KEY NAME`, and `#` starts a remark.
    #[must_use]
    pub fn parse(text: &str, file: &Path) -> Self {
        let (listed, mut mistakes) = lines(text, file);
        let (clients, collisions) = Both { configured: &[], listed: &listed }.together();
        mistakes.extend(collisions);
        Self { clients, mistakes }
    }
}

/// The clients in a text, each with its place, and the invalid lines.
fn lines(text: &str, file: &Path) -> Lines {
    let (mut listed, mut mistakes) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let place = format!("{}:{line}", file.display());
        match client_in(text) {
            Ok(client) => listed.extend(client.map(|client| (place, client))),
            Err(error) => mistakes.push(format!("{place}: {error:#}")),
        }
    }
    (listed, mistakes)
}

impl KeyStore {
    /// The allowed clients in the file; `None` without a file.
    ///
    /// # Errors
    /// The file cannot be read, or others can change it.
    pub fn authorized_clients(&self) -> anyhow::Result<Option<ClientList>> {
        let file = self.path(FILE);
        Ok(read_list(&file)?.map(|text| ClientList::parse(&text, &file)))
    }

    fn listed(&self) -> anyhow::Result<Option<Lines>> {
        let file = self.path(FILE);
        Ok(read_list(&file)?.map(|text| lines(&text, &file)))
    }

    /// Allows a client. It replaces an earlier entry for its key.
    ///
    /// # Errors
    /// The name is invalid or that of another client, or the file cannot be read or written.
    pub fn authorize(&self, client: &AuthorizedClient) -> anyhow::Result<()> {
        client.check_name()?;
        let line = client.to_string();
        self.edit_clients(|text| {
            let is_old = |line: &&str| is_of(line, |other| other.key == client.key);
            let has_name = |line: &str| is_of(line, |other| other.comment == client.comment);
            let mut others = text.lines().filter(|line| !is_old(line));
            ensure!(
                client.comment.is_empty() || !others.clone().any(has_name),
                "another client is called {:?}\n  fix: give another --name, or revoke that client first",
                client.comment
            );
            let kept: Vec<_> = others.by_ref().chain([line.as_str()]).collect();
            Ok(Some(kept.join("\n") + "\n"))
        })
    }

    /// Removes clients: those with this key, or with this name. Returns the number of removed lines.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn revoke(&self, who: &str) -> anyhow::Result<usize> {
        ensure!(!who.is_empty(), "a client without a name is taken out by its fingerprint");
        let fingerprint = who.parse::<Fingerprint>().ok();
        let is_meant = |client: &AuthorizedClient| match fingerprint {
            Some(fingerprint) => client.key.fingerprint() == fingerprint,
            None => client.comment == who,
        };
        let mut gone = 0;
        self.edit_clients(|text| {
            let kept: Vec<_> = text.lines().filter(|line| !is_of(line, is_meant)).collect();
            gone = text.lines().count() - kept.len();
            Ok((gone > 0).then(|| kept.iter().flat_map(|line| [*line, "\n"]).collect()))
        })?;
        Ok(gone)
    }

    /// Changes the file under a lock, so that concurrent programs lose no change.
    fn edit_clients(&self, edit: impl FnOnce(&str) -> anyhow::Result<Option<String>>) -> anyhow::Result<()> {
        let file = self.path(FILE);
        let place = || format!("cannot write {}", file.display());
        let _lock = lock_list(&file).with_context(place)?;
        let before = read_list(&file)?.unwrap_or_default();
        edit(&before)?.map_or(Ok(()), |text| replace_file(&file, text.as_bytes(), 0o600).with_context(place))
    }
}

/// The client of a line; `None` for an empty line or a comment.
fn client_in(line: &str) -> anyhow::Result<Option<AuthorizedClient>> {
    let text = line.split_once('#').map_or(line, |(text, _)| text).trim();
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// Whether a line is for a matching client; an invalid line matches none.
fn is_of(line: &str, is_meant: impl Fn(&AuthorizedClient) -> bool) -> bool {
    matches!(client_in(line), Ok(Some(client)) if is_meant(&client))
}

#[cfg(test)]
mod tests;
