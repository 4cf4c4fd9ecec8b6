//! The directory of the files of identities (by default `~/.config/plait`, for root `/etc/plait`).

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use plait_keys::{KnownPeers, replace_file};

/// A directory with the files that `plait-keys` describes.
#[derive(Clone, Debug)]
pub struct KeyStore {
    directory: PathBuf,
    /// The directory of learned files, not of configured ones.
    state: PathBuf,
}

impl KeyStore {
    /// The store in `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self { state: directory.clone(), directory }
    }

    /// The same, with the learned file (`known_peers`) in another directory.
    #[must_use]
    pub fn with_state(self, state: impl Into<PathBuf>) -> Self {
        Self { state: state.into(), ..self }
    }

    /// The path of a file in it.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Our own key, created if there is none yet; also returns whether it was just created.
    ///
    /// # Errors
    /// The file cannot be read or written, is no key, or others may read it.
    pub fn identity(&self) -> anyhow::Result<(plait::Identity, bool)> {
        let (identity, origin) = plait::Identity::load_or_create(self.path("identity"))?;
        let is_new = origin == plait::Origin::Created;
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
        KnownPeers::in_file(self.state.join("known_peers"))
    }
}

/// `user@host`, as far as this machine returns it.
fn comment() -> String {
    let named = |name| std::env::var(name).ok();
    let user = named("USER").or_else(|| named("USERNAME")).unwrap_or_else(|| "root".into());
    // On Linux, and on Windows.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| named("COMPUTERNAME"));
    let host = host.unwrap_or_default();
    format!("{user}@{}", host.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_with_its_public_half_beside_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let store = KeyStore::new(scratch.path().join("config"));
        let (made, is_new) = store.identity().expect("made");
        let (read, is_new_again) = store.identity().expect("read");
        assert_eq!((is_new, is_new_again), (true, false));
        assert_eq!(made.public_key(), read.public_key());
        let public = fs::read_to_string(store.path("identity.pub")).expect("public half");
        assert_eq!(public.parse(), Ok(made.public_key()));
    }
}
