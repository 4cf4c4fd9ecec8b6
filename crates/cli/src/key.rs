//! `plait key`: who we are, and whom we know.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use plait::Fingerprint;
use plait_proxy::keys::KeyStore;
use plait_proxy::url::ServerUrl;

use crate::protection::default_directory;

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// Directory of identity, known_peers and authorized_clients [default: ~/.config/plait, for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS", global = true)]
    keys: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key if there is none yet, and show it.
    Gen,
    /// Show our own key: the fingerprint, and the line for authorized_clients.
    Show,
    /// Remember a server's key; one that is known with another has to be forgotten first.
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

impl Key {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let store = KeyStore::new(self.keys.unwrap_or_else(default_directory));
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
                store.known_peers().pin(&server.authority(), pin)?;
                format!("{} {pin}\n", server.authority())
            }
            Action::Forget { server } => {
                if !store.known_peers().forget(&server.authority())? {
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
    let (identity, _) = store.identity()?;
    let key = identity.public_key();
    Ok(format!("{}\n{key}\n", key.fingerprint()))
}

fn list(store: &KeyStore) -> anyhow::Result<String> {
    let mut text = String::new();
    for peer in store.known_peers().all()? {
        text += &format!("server {} {} since {}\n", peer.authority, peer.fingerprint, peer.first_seen);
    }
    for client in store.authorized_clients()?.unwrap_or_default() {
        let fingerprint: Fingerprint = client.key.fingerprint();
        let bound = if client.allow.is_some() { " with rules of its own" } else { "" };
        text += &format!("client {} {fingerprint}{bound}\n", client.comment);
    }
    Ok(text)
}
