//! The files that say who is who: our own key, the servers we know, the clients we take.
//!
//! All are text, one entry a line, `#` starts a comment. They live in one directory (by default
//! `~/.config/plait`, for root `/etc/plait`):
//!
//! | file | line |
//! |---|---|
//! | `identity` | PKCS#8 in PEM, readable by its owner only |
//! | `identity.pub` | `plait-ed25519 BASE64 comment` |
//! | `known_peers` | `HOST:PORT SHA256:… first-seen` |
//! | `authorized_clients` | `[allow=RULE[,RULE…]] plait-ed25519 BASE64 comment` |

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, bail};
use plait_base::Random;
use plait_handshake::{Fingerprint, Identity, PublicKey};

use crate::rules::Rule;

/// A directory with the files above.
#[derive(Clone, Debug)]
pub struct KeyStore {
    directory: PathBuf,
}

/// A server that was met before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPeer {
    /// `HOST:PORT`.
    pub authority: String,
    /// Its key then.
    pub fingerprint: Fingerprint,
    /// When that was, as text for people.
    pub first_seen: String,
    /// Line in the file, from 1.
    pub line: usize,
}

/// A client that may come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizedClient {
    /// Its key.
    pub key: PublicKey,
    /// Where it may go; `None`: wherever the server's own rules say.
    pub allow: Option<Vec<Rule>>,
    /// What people call it.
    pub comment: String,
}

/// The file of authorized clients, read again whenever it has changed: whoever adds or removes a line need not
/// restart the server, and running connections stay.
#[derive(Debug)]
pub struct AuthorizedClients {
    store: KeyStore,
    last: Mutex<Option<(Stamp, Vec<AuthorizedClient>)>>,
}

/// What changes with the content of a file: when it was written, its length, and which file it is.
type Stamp = (SystemTime, u64, u64);

impl AuthorizedClients {
    /// Those in the file of `store`.
    pub fn in_store(store: KeyStore) -> Self {
        Self { store, last: Mutex::new(None) }
    }

    /// The client with this key, as the file stands now. While it is missing, or makes no sense, there are no clients:
    /// whoever was taken out of it must not come in by the mistake in another line.
    pub fn find(&self, shown: Fingerprint) -> Option<AuthorizedClient> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = fs::metadata(self.store.path("authorized_clients"))
            .and_then(|file| Ok((file.modified()?, file.len(), file.ino())));
        let is_current = |last: &(Stamp, _)| stamp.as_ref().is_ok_and(|stamp| *stamp == last.0);
        if !last.as_ref().is_some_and(is_current) {
            *last = match (stamp, self.store.authorized_clients()) {
                (Ok(stamp), Ok(Some(clients))) => Some((stamp, clients)),
                (Err(_), _) | (_, Ok(None)) => None,
                (Ok(_), Err(error)) => {
                    tracing::error!("no client can come in: {error:#}");
                    None
                }
            };
        }
        let (_, clients) = last.as_ref()?;
        clients.iter().find(|client| client.key.fingerprint() == shown).cloned()
    }
}

impl KeyStore {
    /// The store in `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Where a file of it is.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Our own key, made with `random` (which must be fit for secrets) if there is none yet; and whether it
    /// was made just now.
    ///
    /// # Errors
    /// The file cannot be read or written, is no key, or others may read it.
    pub fn identity(&self, random: &mut dyn Random) -> anyhow::Result<(Identity, bool)> {
        let path = self.path("identity");
        match fs::read(&path) {
            Ok(pem) => {
                let mode = fs::metadata(&path)?.permissions().mode();
                if mode & 0o077 != 0 {
                    bail!("{} can be read by others (fix: chmod 600 {0})", path.display());
                }
                let pem = zeroize::Zeroizing::new(pem);
                let identity = Identity::from_pem(&pem).with_context(|| format!("in {}", path.display()))?;
                Ok((identity, false))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::generate(random);
                self.write_new("identity", identity.to_pem().as_bytes(), 0o600)?;
                let public = format!("{} {}\n", identity.public_key(), comment());
                self.write_new("identity.pub", public.as_bytes(), 0o644)?;
                Ok((identity, true))
            }
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// All servers met before.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it makes no sense.
    pub fn known_peers(&self) -> anyhow::Result<Vec<KnownPeer>> {
        let mut peers = Vec::new();
        for (line, text) in self.lines("known_peers")? {
            let place = || format!("{}:{line}", self.path("known_peers").display());
            let mut words = text.split_ascii_whitespace();
            let (Some(authority), Some(key)) = (words.next(), words.next()) else {
                bail!("{}: a line is HOST:PORT SHA256:… DATE", place());
            };
            peers.push(KnownPeer {
                authority: authority.to_owned(),
                fingerprint: key.parse().with_context(place)?,
                first_seen: words.collect::<Vec<_>>().join(" "),
                line,
            });
        }
        Ok(peers)
    }

    /// Remembers a server. `today` is text for people.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn trust(&self, authority: &str, fingerprint: Fingerprint, today: &str) -> anyhow::Result<()> {
        self.forget(authority)?;
        let path = self.path("known_peers");
        fs::create_dir_all(&self.directory)?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o644).open(&path)?;
        file.write_all(format!("{authority} {fingerprint} {today}\n").as_bytes())
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Forgets a server; whether it was known.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn forget(&self, authority: &str) -> anyhow::Result<bool> {
        let path = self.path("known_peers");
        let Some(text) = read_if_there(&path)? else { return Ok(false) };
        let is_it = |line: &&str| line.split_ascii_whitespace().next() == Some(authority);
        if !text.lines().any(|line| is_it(&line)) {
            return Ok(false);
        }
        let rest: String = text.lines().filter(|line| !is_it(line)).flat_map(|line| [line, "\n"]).collect();
        self.replace("known_peers", rest.as_bytes())?;
        Ok(true)
    }

    /// The clients that may come in; `None` if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it makes no sense.
    pub fn authorized_clients(&self) -> anyhow::Result<Option<Vec<AuthorizedClient>>> {
        if !self.path("authorized_clients").exists() {
            return Ok(None);
        }
        let mut clients = Vec::new();
        for (line, text) in self.lines("authorized_clients")? {
            let place = || format!("{}:{line}", self.path("authorized_clients").display());
            let (options, key) = match text.split_once("plait-ed25519") {
                Some((options, _)) => (options.trim(), &text[options.len()..]),
                None => bail!("{}: a line is [allow=RULES] plait-ed25519 KEY comment", place()),
            };
            let allow = match (options, options.strip_prefix("allow=")) {
                ("", _) => None,
                (_, Some(rules)) => {
                    let rules: Result<_, _> = rules.trim_matches('"').split(',').map(str::parse).collect();
                    Some(rules.with_context(place)?)
                }
                (_, None) => bail!("{}: '{options}' is no option; there is only allow=RULES", place()),
            };
            let comment = key.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ");
            clients.push(AuthorizedClient { key: key.trim().parse().with_context(place)?, allow, comment });
        }
        Ok(Some(clients))
    }

    /// Lines with content, and their numbers; none if the file is not there.
    fn lines(&self, file: &str) -> anyhow::Result<Vec<(usize, String)>> {
        let text = read_if_there(&self.path(file))?.unwrap_or_default();
        let lines = text.lines().map(|line| line.split_once('#').map_or(line, |(line, _)| line).trim());
        Ok((1..)
            .zip(lines)
            .filter(|(_, line)| !line.is_empty())
            .map(|(n, line)| (n, line.to_owned()))
            .collect())
    }

    fn write_new(&self, file: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("creating {}", self.directory.display()))?;
        let path = self.path(file);
        let mut out = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(mode)
            .open(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        out.write_all(bytes)?;
        Ok(out.sync_all()?)
    }

    /// Whoever reads at the same time sees the old file or the new one, never half of it.
    fn replace(&self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let (path, new) = (self.path(file), self.path(&format!("{file}.new")));
        fs::write(&new, bytes).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("replacing {}", path.display()))
    }
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// `user@host`, as far as this machine tells.
fn comment() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".into());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

#[cfg(test)]
mod tests {
    use plait_base::SeededRandom;

    use super::*;

    /// A directory of its own that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> (Self, KeyStore) {
            let path = std::env::temp_dir().join(format!("plait-keys-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            let store = KeyStore::new(path.join("config"));
            (Self(path), store)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let (_scratch, store) = Scratch::new("identity");
        let mut random = SeededRandom::from_number(1);
        let (made, is_new) = store.identity(&mut random).expect("made");
        let (read, is_new_again) = store.identity(&mut random).expect("read");
        assert_eq!((is_new, is_new_again), (true, false));
        assert_eq!(made.public_key(), read.public_key());
        let public = fs::read_to_string(store.path("identity.pub")).expect("public half");
        assert_eq!(public.parse(), Ok(made.public_key()));

        fs::set_permissions(store.path("identity"), fs::Permissions::from_mode(0o644)).expect("chmod");
        let error = store.identity(&mut random).expect_err("too open").to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_peer_is_known_until_it_is_forgotten() {
        let (_scratch, store) = Scratch::new("peers");
        let (old, new) = (Fingerprint::new([1; 32]), Fingerprint::new([2; 32]));
        assert_eq!(store.known_peers().expect("no file yet"), []);
        store.trust("gw:7443", old, "2026-09-02").expect("written");
        store.trust("other:7443", old, "2026-09-03").expect("written");
        store.trust("gw:7443", new, "2026-09-04").expect("replaced");
        let peers = store.known_peers().expect("read");
        let gw: Vec<_> = peers.iter().filter(|peer| peer.authority == "gw:7443").collect();
        assert_eq!((gw.len(), gw[0].fingerprint, gw[0].line), (1, new, 2));
        assert!(store.forget("gw:7443").expect("written"));
        assert!(!store.forget("gw:7443").expect("nothing to do"));
        assert_eq!(store.known_peers().expect("read").len(), 1);
    }

    #[test]
    fn authorized_clients_may_be_bound_to_rules() {
        let (_scratch, store) = Scratch::new("clients");
        assert_eq!(store.authorized_clients().expect("no file"), None);
        let key = Identity::generate(&mut SeededRandom::from_number(2)).public_key();
        fs::create_dir_all(store.path("")).expect("directory");
        let text = format!("# laptops\n{key} ada@laptop\nallow=10.0.0.0/8:*,*:443 {key} phone # lent\n");
        fs::write(store.path("authorized_clients"), text).expect("written");
        let clients = store.authorized_clients().expect("read").expect("there");
        assert_eq!((clients[0].allow.as_ref(), clients[0].comment.as_str()), (None, "ada@laptop"));
        assert_eq!(clients[1].allow.as_ref().map(Vec::len), Some(2));
        assert_eq!((clients[1].key, clients[1].comment.as_str()), (key, "phone"));
    }

    #[test]
    fn whoever_is_added_or_taken_out_is_so_at_once() {
        let (_scratch, store) = Scratch::new("again");
        let [ada, eve] =
            [3, 4].map(|seed| Identity::generate(&mut SeededRandom::from_number(seed)).public_key());
        fs::create_dir_all(store.path("")).expect("directory");
        let write = |text: String| store.replace("authorized_clients", text.as_bytes()).expect("written");
        let clients = AuthorizedClients::in_store(store.clone());
        let are_let_in = || [ada, eve].map(|key| clients.find(key.fingerprint()).is_some());
        assert_eq!(are_let_in(), [false, false], "no file");
        write(format!("{ada} ada\n"));
        assert_eq!(are_let_in(), [true, false]);
        write(format!("{ada} ada\n{eve} eve\n"));
        assert_eq!(are_let_in(), [true, true]);
        write(format!("{eve} eve\n"));
        assert_eq!(are_let_in(), [false, true]);
        write(format!("{eve} eve\nnonsense\n"));
        assert_eq!(are_let_in(), [false, false], "nobody comes in by a mistake");
        write(format!("{eve} eve\n"));
        assert_eq!(are_let_in(), [false, true]);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let (_scratch, store) = Scratch::new("nonsense");
        fs::create_dir_all(store.path("")).expect("directory");
        fs::write(store.path("known_peers"), "\ngw:7443 SHA256:short\n").expect("written");
        fs::write(store.path("authorized_clients"), "deny=all plait-ed25519 AAAA\n").expect("written");
        let error = format!("{:#}", store.known_peers().expect_err("no fingerprint"));
        assert!(error.contains("known_peers:2"), "{error}");
        let error = format!("{:#}", store.authorized_clients().expect_err("no such option"));
        assert!(error.contains("authorized_clients:1") && error.contains("allow=RULES"), "{error}");
    }
}
