//! Known servers and their keys.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use plait_handshake::Fingerprint;

use crate::secret::{ReadListError, read_list};
use crate::whole::{lock_list, replace_file};

/// A file of servers and their keys, like that of ssh. A line is `HOST:PORT SHA256:… first-seen [paths=N] [names=BASIS]`, and `#` starts a
/// remark. `paths=N` is the number of disjoint paths of one connection over which the key was seen at the first contact; without it, a user
/// entered the key. `names=BASIS` is the basis of the addresses at that time ([`NameBasis`]); lines of earlier versions lack it.
///
/// A server may have several lines with different keys, for example an old key and its successor ([`KnownPeers::pin_also`]): each of them is
/// accepted. A key in the file stays until it is removed by name ([`KnownPeers::forget`]). A connection that shows another key is refused,
/// even if it began before the first key was known. Each change is made under a lock, by the present content of the file, so that any number of
/// programs may share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPeers {
    file: PathBuf,
}

/// A server that was met before.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KnownPeer {
    /// `HOST:PORT`.
    pub authority: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// When it was first contacted, as text for display; it may be empty.
    pub first_seen: String,
    /// Number of disjoint paths over which it has shown its key then; `None` if the key was entered by hand.
    pub paths: Option<u8>,
    /// The basis of the addresses that showed it; `None` if the key was entered by hand, or by an earlier version.
    pub names: Option<NameBasis>,
    /// Line in the file, from 1.
    pub line: usize,
}

impl KnownPeer {
    /// An entry as a file would have it.
    #[must_use]
    pub fn new(authority: &str, fingerprint: Fingerprint, first_seen: &str, line: usize) -> Self {
        Self {
            authority: authority.to_owned(),
            fingerprint,
            first_seen: first_seen.to_owned(),
            paths: None,
            names: None,
            line,
        }
    }
}

/// The basis of a server's addresses when its key was first seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NameBasis {
    /// No network was asked: they were given, or come from the machine's hosts file.
    Given,
    /// Several paths returned the same addresses, each asked separately.
    Agreed,
    /// One answer of DNS: an attacker on its path may have returned its own host.
    OnePath,
    /// The DNS zone publishes the key itself, as DNSSEC has proved (RFC 6698): the addresses do not matter.
    Dnssec,
}

impl NameBasis {
    const ALL: [Self; 4] = [Self::Given, Self::Agreed, Self::OnePath, Self::Dnssec];

    /// The word in the file: `given`, `agreed`, `one-path` or `dnssec`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Agreed => "agreed",
            Self::OnePath => "one-path",
            Self::Dnssec => "dnssec",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|basis| basis.word() == word)
    }
}

/// A key that a server has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The key.
    pub key: Fingerprint,
    /// The number of disjoint paths of one connection.
    pub paths: u8,
    /// The basis of the addresses.
    pub names: NameBasis,
}

/// What to do with a key of a server that has others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// Refuse it.
    Refuse,
    /// Store it beside them.
    Keep,
}

/// The result for a key that a server has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinned {
    /// It is the first of this server.
    New,
    /// It was known.
    Before,
}

/// The reason for which the known servers cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnownPeersError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadListError),
    /// The file, or its lock beside it, cannot be written.
    #[error("cannot write {}: {source}", file.display())]
    Write {
        /// Its name.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is malformed. Then no line counts, because its meaning is unknown.
    #[error("{}:{line}: a line is HOST:PORT SHA256:FINGERPRINT DATE", file.display())]
    Line {
        /// Its name.
        file: PathBuf,
        /// From 1.
        line: usize,
    },
    /// The name is not `HOST:PORT`.
    #[error("{0:?} is not the name of a server")]
    Name(String),
    /// The server is known with another key.
    #[error(
        "{authority} shows a different key than the one trusted{since}\n  trusted  {trusted}  ({file}:{line})\n  shown    {shown}\n  \
         Either the server was set up anew, or an attacker on the path intercepts you.\n  \
         fix: plait key forget {authority}    (after you have asked its operator)",
        authority = known.authority,
        since = if known.first_seen.is_empty() { String::new() } else { format!(" on {}", known.first_seen) },
        trusted = known.fingerprint,
        line = known.line,
        file = file.display(),
    )]
    AnotherKey {
        /// The file with the entry.
        file: PathBuf,
        /// The entry.
        known: Box<KnownPeer>,
        /// The key that was shown.
        shown: Fingerprint,
    },
}

impl KnownPeers {
    /// Returns the known servers of `file`, which is created with the first of them.
    #[must_use]
    pub fn in_file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All of them.
    ///
    /// # Errors
    /// The file cannot be read, other users can change it, or a line of it is malformed.
    pub fn all(&self) -> Result<Vec<KnownPeer>, KnownPeersError> {
        self.parse(&read_list(&self.file)?.unwrap_or_default())
    }

    /// The first key of the server at `authority` (`HOST:PORT`).
    ///
    /// # Errors
    /// As [`KnownPeers::all`].
    pub fn find(&self, authority: &str) -> Result<Option<KnownPeer>, KnownPeersError> {
        Ok(self.all()?.into_iter().find(|peer| peer.authority == authority))
    }

    /// All keys of the server at `authority`, each with its line.
    ///
    /// # Errors
    /// As [`KnownPeers::all`].
    pub fn keys_of(&self, authority: &str) -> Result<Vec<KnownPeer>, KnownPeersError> {
        Ok(self.all()?.into_iter().filter(|peer| peer.authority == authority).collect())
    }

    /// Stores the key that the user knows for the server at `authority`, unless it has a key already.
    ///
    /// # Errors
    /// [`KnownPeersError::AnotherKey`]; or the file cannot be read or written.
    pub fn pin(&self, authority: &str, key: Fingerprint) -> Result<Pinned, KnownPeersError> {
        self.pin_with(authority, key, "", Others::Refuse)
    }

    /// The same, beside the keys that the server has already: each of them is accepted from then on.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn pin_also(&self, authority: &str, key: Fingerprint) -> Result<Pinned, KnownPeersError> {
        self.pin_with(authority, key, "", Others::Keep)
    }

    /// Stores the key that the server at `authority` has shown, unless it has a key already. Of connections to it at the same time the
    /// first decides.
    ///
    /// # Errors
    /// [`KnownPeersError::AnotherKey`], whatever was known when the connection began; or the file cannot be read or written.
    pub fn pin_shown(&self, authority: &str, shown: Shown) -> Result<Pinned, KnownPeersError> {
        let Shown { key, paths, names } = shown;
        self.pin_with(authority, key, &format!(" {PATHS}{paths} {NAMES}{}", names.word()), Others::Refuse)
    }

    /// `how` goes behind the date.
    fn pin_with(
        &self,
        authority: &str,
        shown: Fingerprint,
        how: &str,
        others: Others,
    ) -> Result<Pinned, KnownPeersError> {
        if authority.is_empty()
            || authority.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#')
        {
            return Err(KnownPeersError::Name(authority.to_owned()));
        }
        let _lock = self.lock()?;
        let mut text = read_list(&self.file)?.unwrap_or_default();
        let mut known = self.parse(&text)?.into_iter().filter(|peer| peer.authority == authority).peekable();
        let first = known.peek().cloned();
        if known.any(|known| known.fingerprint == shown) {
            return Ok(Pinned::Before);
        }
        match (first, others) {
            (Some(known), Others::Refuse) => {
                let file = self.file.clone();
                Err(KnownPeersError::AnotherKey { file, known: Box::new(known), shown })
            }
            (None, Others::Refuse) | (_, Others::Keep) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text += &format!("{authority} {shown} {}{how}\n", today());
                self.replace(&text).map(|()| Pinned::New)
            }
        }
    }

    /// Removes all keys of a server, so that the next key it shows is stored. Returns whether it was known.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn forget(&self, authority: &str) -> Result<bool, KnownPeersError> {
        self.remove(authority, None)
    }

    /// Removes one key of a server. Returns whether the server had it.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn forget_key(&self, authority: &str, key: Fingerprint) -> Result<bool, KnownPeersError> {
        self.remove(authority, Some(key))
    }

    fn remove(&self, authority: &str, key: Option<Fingerprint>) -> Result<bool, KnownPeersError> {
        let _lock = self.lock()?;
        let Some(text) = read_list(&self.file)? else { return Ok(false) };
        let is_it = |line: &&str| {
            let mut words = words(line);
            let is_server = words.next() == Some(authority);
            is_server && key.is_none_or(|key| words.next().is_some_and(|word| word.parse() == Ok(key)))
        };
        if !text.lines().any(|line| is_it(&line)) {
            return Ok(false);
        }
        let rest: String = text.lines().filter(|line| !is_it(line)).flat_map(|line| [line, "\n"]).collect();
        self.replace(&rest).map(|()| true)
    }

    fn lock(&self) -> Result<File, KnownPeersError> {
        lock_list(&self.file).map_err(|source| self.unwritable(source))
    }

    fn replace(&self, text: &str) -> Result<(), KnownPeersError> {
        replace_file(&self.file, text.as_bytes(), 0o600).map_err(|source| self.unwritable(source))
    }

    fn unwritable(&self, source: io::Error) -> KnownPeersError {
        KnownPeersError::Write { file: self.file.clone(), source }
    }

    /// Those in a text that such a file may have.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(&self, text: &str) -> Result<Vec<KnownPeer>, KnownPeersError> {
        let mut peers = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = words(text);
            let Some(authority) = words.next() else { continue };
            let wrong = || KnownPeersError::Line { file: self.file.clone(), line };
            let Some(Ok(fingerprint)) = words.next().map(str::parse) else { return Err(wrong()) };
            let mut rest: Vec<_> = words.collect();
            // They would reach a terminal with the list of servers.
            let is_unseen = |letter: char| letter.is_control() || letter.is_whitespace();
            if [authority].iter().chain(&rest).any(|word| word.contains(is_unseen)) {
                return Err(wrong());
            }
            let names = rest.last().and_then(|word| NameBasis::of_word(word.strip_prefix(NAMES)?));
            if names.is_some() {
                rest.pop();
            }
            let paths = rest.last().and_then(|word| word.strip_prefix(PATHS)?.parse().ok());
            if paths.is_some() {
                rest.pop();
            }
            let peer = KnownPeer::new(authority, fingerprint, &rest.join(" "), line);
            peers.push(KnownPeer { paths, names, ..peer });
        }
        Ok(peers)
    }
}

/// In front of the number of paths, near the end of a line.
const PATHS: &str = "paths=";

/// In front of what the addresses rest on, at the end of a line.
const NAMES: &str = "names=";

/// The words of a line in front of its remark.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_once('#').map_or(line, |(line, _)| line).split_ascii_whitespace()
}

/// The date in UTC, as `YYYY-MM-DD`.
fn today() -> String {
    Timestamp::now().to_zoned(TimeZone::UTC).date().to_string()
}

#[cfg(test)]
mod tests;
