//! `plait key`: who we are, and whom we know.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use base::SeededRandom;
use clap::{Args, Subcommand};
use handshake::Fingerprint;
use proxy::keys::KeyStore;
use proxy::url::ServerUrl;

/// Where the files of keys are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Keys {
    /// Directory of identity, known_peers and authorized_clients [default: /etc/plait for root, else
    /// ~/.config/plait].
    #[arg(long = "keys", value_name = "DIR", env = "PLAIT_KEYS")]
    directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Key {
    #[command(flatten)]
    keys: Keys,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key if there is none yet, and show it.
    Gen,
    /// Show our own key: the fingerprint, and the line for authorized_clients.
    Show,
    /// Remember a server's key.
    Trust {
        /// The server with its key: plait://HOST:7443#FINGERPRINT.
        server: ServerUrl,
    },
    /// Forget a server's key.
    Forget {
        /// HOST[:PORT].
        server: ServerUrl,
    },
    /// List the servers that are known, and the clients that are let in.
    List,
}

impl Keys {
    pub(crate) fn store(&self) -> anyhow::Result<KeyStore> {
        if let Some(directory) = &self.directory {
            return Ok(KeyStore::new(directory));
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(KeyStore::new("/etc/plait"));
        }
        let home = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        match (home("XDG_CONFIG_HOME"), home("HOME")) {
            (Some(config), _) => Ok(KeyStore::new(config.join("plait"))),
            (None, Some(home)) => Ok(KeyStore::new(home.join(".config/plait"))),
            (None, None) => bail!("there is no home directory to keep keys in\n  fix: name one with --keys"),
        }
    }
}

impl Key {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let store = self.keys.store()?;
        let text = match self.action {
            Action::Gen => own(&store)?,
            Action::Show => {
                if !store.path("identity").exists() {
                    bail!("there is no key in {}\n  fix: plait key gen", store.path("").display());
                }
                own(&store)?
            }
            Action::Trust { server } => {
                let Some(pin) = server.pin else {
                    bail!("the server's key is missing: give plait://{}#FINGERPRINT", server.authority());
                };
                store.trust(&server.authority(), pin, &today())?;
                format!("{} {pin}\n", server.authority())
            }
            Action::Forget { server } => {
                if !store.forget(&server.authority())? {
                    bail!("{} is not known", server.authority());
                }
                String::new()
            }
            Action::List => list(&store)?,
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
    }
}

fn own(store: &KeyStore) -> anyhow::Result<String> {
    let (identity, _) = store.identity(&mut os_random()?)?;
    let key = identity.public_key();
    Ok(format!("{}\n{key}\n", key.fingerprint()))
}

fn list(store: &KeyStore) -> anyhow::Result<String> {
    let mut text = String::new();
    for peer in store.known_peers()? {
        text += &format!("server {} {} since {}\n", peer.authority, peer.fingerprint, peer.first_seen);
    }
    for client in store.authorized_clients()?.unwrap_or_default() {
        let fingerprint: Fingerprint = client.key.fingerprint();
        let bound = if client.allow.is_some() { " with rules of its own" } else { "" };
        text += &format!("client {} {fingerprint}{bound}\n", client.comment);
    }
    Ok(text)
}

/// Randomness of the operating system, fit for keys.
pub(crate) fn os_random() -> anyhow::Result<SeededRandom> {
    let mut seed = zeroize::Zeroizing::new([0; 32]);
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut *seed))
        .context("cannot get random bytes")?;
    Ok(SeededRandom::new(*seed))
}

/// The date (UTC), as in 2026-09-02.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The date so many days after 1970-01-01 (Gregorian calendar, in eras of 400 years from March 0000).
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March, so that the leap day is the last of the year.
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_698), "2026-09-02");
        assert_eq!(date(20_818), "2026-12-31");
        assert_eq!(date(20_819), "2027-01-01");
    }
}
