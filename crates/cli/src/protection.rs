//! What protects a connection: settings from the command line and the files of keys, and what the peer showed.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use plait_base::SecretRandom;
use plait_handshake::{
    Certificate, ClientPolicy, Fingerprint, Identity, KeyLogFile, ListenerSettings, OpenerSettings, Tep,
};
use plait_host::{Config, PeerIdentity, Protect, SealedSettings, SealedStatus, Status};
use plait_proxy::keys::{KeyStore, KnownPeer};
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::options::{self, Handshake, Options, Policy};

/// The peer is not who it should be.
#[derive(Debug)]
pub(crate) struct WrongPeer(pub(crate) String);

impl std::fmt::Display for WrongPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongPeer {}

/// How we know the host that we connect to.
pub(crate) struct Trust {
    /// `HOST:PORT`, as in the file of known hosts.
    authority: String,
    store: KeyStore,
    /// The command line says how, and the handshake has seen to it: nothing else counts.
    is_decided: bool,
    known: Option<KnownPeer>,
    /// Whether anything is sealed at all.
    is_asked_for: bool,
    /// Whether nothing but a sealed connection will do.
    is_required: bool,
}

/// The settings of a connection to `server`, and how it will be known: by the key in its URL, by a certificate, or by
/// what it has shown before.
pub(crate) fn opener(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
) -> anyhow::Result<(Config, Trust)> {
    let mut config = options.config();
    let store = store(options);
    let authority = server.authority();
    let is_asked_for = is_sealed(options);
    let is_decided = server.pin.is_some() || authorities.are_given();
    let is_required = requires_sealing(options);
    let mut trust = Trust { authority, store, is_decided, known: None, is_asked_for, is_required };
    if !is_asked_for {
        if authorities.are_given() {
            bail!("--ca needs --protect sealed: nothing else proves who the server is");
        }
        return Ok((config, trust));
    }
    if is_decided && options.handshake == Some(Handshake::Tcpcrypt) {
        bail!(
            "tcpcrypt proves nobody's identity (fix: leave out the server's key and --ca, or use --handshake tls)"
        );
    }
    trust.known = trust.store.known_peers()?.into_iter().find(|peer| peer.authority == trust.authority);
    let (name, expected) = authorities.expect(&server.host, server.pin)?;
    let mut settings = OpenerSettings::new(name, expected);
    settings.identity = own_identity(options)?.map(Arc::new);
    if logs_keys() {
        settings.key_log = Arc::new(KeyLogFile::new());
    }
    config.protect = Protect::Sealed(SealedSettings {
        teps: match options.handshake {
            // Whoever wants to know the server does not offer what cannot prove it.
            None | Some(Handshake::Tls) => vec![Tep::Tls13],
            Some(Handshake::Tcpcrypt) => vec![Tep::TcpcryptCurve25519, Tep::TcpcryptP256],
        },
        ..sealed(options, SealedSettings::opener(Arc::new(settings)))
    });
    Ok((config, trust))
}

/// Whether connections are to be sealed.
pub(crate) fn is_sealed(options: &Options) -> bool {
    match options.protect {
        options::Protect::Sealed => true,
        options::Protect::Plain | options::Protect::Scramble => false,
    }
}

/// Whether nothing but sealed connections is taken.
pub(crate) fn requires_sealing(options: &Options) -> bool {
    match options.policy {
        None => is_sealed(options) && !options.allow_plain,
        Some(Policy::Require) => is_sealed(options),
        Some(Policy::Prefer | Policy::Off) => false,
    }
}

/// Whom a listener takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Clients {
    /// Everybody; who has a key shows it.
    Anybody,
    /// Those who show a key; whether it is a good one, the caller finds out of each.
    Judged,
    /// Those with one of these keys.
    Keys(Vec<Fingerprint>),
}

/// The settings of connections from `clients` to us, and our key if it is used. Makes the key if there is none yet.
pub(crate) fn listener(
    options: &Options,
    clients: Clients,
    certificate: Option<Arc<Certificate>>,
) -> anyhow::Result<(Config, Option<Fingerprint>)> {
    let mut config = options.config();
    // What cannot prove who a client is must not be a way around its list.
    let proves_clients = clients != Clients::Anybody;
    if !is_sealed(options) {
        if certificate.is_some() || proves_clients {
            bail!("keys and certificates need --protect sealed: nothing else proves who anybody is");
        }
        return Ok((config, None));
    }
    if proves_clients && options.handshake == Some(Handshake::Tcpcrypt) {
        bail!("tcpcrypt proves nobody's identity, and only known clients may come (fix: --handshake tls)");
    }
    let identity = match &options.key {
        Some(file) => read_identity(file)?,
        None => store(options).identity(&mut secret_random()?).context("cannot have a key of our own")?.0,
    };
    let fingerprint = identity.public_key().fingerprint();
    let clients = match clients {
        Clients::Anybody | Clients::Judged => ClientPolicy::AskForKey,
        Clients::Keys(keys) => ClientPolicy::Authorised(keys),
    };
    let mut settings = ListenerSettings { clients, certificate, ..ListenerSettings::new(Arc::new(identity)) };
    if logs_keys() {
        settings.key_log = Arc::new(KeyLogFile::new());
    }
    config.protect = Protect::Sealed(SealedSettings {
        teps: match options.handshake {
            None if proves_clients => vec![Tep::Tls13],
            None => Tep::ALL.to_vec(),
            Some(Handshake::Tls) => vec![Tep::Tls13],
            Some(Handshake::Tcpcrypt) => vec![Tep::TcpcryptCurve25519, Tep::TcpcryptP256],
        },
        ..sealed(options, SealedSettings::listener(Arc::new(settings)))
    });
    Ok((config, Some(fingerprint)))
}

fn sealed(options: &Options, settings: SealedSettings) -> SealedSettings {
    let policy = match options.policy {
        None if options.allow_plain => plait_handshake::Policy::Prefer,
        None | Some(Policy::Require) => plait_handshake::Policy::Require,
        Some(Policy::Prefer) => plait_handshake::Policy::Prefer,
        Some(Policy::Off) => plait_handshake::Policy::Off,
    };
    SealedSettings { policy, ..settings }
}

/// What there is to say about sealing, if blocks are sealed: that it was asked for is not enough, a suite is agreed on.
///
/// # Errors
/// They are not, and `is_required`.
pub(crate) fn sealed_with(
    status: Option<&Status>,
    is_required: bool,
) -> anyhow::Result<Option<&SealedStatus>> {
    let sealed = status.and_then(|status| status.sealed.as_ref()).filter(|sealed| sealed.suite.is_some());
    if sealed.is_none() && is_required {
        bail!("the connection is not sealed, and nothing is sent over one that is not");
    }
    Ok(sealed)
}

impl Trust {
    /// Judges the peer of a connection that is open, before anything is sent.
    ///
    /// # Errors
    /// It is not sealed and has to be; [`WrongPeer`] if it shows another key than before; or the files cannot be used.
    pub(crate) fn judge(&self, status: Option<&Status>) -> anyhow::Result<()> {
        if !self.is_asked_for {
            return Ok(());
        }
        let Some(sealed) = sealed_with(status, self.is_required)? else {
            say("warning: the peer cannot seal: everybody on the way can read and change what is sent");
            return Ok(());
        };
        match (&sealed.peer, &self.known) {
            _ if self.is_decided => Ok(()),
            (PeerIdentity::Anonymous | PeerIdentity::Certificate, Some(known)) => Err(WrongPeer(format!(
                "{} does not show the key {} that it had on {}",
                self.authority, known.fingerprint, known.first_seen
            ))
            .into()),
            (PeerIdentity::Anonymous, None) => {
                say("warning: encrypted, but nobody knows with whom (tcpcrypt)");
                Ok(())
            }
            (PeerIdentity::Certificate, None) => Ok(()),
            (PeerIdentity::Key { fingerprint, .. }, known) => {
                self.judge_key(fingerprint.parse()?, known.as_ref())
            }
        }
    }

    fn judge_key(&self, shown: Fingerprint, known: Option<&KnownPeer>) -> anyhow::Result<()> {
        match known {
            Some(known) if known.fingerprint == shown => Ok(()),
            Some(known) => Err(WrongPeer(format!(
                "{authority} shows a different key than the one trusted on {date}\n  \
                 trusted  {trusted}  ({file}:{line})\n  \
                 shown    {shown}\n  \
                 Either the server was set up anew, or somebody on the way intercepts you.\n  \
                 fix: take line {line} out of {file}, after you have asked who runs the server",
                authority = self.authority,
                date = known.first_seen,
                trusted = known.fingerprint,
                file = self.store.path("known_peers").display(),
                line = known.line,
            ))
            .into()),
            None => {
                self.store.trust(&self.authority, shown, &today())?;
                say(&format!("{} is new and shows the key {shown}: trusted from now on", self.authority));
                Ok(())
            }
        }
    }
}

/// Our key as a client, if we have one.
fn own_identity(options: &Options) -> anyhow::Result<Option<Identity>> {
    let store = store(options);
    match &options.key {
        Some(file) => Ok(Some(read_identity(file)?)),
        None if store.path("identity").exists() => Ok(Some(store.identity(&mut secret_random()?)?.0)),
        None => Ok(None),
    }
}

/// The directory of keys that the options name.
pub(crate) fn store(options: &Options) -> KeyStore {
    KeyStore::new(options.keys.clone().unwrap_or_else(default_directory))
}

/// `/etc/plait` for root, `~/.config/plait` for others.
pub(crate) fn default_directory() -> PathBuf {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    match std::env::var_os("HOME") {
        Some(home) if !is_root => Path::new(&home).join(".config/plait"),
        Some(_) | None => PathBuf::from("/etc/plait"),
    }
}

fn read_identity(file: &Path) -> anyhow::Result<Identity> {
    let pem = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Identity::from_pem(&pem).with_context(|| format!("in {}", file.display()))
}

pub(crate) fn secret_random() -> io::Result<SecretRandom> {
    let mut seed = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(SecretRandom::new(seed))
}

fn logs_keys() -> bool {
    std::env::var_os("SSLKEYLOGFILE").is_some()
}

pub(crate) fn say(words: &str) {
    // For people; where standard error is closed nobody wants to know.
    let _ = writeln!(io::stderr(), "plait: {words}");
}

/// The date in UTC, as `YYYY-MM-DD`.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The date so many days after 1970-01-01 in the Gregorian calendar.
fn date(days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plait_host::{Negotiated, PlainReason, StatusCounters};

    use super::*;

    fn status(sealed: Option<SealedStatus>) -> Status {
        Status {
            negotiated: Negotiated::Plain(PlainReason::NotInSynAck),
            scrambling: None,
            sealed,
            attempts: Vec::new(),
            subflows: Vec::new(),
            bytes_delivered: 0,
            bytes_read: 0,
            age: Duration::ZERO,
            counters: StatusCounters::default(),
        }
    }

    /// However the server is to be known: by a pin, or by what it has shown before.
    fn trust(is_decided: bool, is_required: bool) -> Trust {
        Trust {
            authority: "gw:7443".to_owned(),
            store: KeyStore::new(PathBuf::from("/keys")),
            is_decided,
            known: None,
            is_asked_for: true,
            is_required,
        }
    }

    #[test]
    fn nothing_is_sent_before_a_suite_is_agreed_on_whoever_the_peer_would_be() {
        let asked_for = status(Some(SealedStatus { handshake: Some("TLS 1.3"), ..SealedStatus::default() }));
        let agreed = SealedStatus { suite: Some("AES-128-GCM"), ..SealedStatus::default() };
        for is_decided in [false, true] {
            for not_sealed in [None, Some(&status(None)), Some(&asked_for)] {
                assert!(trust(is_decided, true).judge(not_sealed).is_err());
                assert!(trust(is_decided, false).judge(not_sealed).is_ok(), "allowed, and said");
            }
            assert!(trust(is_decided, true).judge(Some(&status(Some(agreed.clone())))).is_ok());
        }
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_088), "2024-12-31");
        assert_eq!(date(20_089), "2025-01-01");
    }
}
