//! The protection of a connection: settings from the command line and the files of keys, and the key of the peer.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use plait::{
    ErrorKind, Fingerprint, Handshake, Host, Identity, Peer, Protection, Remote, SealedService, Sealing,
    Service, SharedCertificate, Status, Stream,
};
use plait_proxy::keys::KeyStore;
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::key_log;
use crate::options::{self, Options, Policy};
use crate::output::say;
use crate::server_identity::{FIRST_CONTACT_PATHS, ServerIdentity, Sighting};
use crate::system::is_root;
use crate::time_limit::TimeLimit;

/// The peer does not have the expected identity.
#[derive(Debug)]
pub(crate) struct WrongPeer(pub(crate) String);

impl std::fmt::Display for WrongPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongPeer {}

/// How the identity of the server is verified.
pub(crate) struct Trust {
    server: ServerIdentity,
    /// The command line gives the identity, and the handshake has verified it: nothing else counts.
    is_decided: bool,
    /// Whether sealing is asked for.
    is_asked_for: bool,
    /// Whether only a sealed connection is accepted.
    is_required: bool,
}

/// Number of paths on which this host can see which server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostPaths {
    /// There will be no other path: the key shown on this one is judged by it.
    One,
    Several,
}

impl HostPaths {
    pub(crate) fn of(host: &Host) -> Self {
        if host.disjoint_paths() > 1 { Self::Several } else { Self::One }
    }
}

/// Returns the settings of a connection to `server`, and how the server is identified: by the key in its URL, by a certificate, or by
/// its earlier key. The handshake asks for a known key, so that a host without it never sees ours.
pub(crate) fn opener(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
    paths: HostPaths,
) -> anyhow::Result<(Protection, Trust)> {
    let is_asked_for = is_sealed(options);
    let is_decided = server.pin.is_some() || authorities.are_given();
    let is_required = requires_sealing(options);
    let known_peers = store(options).known_peers();
    let server = ServerIdentity::new(server.clone(), known_peers, authorities.accepts_new())?;
    let trust = Trust { server, is_decided, is_asked_for, is_required };
    if !is_asked_for {
        if authorities.are_given() {
            bail!("--ca needs --protect sealed: nothing else authenticates the server");
        }
        return Ok((unsealed(options), trust));
    }
    let keys = trust.keys_asked_for(authorities);
    if options.handshake == Some(options::Handshake::Tcpcrypt) && (is_decided || !keys.is_empty()) {
        bail!(
            "tcpcrypt authenticates neither host, and the identity of this server is known (fix: use --handshake tls)"
        );
    }
    let sealing = as_us(options, authorities.expect(trust.server.host(), &keys)?)?;
    // Before an unknown server is trusted, and sent a byte, an attacker in the middle of one path is detected.
    let is_tls = options.handshake != Some(options::Handshake::Tcpcrypt);
    let paths = if keys.is_empty() && !is_decided && is_tls && trust.server.goes_by_paths() {
        if weaker(options) != Policy::Require {
            bail!(
                "a server that is not known cannot be believed by its paths where it need not seal\n  fix: leave out \
                 --allow-plain and --policy, or believe what a single path shows: --accept-new=one-path"
            );
        }
        match paths {
            HostPaths::Several => FIRST_CONTACT_PATHS,
            HostPaths::One => 0,
        }
    } else {
        0
    };
    Ok((sealed(options, sealing.require_paths(options.require_paths.unwrap_or_default().max(paths)))?, trust))
}

/// Returns the settings of a connection to an unknown server that has one of these keys, as its DNS zone proves.
pub(crate) fn published(options: &Options, keys: &[Fingerprint]) -> anyhow::Result<Protection> {
    if options.handshake == Some(options::Handshake::Tcpcrypt) {
        bail!(
            "tcpcrypt authenticates neither host, and the DNS zone of this server publishes its key (fix: use --handshake tls)"
        );
    }
    let sealing = as_us(options, plait::Trust::any_of(keys.iter().copied()))?;
    sealed(options, sealing.require_paths(options.require_paths.unwrap_or_default()))
}

/// A sealed connection in which we show our key, if there is one.
fn as_us(options: &Options, trust: plait::Trust) -> anyhow::Result<Sealing> {
    let store = store(options);
    let identity = match &options.key {
        Some(file) => Identity::load(file)?,
        None if store.path("identity").exists() => Identity::load(store.path("identity"))?,
        None => return Ok(Sealing::new(trust)),
    };
    Ok(Sealing::new(trust).identity(&identity))
}

/// Returns settings to find out which host answers in the place of `server`: accepts any key and shows none of ours.
pub(crate) fn inquirer(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
) -> anyhow::Result<Protection> {
    sealed(options, Sealing::new(authorities.expect(&server.host, &[])?))
}

fn sealed(options: &Options, mut sealing: Sealing) -> anyhow::Result<Protection> {
    if let Some(key_log) = key_log::open(options.allow_key_log)? {
        sealing = sealing.key_log(&key_log);
    }
    if options.require_pq {
        sealing = sealing.require_post_quantum();
    }
    // A client that must identify the server does not offer a handshake that cannot prove identities.
    let sealing = sealing.handshakes([options.handshake.map_or(Handshake::Tls13, Handshake::from)]);
    let sealing = sealing.cipher_suites(options.ciphers());
    Ok(match (weaker(options), options.require_multipath) {
        (Policy::Off, _) => plain(options),
        (Policy::Require, _) => sealing.into(),
        (Policy::Prefer, false) => sealing.or_plain().into(),
        (Policy::Prefer, true) => sealing.or_plain_multipath().into(),
    })
}

/// The accepted protection without sealing.
fn unsealed(options: &Options) -> Protection {
    match options.protect {
        options::Protect::Scramble => options.scrambling().into(),
        options::Protect::Plain | options::Protect::Sealed => plain(options),
    }
}

fn plain(options: &Options) -> Protection {
    match (options.plain, options.require_multipath) {
        (true, _) => Protection::plain_tcp(),
        (false, true) => Protection::plain_multipath(),
        (false, false) => Protection::plain(),
    }
}

/// The policy if a connection cannot be sealed.
fn weaker(options: &Options) -> Policy {
    match options.policy {
        Some(policy) => policy,
        None if options.allow_plain => Policy::Prefer,
        None => Policy::Require,
    }
}

/// Whether connections should be sealed.
pub(crate) fn is_sealed(options: &Options) -> bool {
    match options.protect {
        options::Protect::Sealed => true,
        options::Protect::Plain | options::Protect::Scramble => false,
    }
}

/// Whether only sealed connections are accepted.
pub(crate) fn requires_sealing(options: &Options) -> bool {
    match options.policy {
        None => is_sealed(options) && !options.allow_plain,
        Some(Policy::Require) => is_sealed(options),
        Some(Policy::Prefer | Policy::Off) => false,
    }
}

/// The clients that a listener accepts.
#[derive(Clone, Debug)]
pub(crate) enum Clients {
    /// Every client; a client with a key shows it.
    Any,
    /// Clients that are accepted one by one.
    Judged {
        /// The rule that accepts them.
        clients: plait::Clients,
        /// Whether their keys are required.
        by_key: bool,
    },
    /// Clients with one of these keys.
    Keys(Vec<Fingerprint>),
}

/// Returns the protection of connections from `clients`, and our key if it is used. Creates the key if there is none yet.
pub(crate) fn listener(
    options: &Options,
    clients: Clients,
    certificate: Option<SharedCertificate>,
) -> anyhow::Result<(Service, Option<Fingerprint>)> {
    // A handshake that cannot prove a client's identity must not bypass the list of clients.
    let proves_clients = match &clients {
        Clients::Any => false,
        Clients::Judged { clients: _, by_key } => *by_key,
        Clients::Keys(_) => true,
    };
    if !is_sealed(options) {
        if certificate.is_some() || proves_clients {
            bail!("keys and certificates need --protect sealed: nothing else authenticates a host");
        }
        return Ok((unsealed_service(options), None));
    }
    if proves_clients && options.handshake == Some(options::Handshake::Tcpcrypt) {
        bail!(
            "tcpcrypt authenticates neither host, and only known clients are allowed (fix: --handshake tls)"
        );
    }
    let identity = match &options.key {
        Some(file) => Identity::load(file)?,
        None => store(options).identity().context("cannot have a key of our own")?.0,
    };
    let clients = match clients {
        Clients::Any => plait::Clients::anyone(),
        Clients::Judged { clients, by_key: _ } => clients,
        Clients::Keys(keys) => plait::Clients::known(keys),
    };
    let mut service = SealedService::new(&identity, clients).cipher_suites(options.ciphers());
    if let Some(certificate) = certificate {
        service = service.certificate(certificate);
    }
    if let Some(key_log) = key_log::open(options.allow_key_log)? {
        service = service.key_log(&key_log);
    }
    service = service.require_paths(options.require_paths.unwrap_or_default());
    if options.require_pq {
        service = service.require_post_quantum();
    }
    match options.handshake {
        Some(handshake) => service = service.handshakes([handshake.into()]),
        None if proves_clients => service = service.handshakes([Handshake::Tls13]),
        None => {}
    }
    let service = match (weaker(options), options.require_multipath) {
        (Policy::Off, _) => plain_service(options),
        (Policy::Require, _) => service.into(),
        (Policy::Prefer, false) => service.or_plain().into(),
        (Policy::Prefer, true) => service.or_plain_multipath().into(),
    };
    Ok((service, Some(identity.fingerprint())))
}

fn unsealed_service(options: &Options) -> Service {
    match options.protect {
        options::Protect::Scramble => options.scrambling().into(),
        options::Protect::Plain | options::Protect::Sealed => plain_service(options),
    }
}

fn plain_service(options: &Options) -> Service {
    match (options.plain, options.require_multipath) {
        (true, _) => Service::plain_tcp(),
        (false, true) => Service::plain_multipath(),
        (false, false) => Service::plain(),
    }
}

impl From<options::Handshake> for Handshake {
    fn from(handshake: options::Handshake) -> Self {
        match handshake {
            options::Handshake::Tls => Self::Tls13,
            options::Handshake::Tcpcrypt => Self::Tcpcrypt,
        }
    }
}

/// Returns the identity of the peer, if blocks are sealed. A request to seal is not enough: a suite must be agreed on.
///
/// # Errors
/// Blocks are not sealed, and `is_required`.
pub(crate) fn sealed_with(status: Option<&Status>, is_required: bool) -> anyhow::Result<Option<Peer>> {
    judged(status.map_or(Peer::Unknown, Status::peer), is_required)
}

fn judged(peer: Peer, is_required: bool) -> anyhow::Result<Option<Peer>> {
    if peer == Peer::Unknown && is_required {
        bail!("the connection is not sealed, and nothing is sent over one that is not");
    }
    Ok((peer != Peer::Unknown).then_some(peer))
}

impl Trust {
    /// The keys of which the handshake must prove one. Earlier keys do not count if a certificate is asked for.
    fn keys_asked_for(&self, authorities: &Authorities) -> Vec<Fingerprint> {
        if authorities.are_given() { Vec::from_iter(self.server.pin()) } else { self.server.expected() }
    }

    /// Returns the fix for a server that could not prove its earlier identity, or a new server that was not seen over several paths.
    pub(crate) fn remedy(&self, error: &plait::Error) -> Option<String> {
        match error.kind() {
            _ if self.is_decided => None,
            ErrorKind::NotAuthenticated => self.server.remedy(),
            ErrorKind::NotProtected | ErrorKind::PathsMissing => self.server.first_contact_remedy(),
            _ => None,
        }
    }

    /// As [`ServerIdentity::look_up`], if nothing else identifies the server.
    pub(crate) async fn look_up(
        &mut self,
        host: &Host,
        remote: &Remote,
        found: Vec<SocketAddr>,
        limit: TimeLimit,
    ) -> anyhow::Result<Vec<SocketAddr>> {
        if !self.is_asked_for || self.is_decided {
            return Ok(found);
        }
        self.server.look_up(host, remote, found, limit).await
    }

    /// As [`ServerIdentity::published`].
    pub(crate) fn published(&self) -> Option<&[Fingerprint]> {
        self.server.published()
    }

    /// Whether the server's key must be seen over several paths.
    pub(crate) fn goes_by_paths(&self) -> bool {
        self.is_asked_for && !self.is_decided && self.server.goes_by_paths()
    }

    /// As [`ServerIdentity::disagree`].
    pub(crate) fn disagree(&self, sightings: &[Sighting]) -> Option<WrongPeer> {
        self.server.disagree(sightings)
    }

    /// Number of disjoint paths to the host that `stream` has reached; of interest for a new server.
    pub(crate) fn paths_to(&self, stream: &Stream) -> u8 {
        let is_asked = self.is_asked_for && !self.is_decided && self.server.expected().is_empty();
        if is_asked { self.server.paths_to(stream) } else { 0 }
    }

    /// Judges the peer of an open connection, before data is sent. `paths` disjoint paths lead to it.
    ///
    /// # Errors
    /// The connection is not sealed although it must be; [`WrongPeer`] if the server shows another key than before, or is new and not
    /// vouched for; or the files cannot be used.
    pub(crate) fn judge(&self, peer: &Peer, paths: u8) -> anyhow::Result<()> {
        if !self.is_asked_for {
            return Ok(());
        }
        let Some(peer) = judged(peer.clone(), self.is_required)? else {
            say("warning: the peer cannot seal: each host on the path can read and change the data");
            return Ok(());
        };
        match (peer, &self.server.expected()[..]) {
            _ if self.is_decided => Ok(()),
            (Peer::Key(shown), _) => self.server.meet(shown, paths),
            (_, [expected, ..]) => {
                Err(WrongPeer(format!("the server does not show the key {expected} that it is known by"))
                    .into())
            }
            (Peer::Certificate, []) => Ok(()),
            (_, []) => {
                say("warning: encrypted, but the peer is not authenticated (tcpcrypt)");
                Ok(())
            }
        }
    }
}

/// Returns the files of keys in the options.
pub(crate) fn store(options: &Options) -> KeyStore {
    options.keys.clone().map_or_else(default_store, KeyStore::new)
}

/// The default directories of keys: one for configuration and one for state, as XDG specifies; for root all in `/etc/plait`.
pub(crate) fn default_store() -> KeyStore {
    if is_root() {
        return KeyStore::new("/etc/plait");
    }
    // On Windows it is the second variable.
    let home = ["HOME", "USERPROFILE"].into_iter().find_map(std::env::var_os);
    let home = home.map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let of = |variable: &str, usual: &str| {
        let given = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        given.unwrap_or_else(|| home.join(usual)).join("plait")
    };
    let (config, state) = (of("XDG_CONFIG_HOME", ".config"), of("XDG_STATE_HOME", ".local/state"));
    // A file of an earlier version stays in use.
    if config.join("known_peers").exists() {
        return KeyStore::new(config);
    }
    KeyStore::new(config).with_state(state)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::certificate::AcceptNew;

    /// However the server is to be known: by a pin, or by what it has shown before.
    fn trust(is_decided: bool, is_required: bool) -> Trust {
        trust_in(Path::new("/keys"), is_decided, is_required)
    }

    fn trust_in(keys: &Path, is_decided: bool, is_required: bool) -> Trust {
        let server = ServerUrl { host: "gw".to_owned(), port: 7443, pin: None };
        let known_peers = KeyStore::new(keys).known_peers();
        let server = ServerIdentity::new(server, known_peers, Some(AcceptNew::OnePath)).expect("readable");
        Trust { server, is_decided, is_asked_for: true, is_required }
    }

    #[test]
    fn nothing_is_sent_before_a_suite_is_agreed_on_to_any_peer() {
        for is_decided in [false, true] {
            assert!(trust(is_decided, true).judge(&Peer::Unknown, 1).is_err());
            assert!(trust(is_decided, false).judge(&Peer::Unknown, 1).is_ok(), "allowed, and said");
            assert!(trust(is_decided, true).judge(&Peer::Anonymous, 1).is_ok());
        }
        assert!(sealed_with(None, true).is_err());
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
        let known = Fingerprint::new([1; 32]);
        KeyStore::new(&keys).known_peers().pin("gw:7443", known).expect("written");
        let opened = |server: &str, more: &str| {
            let words = format!("words --keys {} {more}", keys.display());
            let words = <Words as clap::Parser>::parse_from(words.split_whitespace());
            let (protection, trust) = opener(
                &words.options,
                &words.authorities,
                &server.parse().expect("a server"),
                HostPaths::Several,
            )?;
            anyhow::Ok((format!("{protection:?}"), trust.keys_asked_for(&words.authorities)))
        };
        let (protection, key) = opened("gw:7443", "").expect("good words");
        let pinned = format!("trust: {:?}", plait::Trust::pinned(known));
        assert_eq!(key, [known]);
        assert!(protection.contains(&pinned), "in the handshake, not behind it: {protection}");
        let (protection, key) = opened("other:7443", "").expect("good words");
        assert_eq!(key, [], "what is new is judged when it has shown itself");
        assert!(!protection.contains(&pinned), "{protection}");
        let tcpcrypt = opened("gw:7443", "--handshake tcpcrypt").map(drop);
        assert!(tcpcrypt.expect_err("it proves nothing").to_string().contains("--handshake tls"));
        fs::remove_dir_all(&keys).expect("removed");
    }

    #[test]
    fn an_intercepted_connection_that_completes_late_does_not_replace_the_key_of_the_honest_one() {
        let directory = std::env::temp_dir().join(format!("plait-late-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let trust = || trust_in(&directory, false, true);
        let shows = |byte: u8| Peer::Key(Fingerprint::new([byte; 32]));
        // Both have begun before anything was known.
        let (honest, intercepted) = (trust(), trust());
        honest.judge(&shows(1), 1).expect("the first");
        let late = intercepted.judge(&shows(2), 1);
        let known = KeyStore::new(&directory).known_peers().all().expect("read");
        fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(known[0].fingerprint, Fingerprint::new([1; 32]), "{late:?}");
        assert!(late.is_err());
    }
}
