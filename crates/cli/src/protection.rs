//! What protects a connection: settings from the command line and the files of keys, and what the peer showed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use plait_handshake::{
    Certificate, ClientPolicy, Fingerprint, Identity, ListenerSettings, OpenerSettings, Tep,
};
use plait_host::{
    Config, ConnectionError, Failure, OsRandom, PeerIdentity, Protect, SealedSettings, SealedStatus, Status,
};
use plait_keys::read_identity;
use plait_proxy::keys::KeyStore;
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::key_log;
use crate::options::{self, Handshake, Options, Policy};
use crate::server_identity::ServerIdentity;

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
    server: ServerIdentity,
    /// The command line says how, and the handshake has seen to it: nothing else counts.
    is_decided: bool,
    /// Whether anything is sealed at all.
    is_asked_for: bool,
    /// Whether nothing but a sealed connection will do.
    is_required: bool,
}

/// The settings of a connection to `server`, and how it will be known: by the key in its URL, by a certificate, or by
/// what it has shown before. A key that is known is asked for in the handshake, so that whoever does not have it never sees ours.
pub(crate) fn opener(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
) -> anyhow::Result<(Config, Trust)> {
    let mut config = options.config();
    let is_asked_for = is_sealed(options);
    let is_decided = server.pin.is_some() || authorities.are_given();
    let is_required = requires_sealing(options);
    let known_peers = store(options).known_peers();
    let server = ServerIdentity::new(server.clone(), known_peers, authorities.accepts_new())?;
    let trust = Trust { server, is_decided, is_asked_for, is_required };
    if !is_asked_for {
        if authorities.are_given() {
            bail!("--ca needs --protect sealed: nothing else proves who the server is");
        }
        return Ok((config, trust));
    }
    let key = trust.key_asked_for(authorities);
    if options.handshake == Some(Handshake::Tcpcrypt) && (is_decided || key.is_some()) {
        bail!("tcpcrypt proves nobody's identity, and this server's is known (fix: use --handshake tls)");
    }
    let (name, expected) = authorities.expect(trust.server.host(), key)?;
    let settings = OpenerSettings {
        identity: own_identity(options)?.map(Arc::new),
        ..OpenerSettings::new(name, expected)
    };
    config.protect = protect_opener(options, settings)?;
    Ok((config, trust))
}

/// Settings to learn who answers in the place of `server`: they take any key and show none of ours.
pub(crate) fn inquirer(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
) -> anyhow::Result<Config> {
    let mut config = options.config();
    let (name, anybody) = authorities.expect(&server.host, None)?;
    config.protect = protect_opener(options, OpenerSettings::new(name, anybody))?;
    Ok(config)
}

fn protect_opener(options: &Options, mut settings: OpenerSettings) -> anyhow::Result<Protect> {
    if let Some(key_log) = key_log::open(options.allow_key_log)? {
        settings.key_log = key_log;
    }
    Ok(Protect::Sealed(SealedSettings {
        teps: match options.handshake {
            // Whoever wants to know the server does not offer what cannot prove it.
            None | Some(Handshake::Tls) => vec![Tep::Tls13],
            Some(Handshake::Tcpcrypt) => vec![Tep::TcpcryptCurve25519, Tep::TcpcryptP256],
        },
        ..sealed(options, SealedSettings::opener(Arc::new(settings)))
    }))
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
        None => store(options).identity(&mut OsRandom::new()?).context("cannot have a key of our own")?.0,
    };
    let fingerprint = identity.public_key().fingerprint();
    let clients = match clients {
        Clients::Anybody | Clients::Judged => ClientPolicy::AskForKey,
        Clients::Keys(keys) => ClientPolicy::Authorised(keys),
    };
    let mut settings = ListenerSettings { clients, certificate, ..ListenerSettings::new(Arc::new(identity)) };
    if let Some(key_log) = key_log::open(options.allow_key_log)? {
        settings.key_log = key_log;
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
    /// The key that the handshake has to prove. One that was trusted once does not count where a certificate is asked for.
    fn key_asked_for(&self, authorities: &Authorities) -> Option<Fingerprint> {
        if authorities.are_given() { self.server.pin() } else { self.server.expected() }
    }

    /// What there is to know where a server could not prove to be the one that was met before.
    pub(crate) fn remedy(&self, error: &io::Error) -> Option<String> {
        let failure = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>());
        let has_failed = failure.is_some_and(|failure| failure.error == ConnectionError::HandshakeFailed);
        if has_failed && !self.is_decided { self.server.remedy() } else { None }
    }

    /// Judges the peer of a connection that is open, before anything is sent.
    ///
    /// # Errors
    /// It is not sealed and has to be; [`WrongPeer`] if it shows another key than before, or is new and nobody vouches for it; or the
    /// files cannot be used.
    pub(crate) fn judge(&self, status: Option<&Status>) -> anyhow::Result<()> {
        if !self.is_asked_for {
            return Ok(());
        }
        let Some(sealed) = sealed_with(status, self.is_required)? else {
            say("warning: the peer cannot seal: everybody on the way can read and change what is sent");
            return Ok(());
        };
        match (&sealed.peer, self.server.expected()) {
            _ if self.is_decided => Ok(()),
            (PeerIdentity::Anonymous | PeerIdentity::Certificate, Some(expected)) => {
                Err(WrongPeer(format!("the server does not show the key {expected} that it is known by"))
                    .into())
            }
            (PeerIdentity::Anonymous, None) => {
                say("warning: encrypted, but nobody knows with whom (tcpcrypt)");
                Ok(())
            }
            (PeerIdentity::Certificate, None) => Ok(()),
            (PeerIdentity::Key { fingerprint, .. }, _) => self.server.meet(fingerprint.parse()?),
        }
    }
}

/// Our key as a client, if we have one.
fn own_identity(options: &Options) -> anyhow::Result<Option<Identity>> {
    let store = store(options);
    match &options.key {
        Some(file) => Ok(Some(read_identity(file)?)),
        None if store.path("identity").exists() => Ok(Some(read_identity(&store.path("identity"))?)),
        None => Ok(None),
    }
}

/// The directory of keys that the options name.
pub(crate) fn store(options: &Options) -> KeyStore {
    KeyStore::new(options.keys.clone().unwrap_or_else(default_directory))
}

/// `/etc/plait` for root, `~/.config/plait` for others.
pub(crate) fn default_directory() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if !geteuid().is_root() => Path::new(&home).join(".config/plait"),
        Some(_) | None => PathBuf::from("/etc/plait"),
    }
}

pub(crate) fn say(words: &str) {
    // For people; where standard error is closed nobody wants to know.
    let _ = writeln!(io::stderr(), "plait: {words}");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use plait_handshake::{Handshakes, Peer, PublicKey};
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
        trust_in(Path::new("/keys"), is_decided, is_required)
    }

    fn trust_in(keys: &Path, is_decided: bool, is_required: bool) -> Trust {
        let server = ServerUrl { host: "gw".to_owned(), port: 7443, pin: None };
        let known_peers = KeyStore::new(keys).known_peers();
        let server = ServerIdentity::new(server, known_peers, true).expect("readable");
        Trust { server, is_decided, is_asked_for: true, is_required }
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

    #[derive(Debug, clap::Parser)]
    struct Words {
        #[command(flatten)]
        authorities: Authorities,
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_known_server_has_to_prove_its_key_before_it_sees_ours() {
        let keys = std::env::temp_dir().join(format!("plait-pinned-{}", std::process::id()));
        let _ = fs::remove_dir_all(&keys);
        let [first, second] = [1, 2].map(|byte| PublicKey::new([byte; 32]));
        KeyStore::new(&keys).known_peers().pin("gw:7443", first.fingerprint()).expect("written");
        let opened = |server: &str, more: &str| {
            let words = format!("words --keys {} {more}", keys.display());
            let words = <Words as clap::Parser>::parse_from(words.split_whitespace());
            let config = opener(&words.options, &words.authorities, &server.parse().expect("a server"))?.0;
            let Protect::Sealed(settings) = config.protect else { panic!("sealed is the default") };
            anyhow::Ok(settings.opener.expect("we open"))
        };
        let admits = |opener: &dyn Handshakes, key| opener.admits(&Peer::Key { key, is_known: false }.into());
        let known = opened("gw:7443", "").expect("good words");
        assert!(admits(&*known, first) && !admits(&*known, second), "in the handshake, not behind it");
        let new = opened("other:7443", "").expect("good words");
        assert!(admits(&*new, second), "what is new is judged when it has shown itself");
        let tcpcrypt = opened("gw:7443", "--handshake tcpcrypt").map(drop);
        assert!(tcpcrypt.expect_err("it proves nothing").to_string().contains("--handshake tls"));
        fs::remove_dir_all(&keys).expect("removed");
    }

    #[test]
    fn an_intercepted_connection_that_completes_late_does_not_replace_the_key_of_the_honest_one() {
        let directory = std::env::temp_dir().join(format!("plait-late-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let trust = || trust_in(&directory, false, true);
        let shows = |byte: u8| {
            let fingerprint = Fingerprint::new([byte; 32]).to_string();
            let peer = PeerIdentity::Key { line: String::new(), fingerprint, is_known: false };
            status(Some(SealedStatus { suite: Some("AES-128-GCM"), peer, ..SealedStatus::default() }))
        };
        // Both have begun before anything was known.
        let (honest, intercepted) = (trust(), trust());
        honest.judge(Some(&shows(1))).expect("the first");
        let late = intercepted.judge(Some(&shows(2)));
        let known = KeyStore::new(&directory).known_peers().all().expect("read");
        fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(known[0].fingerprint, Fingerprint::new([1; 32]), "{late:?}");
        assert!(late.is_err());
    }
}
