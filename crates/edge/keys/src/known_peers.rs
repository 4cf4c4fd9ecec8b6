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
/// A key in the file stays until it is removed by name ([`KnownPeers::forget`]). A connection that shows another key is refused, even if it
/// began before the first key was known. Each change is made under a lock, by the present content of the file, so that any number of
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

    /// The server at `authority` (`HOST:PORT`).
    ///
    /// # Errors
    /// As [`KnownPeers::all`].
    pub fn find(&self, authority: &str) -> Result<Option<KnownPeer>, KnownPeersError> {
        Ok(self.all()?.into_iter().find(|peer| peer.authority == authority))
    }

    /// Stores the key that the user knows for the server at `authority`, unless it has a key already.
    ///
    /// # Errors
    /// [`KnownPeersError::AnotherKey`]; or the file cannot be read or written.
    pub fn pin(&self, authority: &str, key: Fingerprint) -> Result<Pinned, KnownPeersError> {
        self.pin_with(authority, key, "")
    }

    /// Stores the key that the server at `authority` has shown, unless it has a key already. Of connections to it at the same time the
    /// first decides.
    ///
    /// # Errors
    /// [`KnownPeersError::AnotherKey`], whatever was known when the connection began; or the file cannot be read or written.
    pub fn pin_shown(&self, authority: &str, shown: Shown) -> Result<Pinned, KnownPeersError> {
        let Shown { key, paths, names } = shown;
        self.pin_with(authority, key, &format!(" {PATHS}{paths} {NAMES}{}", names.word()))
    }

    /// `how` goes behind the date.
    fn pin_with(&self, authority: &str, shown: Fingerprint, how: &str) -> Result<Pinned, KnownPeersError> {
        if authority.is_empty()
            || authority.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#')
        {
            return Err(KnownPeersError::Name(authority.to_owned()));
        }
        let _lock = self.lock()?;
        let mut text = read_list(&self.file)?.unwrap_or_default();
        let known = self.parse(&text)?.into_iter().find(|peer| peer.authority == authority);
        match known {
            Some(known) if known.fingerprint == shown => Ok(Pinned::Before),
            Some(known) => {
                let file = self.file.clone();
                Err(KnownPeersError::AnotherKey { file, known: Box::new(known), shown })
            }
            None => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text += &format!("{authority} {shown} {}{how}\n", today());
                self.replace(&text).map(|()| Pinned::New)
            }
        }
    }

    /// Removes a server, so that the next key it shows is stored. Returns whether it was known.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn forget(&self, authority: &str) -> Result<bool, KnownPeersError> {
        let _lock = self.lock()?;
        let Some(text) = read_list(&self.file)? else { return Ok(false) };
        let is_it = |line: &&str| words(line).next() == Some(authority);
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

    fn parse(&self, text: &str) -> Result<Vec<KnownPeer>, KnownPeersError> {
        let mut peers = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = words(text);
            let Some(authority) = words.next() else { continue };
            let Some(Ok(fingerprint)) = words.next().map(str::parse) else {
                return Err(KnownPeersError::Line { file: self.file.clone(), line });
            };
            let mut rest: Vec<_> = words.collect();
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
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;
    use std::thread;

    const FIRST: Fingerprint = Fingerprint::new([1; 32]);
    const SECOND: Fingerprint = Fingerprint::new([2; 32]);

    fn empty() -> (tempfile::TempDir, KnownPeers) {
        let scratch = tempfile::tempdir().expect("a directory");
        let known = KnownPeers::in_file(scratch.path().join("config/known_peers"));
        (scratch, known)
    }

    #[test]
    fn the_first_key_of_a_server_stays_until_it_is_forgotten() {
        let (_scratch, known) = empty();
        assert_eq!(known.find("gw:7443").expect("no file yet"), None);
        assert!(!known.forget("gw:7443").expect("no file yet"));
        assert_eq!(known.pin("gw:7443", FIRST).expect("written"), Pinned::New);
        assert_eq!(known.pin("gw:7443", FIRST).expect("it is there"), Pinned::Before);
        let error = known.pin("gw:7443", SECOND).expect_err("another");
        assert!(matches!(error, KnownPeersError::AnotherKey { shown: SECOND, .. }), "{error}");
        for part in ["known_peers:1", &FIRST.to_string(), &SECOND.to_string(), "plait key forget gw:7443"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(known.pin("other:7443", SECOND).expect("written"), Pinned::New);
        let found = known.find("other:7443").expect("read").expect("there");
        assert_eq!((found.fingerprint, found.line, found.first_seen), (SECOND, 2, today()));
        assert!(known.forget("gw:7443").expect("written"));
        assert_eq!(known.pin("gw:7443", SECOND).expect("written"), Pinned::New);
        assert_eq!(fs::metadata(known.file()).expect("there").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_people_have_written_stays() {
        let (_scratch, known) = empty();
        let text = format!("# laptops\n\ngw:7443 {FIRST} 2026-09-02 by hand # ask Ada");
        fs::create_dir_all(known.file().parent().expect("one")).expect("made");
        fs::write(known.file(), &text).expect("written");
        assert_eq!(known.find("gw:7443").expect("read").expect("there").first_seen, "2026-09-02 by hand");
        known.pin("new:7443", SECOND).expect("written");
        let now = fs::read_to_string(known.file()).expect("read");
        assert_eq!(now, format!("{text}\nnew:7443 {SECOND} {}\n", today()));
        assert!(known.forget("gw:7443").expect("written"));
        assert_eq!(known.all().expect("read").len(), 1);
        assert!(fs::read_to_string(known.file()).expect("read").starts_with("# laptops\n\nnew"));
    }

    #[test]
    fn over_how_many_paths_a_key_was_seen_is_kept_with_it() {
        let (_scratch, known) = empty();
        let shown = |key, paths| Shown { key, paths, names: NameBasis::Agreed };
        assert_eq!(known.pin_shown("gw:7443", shown(FIRST, 2)).expect("written"), Pinned::New);
        assert_eq!(known.pin_shown("gw:7443", shown(FIRST, 3)).expect("it is there"), Pinned::Before);
        assert_eq!(known.pin("given:7443", SECOND).expect("written"), Pinned::New);
        let all = known.all().expect("read");
        let how = all.iter().map(|peer| (peer.paths, peer.names)).collect::<Vec<_>>();
        assert_eq!(how, [(Some(2), Some(NameBasis::Agreed)), (None, None)]);
        assert!(all.iter().all(|peer| peer.first_seen == today()), "{all:?}");
        assert!(known.pin_shown("gw:7443", shown(SECOND, 8)).is_err(), "more paths make no other key good");
    }

    #[test]
    fn the_basis_of_a_key_is_kept_with_it() {
        let (_scratch, known) = empty();
        for names in NameBasis::ALL {
            let server = format!("{}:7443", names.word());
            known.pin_shown(&server, Shown { key: FIRST, paths: 1, names }).expect("written");
            assert_eq!(known.find(&server).expect("read").expect("there").names, Some(names));
        }
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let (_scratch, known) = empty();
        fs::create_dir_all(known.file().parent().expect("one")).expect("made");
        fs::write(known.file(), format!("old:1 {FIRST} 2026-09-02 paths=2\nodd:1 {FIRST} x names=y\n"))
            .expect("written");
        let all = known.all().expect("read");
        assert_eq!((all[0].paths, all[0].names, &all[0].first_seen[..]), (Some(2), None, "2026-09-02"));
        assert_eq!((all[1].paths, all[1].names, &all[1].first_seen[..]), (None, None, "x names=y"));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_and_nothing_is_believed() {
        let (_scratch, known) = empty();
        known.pin("gw:7443", FIRST).expect("written");
        let text = fs::read_to_string(known.file()).expect("read");
        fs::write(known.file(), format!("{text}other:7443 SHA256:short\n")).expect("written");
        for error in [known.find("gw:7443").err(), known.pin("gw:7443", FIRST).err()] {
            assert!(error.expect("no fingerprint").to_string().contains("known_peers:2"));
        }
        for name in ["", "a b:1", "gw:7443 SHA256:x\nother:1", "#gw:1"] {
            assert!(matches!(known.pin(name, FIRST), Err(KnownPeersError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_change_is_not_believed() {
        let (_scratch, known) = empty();
        known.pin("gw:7443", FIRST).expect("written");
        fs::set_permissions(known.file(), Permissions::from_mode(0o666)).expect("ours");
        let error = known.find("gw:7443").expect_err("any user could have written it");
        assert!(error.to_string().contains("fix: chmod go-w"), "{error}");
        assert!(known.pin("other:7443", SECOND).is_err());
    }

    /// The state at the start of each connection does not count; the order in which they end does.
    #[test]
    fn of_a_hundred_that_meet_servers_at_the_same_time_none_is_lost_and_none_is_replaced() {
        let (_scratch, known) = empty();
        let start = Barrier::new(100);
        let meet = |number: u8| {
            start.wait();
            // Fifty servers; each is met by two connections that are shown different keys.
            known.pin(&format!("host-{}:7443", number / 2), Fingerprint::new([number; 32]))
        };
        let met: Vec<_> = thread::scope(|scope| {
            let meet = &meet;
            let threads: Vec<_> = (0..100).map(|number| scope.spawn(move || meet(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let all = known.all().expect("read");
        assert_eq!(all.len(), 50);
        for (server, pair) in met.chunks(2).enumerate() {
            let winner = match pair {
                [Ok(Pinned::New), Err(KnownPeersError::AnotherKey { .. })] => 2 * server,
                [Err(KnownPeersError::AnotherKey { .. }), Ok(Pinned::New)] => 2 * server + 1,
                _ => panic!("{pair:?}"),
            };
            let found =
                all.iter().find(|peer| peer.authority == format!("host-{server}:7443")).expect("there");
            assert_eq!(found.fingerprint.as_bytes()[0] as usize, winner);
        }
    }
}
