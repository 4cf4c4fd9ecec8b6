//! `plait key`: our key, the known servers and the allowed clients.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use plait::{Fingerprint, Identity, NameBasis, PublicKey};
use plait_keys::KnownPeersError;
use plait_proxy::clients::{AuthorizedClient, Expiry};
use plait_proxy::keys::KeyStore;
use plait_proxy::rules::Rule;
use plait_proxy::url::ServerUrl;

use crate::output;
use crate::protection::default_store;
use crate::server_identity::how_many;
use crate::shown::shown;

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// Directory of identity, known_peers and authorized_clients [default: ~/.config/plait, and ~/.local/state/plait for known_peers,
    /// or as XDG_CONFIG_HOME and XDG_STATE_HOME say; for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS", global = true)]
    keys: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key if there is none yet, and show it.
    Gen,
    /// Show our own key: the fingerprint, and the line for authorized_clients.
    Show,
    /// Print the DNS record that publishes a server's key (TLSA, RFC 6698), for a zone that DNSSEC signs.
    Tlsa {
        /// Name and port of the server: HOST[:PORT] for our own key, or plait://HOST:PORT#FINGERPRINT.
        server: ServerUrl,
    },
    /// Remember a server's key. A second key of the same server needs --also.
    Trust {
        /// The server with its key: plait://HOST:7443#FINGERPRINT.
        server: ServerUrl,
        /// Keep the keys that the server is known by, and accept this one, too: for a server that will change its key.
        #[arg(long)]
        also: bool,
    },
    /// Forget all keys of a server, or one of them.
    Forget {
        /// HOST[:PORT] for all its keys, plait://HOST:7443#FINGERPRINT for this one.
        server: ServerUrl,
    },
    /// Allow a client of plait serve, by its public key as plait key show prints it on the client.
    Authorize {
        /// plait-ed25519 BASE64 [NAME], as one word or several.
        #[arg(required = true)]
        key: Vec<String>,
        /// Name of the client, instead of the comment after the key.
        #[arg(long)]
        name: Option<String>,
        /// Restrict the client to this destination, as with serve --allow (repeatable) [default: the destinations that the server's
        /// own rules allow].
        #[arg(long, value_name = "RULE")]
        allow: Vec<Rule>,
        /// Refuse the client from this day or time on, and end its connections then: 2027-01-01 is the beginning of the day in UTC.
        #[arg(long, value_name = "DATE|TIME")]
        expires: Option<Expiry>,
        /// Most connections with a request that the client may have open [default: as many as the server has room for].
        #[arg(long, value_name = "N")]
        connections: Option<NonZeroU32>,
    },
    /// Remove a client: its connections end within a second, and its next one is refused.
    Revoke {
        /// The client's name or fingerprint, as plait key list prints it.
        client: String,
    },
    /// Check the files of keys; ends with 1 if a line is invalid.
    Check,
    /// List the known servers, with the basis of each key (given, published by its DNS zone, or the number of paths it was seen over), and
    /// the allowed clients.
    List,
}

impl Key {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let store = self.keys.map_or_else(default_store, KeyStore::new);
        let text = match self.action {
            Action::Gen => own(&store)?,
            Action::Show => {
                require_own(&store)?;
                own(&store)?
            }
            Action::Tlsa { server } => tlsa(&store, &server)?,
            Action::Trust { server, also } => trust(&store, &server, also)?,
            Action::Forget { server } => forget(&store, &server)?,
            Action::Authorize { key, name, allow, expires, connections } => {
                let key = key.join(" ");
                let public: PublicKey = key.parse().with_context(|| format!("{key:?} is no public key"))?;
                let behind = || key.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ");
                let allow = Some(allow).filter(|rules| !rules.is_empty());
                let comment = name.unwrap_or_else(behind);
                store.authorize(&AuthorizedClient { key: public, allow, expires, connections, comment })?;
                format!("{}\n", public.fingerprint())
            }
            Action::Revoke { client } => {
                if store.revoke(&client)? == 0 {
                    bail!("no client is called {client} or has this key\n  fix: plait key list");
                }
                String::new()
            }
            Action::Check => check(&store)?,
            Action::List => list(&store)?,
        };
        output::result(text)
    }
}

/// Stores the key in the URL; beside the keys of the same server only if the user says so.
fn trust(store: &KeyStore, server: &ServerUrl, also: bool) -> anyhow::Result<String> {
    let (peers, authority) = (store.known_peers(), server.authority());
    let Some(pin) = server.pin else {
        bail!("the server's key is missing: give plait://{authority}#FINGERPRINT");
    };
    if also {
        peers.pin_also(&authority, pin)?;
    } else if let Err(error) = peers.pin(&authority, pin) {
        let KnownPeersError::AnotherKey { file, known, .. } = error else { return Err(error.into()) };
        bail!(
            "{authority} is known by another key: nothing was changed\n  known    {}  ({}:{})\n  given    {pin}\n  fix: if its operator \
             says that both are its keys, plait key trust --also {server}; if only the new one is, plait key forget {authority} first",
            known.fingerprint,
            file.display(),
            known.line
        );
    }
    Ok(format!("{authority} {pin}\n"))
}

fn forget(store: &KeyStore, server: &ServerUrl) -> anyhow::Result<String> {
    let (peers, authority) = (store.known_peers(), server.authority());
    match server.pin {
        Some(pin) if !peers.forget_key(&authority, pin)? => {
            bail!("{authority} is not known by the key {pin}")
        }
        None if !peers.forget(&authority)? => bail!("{authority} is not known"),
        Some(_) | None => Ok(String::new()),
    }
}

/// Fails if there is no key of our own, instead of creating it.
fn require_own(store: &KeyStore) -> anyhow::Result<()> {
    if is_missing(&store.path("identity")) {
        bail!("there is no key in {}\n  fix: plait key gen", store.path("").display());
    }
    Ok(())
}

/// Whether there is no file: not even one that cannot be read, or a link that leads nowhere.
fn is_missing(file: &Path) -> bool {
    fs::symlink_metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn own(store: &KeyStore) -> anyhow::Result<String> {
    let (identity, _) = store.identity()?;
    let key = identity.public_key();
    Ok(format!("{}\n{key}\n", key.fingerprint()))
}

/// The record that publishes the key in the URL, or else our own: usage 3 (DANE-EE), selector 1 (SubjectPublicKeyInfo), matching type 1
/// (SHA-256), which is the fingerprint.
fn tlsa(store: &KeyStore, server: &ServerUrl) -> anyhow::Result<String> {
    if server.host.parse::<IpAddr>().is_ok() {
        bail!("{} is an address, and a record belongs to a name", server.host);
    }
    let key = match server.pin {
        Some(pin) => pin,
        None => {
            require_own(store)?;
            store.identity()?.0.fingerprint()
        }
    };
    let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("_{}._tcp.{}. IN TLSA 3 1 1 {hex}\n", server.port, server.host.trim_end_matches('.')))
}

fn list(store: &KeyStore) -> anyhow::Result<String> {
    let mut text = String::new();
    for peer in store.known_peers().all()? {
        let how = match (peer.paths, peer.names) {
            (_, Some(NameBasis::Dnssec)) => "published by its DNS zone (DNSSEC)".to_owned(),
            (None, _) => "given".to_owned(),
            (Some(paths), None) => format!("seen over {}", how_many(paths)),
            (Some(paths), Some(names)) => format!("seen over {}, addresses {}", how_many(paths), told(names)),
        };
        let line = format!("server {} {} since {}, {how}", peer.authority, peer.fingerprint, peer.first_seen);
        text += &(shown(&line) + "\n");
    }
    for client in store.authorized_clients()?.unwrap_or_default().clients {
        let fingerprint: Fingerprint = client.key.fingerprint();
        let mut line = format!("client {} {fingerprint}", client.comment);
        if client.allow.is_some() {
            line += " with rules of its own";
        }
        if let Some(expires) = client.expires {
            let over = if client.has_expired(Timestamp::now()) { "expired on" } else { "until" };
            line += &format!(", {over} {expires}");
        }
        if let Some(connections) = client.connections {
            line += &format!(", {connections} connections at most");
        }
        text += &(shown(&line) + "\n");
    }
    Ok(text)
}

/// The basis of addresses, for people.
fn told(names: NameBasis) -> &'static str {
    match names {
        NameBasis::Given => "given",
        NameBasis::Agreed => "named by several paths",
        NameBasis::OnePath => "named by one path",
        other => other.word(),
    }
}

/// Returns a summary of the files, if all of them are valid.
fn check(store: &KeyStore) -> anyhow::Result<String> {
    let identity = store.path("identity");
    let own = if is_missing(&identity) {
        format!("{}: none yet (plait key gen)\n", identity.display())
    } else {
        format!("{}: {}\n", identity.display(), Identity::load(&identity)?.fingerprint())
    };
    let servers = store.known_peers().all()?.len();
    let list = store.authorized_clients()?;
    if let Some(mistakes) = list.as_ref().map(|list| &list.mistakes).filter(|mistakes| !mistakes.is_empty()) {
        let mistakes: Vec<_> = mistakes.iter().map(|mistake| shown(mistake)).collect();
        bail!("no client is allowed by these lines\n  {}", mistakes.join("\n  "));
    }
    let clients = list.map_or_else(
        || "no authorized_clients".to_owned(),
        |list| format!("{} clients are let in", list.clients.len()),
    );
    Ok(format!("{own}{servers} servers are known\n{clients}\n"))
}
