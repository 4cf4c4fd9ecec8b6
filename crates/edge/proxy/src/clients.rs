//! The allowed clients of `plait serve`: a file with a line for each.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use plait_handshake::{Fingerprint, PublicKey};
use plait_keys::{Stamp, lock_list, read_list, replace_file};

use crate::keys::KeyStore;
use crate::rules::Rule;

/// The file's name in its directory.
const FILE: &str = "authorized_clients";
/// The prefix of a public key.
const KEY_TYPE: &str = "plait-ed25519";

/// An allowed client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizedClient {
    /// Its key.
    pub key: PublicKey,
    /// Its allowed destinations; `None`: those of the server's own rules.
    pub allow: Option<Vec<Rule>>,
    /// Its name for people.
    pub comment: String,
}

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientList {
    /// The allowed clients.
    pub clients: Vec<AuthorizedClient>,
    /// Invalid lines, with the file, their number from 1, and the reason. A client in an invalid line is not allowed.
    pub mistakes: Vec<String>,
}

/// The file of authorized clients, read again after each change. Adding or removing a line needs no restart of the server, and running
/// connections stay.
#[derive(Debug)]
pub struct AuthorizedClients {
    store: KeyStore,
    last: Mutex<Option<(Stamp, ClientList)>>,
}

impl AuthorizedClients {
    /// The clients in the file of `store`.
    pub fn in_store(store: KeyStore) -> Self {
        Self { store, last: Mutex::new(None) }
    }

    /// Returns the client with this key, as the file is now. While the file is missing, or other users can change it, there are no clients.
    /// An invalid line allows no client and excludes no other; it is logged once for each change of the file.
    pub fn find(&self, shown: Fingerprint) -> Option<AuthorizedClient> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.store.path(FILE));
        let is_current = |last: &(Stamp, _)| stamp.as_ref().is_ok_and(|stamp| *stamp == last.0);
        if !last.as_ref().is_some_and(is_current) {
            *last = match (stamp, self.store.authorized_clients()) {
                (Ok(stamp), Ok(Some(list))) => {
                    list.mistakes
                        .iter()
                        .for_each(|mistake| tracing::error!("no client is allowed by {mistake}"));
                    Some((stamp, list))
                }
                (Err(_), _) | (_, Ok(None)) => None,
                (Ok(_), Err(error)) => {
                    tracing::error!("no client can come in: {error:#}");
                    None
                }
            };
        }
        let (_, list) = last.as_ref()?;
        list.clients.iter().find(|client| client.key.fingerprint() == shown).cloned()
    }
}

impl KeyStore {
    /// The allowed clients; `None` without a file.
    ///
    /// # Errors
    /// The file cannot be read, or others can change it.
    pub fn authorized_clients(&self) -> anyhow::Result<Option<ClientList>> {
        let Some(text) = read_list(&self.path(FILE))? else { return Ok(None) };
        let mut list = ClientList::default();
        for (line, text) in (1..).zip(text.lines()) {
            match client_in(text) {
                Ok(client) => list.clients.extend(client),
                Err(error) => list.mistakes.push(format!("{}:{line}: {error:#}", self.path(FILE).display())),
            }
        }
        Ok(Some(list))
    }

    /// Allows the holder of a key, with the destinations of `allow`, or those of the server's own rules; `name` is the name for people. It
    /// replaces an earlier entry for the key.
    ///
    /// # Errors
    /// A name or a rule is invalid, or the file cannot be read or written.
    pub fn authorize(&self, key: &PublicKey, allow: &[Rule], name: &str) -> anyhow::Result<()> {
        ensure!(
            !name.contains(['#', '\n']) && !name.contains(char::is_control),
            "{name:?} cannot stand behind a key in {FILE}"
        );
        let rules: Vec<_> = allow.iter().map(Rule::to_string).collect();
        let options = if rules.is_empty() { String::new() } else { format!("allow={} ", rules.join(",")) };
        let line = format!("{options}{key} {name}").trim_end().to_owned();
        self.edit_clients(|text| {
            let is_old = |line: &&str| is_of(line, |client| client.key == *key);
            let kept: Vec<_> = text.lines().filter(|line| !is_old(line)).chain([line.as_str()]).collect();
            Some(kept.join("\n") + "\n")
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
            (gone > 0).then(|| kept.iter().flat_map(|line| [*line, "\n"]).collect())
        })?;
        Ok(gone)
    }

    /// Changes the file under a lock, so that concurrent programs lose no change.
    fn edit_clients(&self, edit: impl FnOnce(&str) -> Option<String>) -> anyhow::Result<()> {
        let file = self.path(FILE);
        let place = || format!("cannot write {}", file.display());
        let _lock = lock_list(&file).with_context(place)?;
        let before = read_list(&file)?.unwrap_or_default();
        edit(&before).map_or(Ok(()), |text| replace_file(&file, text.as_bytes(), 0o600).with_context(place))
    }
}

/// The client of a line; `None` for an empty line or a comment.
fn client_in(line: &str) -> anyhow::Result<Option<AuthorizedClient>> {
    let text = line.split_once('#').map_or(line, |(text, _)| text).trim();
    if text.is_empty() {
        return Ok(None);
    }
    let Some((options, _)) = text.split_once(KEY_TYPE) else {
        bail!("a line is [allow=RULES] {KEY_TYPE} KEY comment");
    };
    let key = &text[options.len()..];
    let allow = match (options.trim(), options.trim().strip_prefix("allow=")) {
        ("", _) => None,
        (_, Some(rules)) => {
            let rules: Result<_, _> = rules.trim_matches('"').split(',').map(str::parse).collect();
            Some(rules.context("a rule makes no sense")?)
        }
        (options, None) => bail!("'{options}' is no option; there is only allow=RULES"),
    };
    let comment = key.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    Ok(Some(AuthorizedClient { key: key.trim().parse()?, allow, comment }))
}

/// Whether a line is for a matching client; an invalid line matches none.
fn is_of(line: &str, is_meant: impl Fn(&AuthorizedClient) -> bool) -> bool {
    matches!(client_in(line), Ok(Some(client)) if is_meant(&client))
}

#[cfg(test)]
mod tests {
    use plait_base::SeededRandom;
    use plait_handshake::Identity;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn empty() -> (tempfile::TempDir, KeyStore) {
        let scratch = tempfile::tempdir().expect("a directory");
        let store = KeyStore::new(scratch.path().join("config"));
        (scratch, store)
    }

    fn key(seed: u64) -> PublicKey {
        Identity::generate(&mut SeededRandom::from_number(seed)).public_key()
    }

    #[test]
    fn authorized_clients_may_be_bound_to_rules() {
        let (_scratch, store) = empty();
        assert_eq!(store.authorized_clients().expect("no file"), None);
        let key = key(2);
        let text = format!("# laptops\n{key} ada@laptop\nallow=10.0.0.0/8:*,*:443 {key} phone # lent\n");
        replace_file(&store.path(FILE), text.as_bytes(), 0o600).expect("written");
        let ClientList { clients, mistakes } = store.authorized_clients().expect("read").expect("there");
        assert_eq!((clients[0].allow.as_ref(), clients[0].comment.as_str()), (None, "ada@laptop"));
        assert_eq!(clients[1].allow.as_ref().map(Vec::len), Some(2));
        assert_eq!((clients[1].key, clients[1].comment.as_str()), (key, "phone"));
        assert!(mistakes.is_empty(), "{mistakes:?}");
    }

    #[test]
    fn an_added_or_removed_client_takes_effect_at_once() {
        let (_scratch, store) = empty();
        let [ada, eve] = [3, 4].map(key);
        let file = store.path(FILE);
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
    }

    #[test]
    fn an_invalid_line_allows_no_client_and_excludes_no_other() {
        let (_scratch, store) = empty();
        let [ada, eve] = [3, 4].map(key);
        // Eve should be restricted by rules, and the line has a mistake.
        let text =
            format!("{ada} ada\nalow=10.0.0.0/8:* {eve} eve\nplait-ed25519 AAAA short\nallow=x {eve}\n");
        replace_file(&store.path(FILE), text.as_bytes(), 0o600).expect("written");
        let clients = AuthorizedClients::in_store(store.clone());
        assert_eq!([ada, eve].map(|key| clients.find(key.fingerprint()).is_some()), [true, false]);
        let ClientList { mistakes, .. } = store.authorized_clients().expect("read").expect("there");
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        for (line, mistake) in (2..).zip(&mistakes) {
            assert!(mistake.contains(&format!("authorized_clients:{line}: ")), "{mistake}");
        }
    }

    #[test]
    fn no_client_is_allowed_by_a_file_that_others_can_change() {
        let (_scratch, store) = empty();
        let ada = key(5);
        let file = store.path(FILE);
        let clients = AuthorizedClients::in_store(store);
        for (mode, is_let_in) in [(0o644, true), (0o664, false), (0o646, false)] {
            replace_file(&file, format!("{ada} ada\n").as_bytes(), mode).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("whatever the umask is");
            assert_eq!(clients.find(ada.fingerprint()).is_some(), is_let_in, "{mode:o}");
        }
    }

    #[test]
    fn clients_are_let_in_and_taken_out_by_name_and_what_people_have_written_stays() {
        let (_scratch, store) = empty();
        let [ada, eve] = [6, 7].map(key);
        store.authorize(&ada, &[], "laptop").expect("written");
        let before = fs::read_to_string(store.path(FILE)).expect("read");
        let with_remark = format!("# by hand\nnonsense\n{before}");
        replace_file(&store.path(FILE), with_remark.as_bytes(), 0o600).expect("written");
        let rules = ["*:443", "10.0.0.0/8:22"].map(|rule| rule.parse().expect("a rule"));
        store.authorize(&eve, &rules, "phone of Eve").expect("written");
        store.authorize(&ada, &rules[..1], "laptop").expect("in place of the line before");
        let list = store.authorized_clients().expect("read").expect("there");
        let found: Vec<_> =
            list.clients.iter().map(|it| (it.comment.as_str(), it.allow.as_ref().map(Vec::len))).collect();
        assert_eq!(found, [("phone of Eve", Some(2)), ("laptop", Some(1))]);
        assert_eq!(list.mistakes.len(), 1, "it is still there");
        assert_eq!(store.revoke("phone of Eve").expect("written"), 1);
        assert_eq!(store.revoke("phone of Eve").expect("read"), 0);
        assert_eq!(store.revoke(&ada.fingerprint().to_string()).expect("written"), 1);
        assert_eq!(fs::read_to_string(store.path(FILE)).expect("read"), "# by hand\nnonsense\n");
        assert!(store.authorize(&ada, &[], "a # b").is_err());
    }
}
