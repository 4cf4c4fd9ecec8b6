//! The directory of the files that say who is who (by default `~/.config/plait`, for root `/etc/plait`), and the clients that we take.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, bail};
use plait_handshake::{Fingerprint, PublicKey};
use plait_keys::{KnownPeers, read_list, replace_file};

use crate::rules::Rule;

/// A directory with the files that `plait-keys` describes.
#[derive(Clone, Debug)]
pub struct KeyStore {
    directory: PathBuf,
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

    /// Our own key, made if there is none yet; and whether it was made just now.
    ///
    /// # Errors
    /// The file cannot be read or written, is no key, or others may read it.
    pub fn identity(&self) -> anyhow::Result<(plait::Identity, bool)> {
        let (identity, is_new) = plait::Identity::loaded_or_created(self.path("identity"))?;
        if is_new {
            let path = self.path("identity.pub");
            let public = format!("{} {}\n", identity.public_key(), comment());
            replace_file(&path, public.as_bytes(), 0o644)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok((identity, is_new))
    }

    /// The servers met before.
    #[must_use]
    pub fn known_peers(&self) -> KnownPeers {
        KnownPeers::in_file(self.path("known_peers"))
    }

    /// The clients that may come in; `None` if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, others can change it, or a line of it makes no sense.
    pub fn authorized_clients(&self) -> anyhow::Result<Option<Vec<AuthorizedClient>>> {
        let Some(text) = read_list(&self.path("authorized_clients"))? else { return Ok(None) };
        let mut clients = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split_once('#').map_or(text, |(text, _)| text).trim();
            if text.is_empty() {
                continue;
            }
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
    use plait_handshake::Identity;
    use std::os::unix::fs::PermissionsExt;

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
    fn a_key_is_made_once_with_its_public_half_beside_it() {
        let (_scratch, store) = Scratch::new("identity");
        let (made, is_new) = store.identity().expect("made");
        let (read, is_new_again) = store.identity().expect("read");
        assert_eq!((is_new, is_new_again), (true, false));
        assert_eq!(made.public_key(), read.public_key());
        let public = fs::read_to_string(store.path("identity.pub")).expect("public half");
        assert_eq!(public.parse(), Ok(made.public_key()));
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
        let file = store.path("authorized_clients");
        let write = |text: String| replace_file(&file, text.as_bytes(), 0o600).expect("written");
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
    fn nobody_comes_in_by_a_file_that_others_can_change() {
        let (_scratch, store) = Scratch::new("writable");
        let ada = Identity::generate(&mut SeededRandom::from_number(5)).public_key();
        let file = store.path("authorized_clients");
        let clients = AuthorizedClients::in_store(store);
        for (mode, is_let_in) in [(0o644, true), (0o664, false), (0o646, false)] {
            replace_file(&file, format!("{ada} ada\n").as_bytes(), mode).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("whatever the umask is");
            assert_eq!(clients.find(ada.fingerprint()).is_some(), is_let_in, "{mode:o}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let (_scratch, store) = Scratch::new("nonsense");
        fs::create_dir_all(store.path("")).expect("directory");
        fs::write(store.path("authorized_clients"), "deny=all plait-ed25519 AAAA\n").expect("written");
        let error = format!("{:#}", store.authorized_clients().expect_err("no such option"));
        assert!(error.contains("authorized_clients:1") && error.contains("allow=RULES"), "{error}");
    }
}
