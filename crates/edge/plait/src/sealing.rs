//! Configuration of the sealing of a connection that we open.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ::plait_host::{Capability, Config, Fallback, Protect, SealedSettings};
use plait_handshake::{Fingerprint, Handshakes, KeyExchanges, Policy, Tep, Tickets};
use plait_keys::{KeyLogFile, OpenKeyLogError};
use plait_protect::sealed::Suite;

use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::processor;
use crate::remote::Remote;
use crate::trust::{Expected, Trust};

/// The handshake that agrees on the keys of a sealed connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Handshake {
    /// TLS 1.3 (RFC 8446): proves the identity of the server, and that of the client where the server asks for it.
    Tls13,
    /// tcpcrypt (RFC 8548): proves no identity.
    Tcpcrypt,
}

/// The algorithm that encrypts and authenticates the blocks of a sealed connection (RFC 5116).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CipherSuite {
    /// AES with a key of 128 bits, in Galois/Counter Mode.
    Aes128Gcm,
    /// AES with a key of 256 bits, in Galois/Counter Mode.
    Aes256Gcm,
    /// ChaCha20 and Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

impl CipherSuite {
    /// Returns all suites, the fastest on this processor first: AES if the processor has instructions for AES and for its authentication,
    /// otherwise ChaCha20, which is then several times as fast.
    pub fn by_speed() -> [Self; 3] {
        match processor::has_aes() {
            true => [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305],
            false => [Self::ChaCha20Poly1305, Self::Aes128Gcm, Self::Aes256Gcm],
        }
    }
}

/// A file of the secrets of connections, in the format of `SSLKEYLOGFILE`, for traffic analysis. A reader of the file can decrypt
/// everything. Clones write to the same file.
#[derive(Clone)]
pub struct KeyLog(pub(crate) Arc<KeyLogFile>);

/// The configuration of a sealed connection that we open: a [`Protection`](crate::Protection) with all its settings.
///
/// ```
/// use plait::{CipherSuite, Handshake, Identity, Protection, Sealing, Trust};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let us = Identity::generate()?;
/// let server = Trust::pinned("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".parse()?);
/// let protection = Protection::from(
///     Sealing::new(server)
///         .identity(&us)
///         .handshakes([Handshake::Tls13])
///         .cipher_suites([CipherSuite::ChaCha20Poly1305]),
/// );
/// # drop(protection);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is connected with"]
pub struct Sealing {
    pub(crate) trust: Trust,
    identity: Option<Identity>,
    handshakes: Option<Vec<Handshake>>,
    suites: Option<Vec<CipherSuite>>,
    key_log: Option<KeyLog>,
    require_paths: u8,
    key_exchanges: KeyExchanges,
    tickets: Option<Tickets>,
    may_repeat: bool,
    datagrams: bool,
    pub(crate) weaker: Weaker,
}

/// The protection that is accepted if the requested one is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weaker {
    Nothing,
    Multipath,
    Tcp,
}

impl Sealing {
    /// Asks for a sealed connection, or none, to the server that `trust` describes. The client proves no identity.
    pub fn new(trust: Trust) -> Self {
        let weaker = Weaker::Nothing;
        Self {
            trust,
            identity: None,
            handshakes: None,
            suites: None,
            key_log: None,
            require_paths: 0,
            key_exchanges: KeyExchanges::All,
            tickets: Some(Tickets::default()),
            may_repeat: false,
            datagrams: false,
            weaker,
        }
    }

    /// Shows this key of ours to a server that asks for one: some servers accept certain clients only.
    pub fn identity(self, identity: &Identity) -> Self {
        Self { identity: Some(identity.clone()), ..self }
    }

    /// Offers these handshakes only, best first. Only those of them that can prove what the [`Trust`] asks for are offered. Default: all
    /// that can.
    pub fn handshakes(self, handshakes: impl IntoIterator<Item = Handshake>) -> Self {
        Self { handshakes: Some(handshakes.into_iter().collect()), ..self }
    }

    /// Offers these cipher suites only, best first. Default: [`CipherSuite::by_speed`]. The client's order counts, unless ChaCha20 is the best of
    /// the server: a processor without instructions for AES is several times as slow with it.
    pub fn cipher_suites(self, suites: impl IntoIterator<Item = CipherSuite>) -> Self {
        Self { suites: Some(suites.into_iter().collect()), ..self }
    }

    /// Sends and accepts no application data until this many disjoint paths have contributed to the keys. A path is a device of this host;
    /// devices that share a network ([`Host::shared_networks`](crate::Host::shared_networks)) are one path. The path of the handshake
    /// counts. An eavesdropper that misses one of these paths reads nothing, even if keys leak later.
    /// [`Host::connect`](crate::Host::connect) waits for the paths. If they do not come together in time, it fails with an error that names
    /// the missing one.
    pub fn require_paths(self, paths: u8) -> Self {
        Self { require_paths: paths, ..self }
    }

    /// Agrees on keys only by the hybrid of X25519 and ML-KEM-768, so that a quantum computer cannot later read what is recorded today.
    /// This excludes tcpcrypt, which has no such hybrid.
    pub fn require_post_quantum(self) -> Self {
        Self { key_exchanges: KeyExchanges::PostQuantum, ..self }
    }

    /// Does a full handshake each time. By default, connections opened with this value or its clones resume a session with the server for a
    /// day, which costs both hosts less. A resumed session agrees on new keys, and the server's identity is the one proved in the full
    /// handshake.
    pub fn full_handshakes(self) -> Self {
        Self { tickets: None, ..self }
    }

    /// Declares that the first data may be delivered twice, to two instances of the server: several servers that share its name, or the
    /// server before and after a restart. Then the data is repeated to whichever instance answers. Otherwise the connection fails with
    /// [`ErrorKind::PerhapsDelivered`](crate::ErrorKind::PerhapsDelivered) if the instance that may have the data cannot be reached any
    /// more.
    pub fn may_repeat(self) -> Self {
        Self { may_repeat: true, ..self }
    }

    /// Takes datagrams beside the stream, if the peer does too ([`Stream::datagrams`](crate::Stream::datagrams)).
    pub fn datagrams(self) -> Self {
        Self { datagrams: true, ..self }
    }

    /// Writes the secrets of the connection to this file.
    pub fn key_log(self, log: &KeyLog) -> Self {
        Self { key_log: Some(log.clone()), ..self }
    }

    /// Also accepts Multipath TCP or plain TCP without any protection if the connection cannot be sealed. An attacker that strips an option
    /// from the first packet decides which. [`Status::is_sealed`](crate::Status::is_sealed) reports the result.
    pub fn or_plain(self) -> Self {
        Self { weaker: Weaker::Tcp, ..self }
    }

    /// The same as [`Sealing::or_plain`], but without plain TCP.
    pub fn or_plain_multipath(self) -> Self {
        Self { weaker: Weaker::Multipath, ..self }
    }

    /// As [`Protection::published`](crate::Protection::published).
    pub(crate) fn published(self, keys: Vec<Fingerprint>) -> Self {
        Self { trust: self.trust.published(keys), ..self }
    }

    pub(crate) fn settings(&self, remote: &Remote, config: &Config) -> Result<(Config, Expected), Error> {
        let mut expected = self.trust.expect(remote, self.identity.as_ref(), self.weaker)?;
        expected.require_paths = expected.require_paths.max(self.require_paths);
        let mut settings = expected.settings.clone();
        settings.suites = suites_of(self.suites.as_deref());
        if let Some(KeyLog(log)) = &self.key_log {
            settings.key_log = log.clone();
        }
        settings.key_exchanges = self.key_exchanges;
        settings.tickets.clone_from(&self.tickets);
        let is_strict = expected.require_paths > 1 || self.key_exchanges == KeyExchanges::PostQuantum;
        if is_strict && self.weaker != Weaker::Nothing {
            let words = "neither paths (for a server that is new, either) nor post-quantum keys can be required where a connection \
                         that is not sealed will do, too";
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        let handshakes: Arc<dyn Handshakes> = Arc::new(settings);
        let mut sealed = SealedSettings::opener(Arc::clone(&handshakes));
        sealed.require_paths = expected.require_paths;
        sealed.may_repeat = self.may_repeat;
        if self.datagrams {
            sealed.capabilities = sealed.capabilities.with(Capability::Datagrams);
        }
        sealed.policy = self.weaker.policy();
        sealed.teps = teps_of(self.handshakes.as_deref());
        if !expected.takes_any_key() {
            sealed.teps.retain(|tep| tep.proves_identity());
        }
        sealed.teps.retain(|&tep| handshakes.allows(tep));
        if sealed.teps.is_empty() {
            let words = "no handshake is left that could do what is asked for (tcpcrypt authenticates neither host, and has no post-quantum keys)";
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        let fallback = self.weaker.fallback();
        Ok((Config { protect: Protect::Sealed(sealed), fallback, ..config.clone() }, expected))
    }
}

impl Weaker {
    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Nothing => Policy::Require,
            Self::Multipath | Self::Tcp => Policy::Prefer,
        }
    }

    /// Whether connections with less protection than requested are accepted.
    pub(crate) fn unprotected(self) -> Fallback {
        match self {
            Self::Nothing => Fallback::Refuse,
            Self::Multipath | Self::Tcp => Fallback::Allow,
        }
    }

    /// Whether plain TCP is accepted.
    pub(crate) fn fallback(self) -> Fallback {
        match self {
            Self::Nothing | Self::Multipath => Fallback::Refuse,
            Self::Tcp => Fallback::Allow,
        }
    }
}

/// As numbers of the negotiation, best first.
pub(crate) fn teps_of(handshakes: Option<&[Handshake]>) -> Vec<Tep> {
    let Some(handshakes) = handshakes else { return Tep::ALL.to_vec() };
    let teps = handshakes.iter().flat_map(|handshake| match handshake {
        Handshake::Tls13 => vec![Tep::Tls13],
        Handshake::Tcpcrypt => vec![Tep::TcpcryptCurve25519, Tep::TcpcryptP256],
    });
    teps.collect()
}

/// The suites that were named, otherwise all.
pub(crate) fn suites_of(suites: Option<&[CipherSuite]>) -> Vec<Suite> {
    let by_speed = CipherSuite::by_speed();
    let suites = suites.unwrap_or(&by_speed).iter().map(|suite| match suite {
        CipherSuite::Aes128Gcm => Suite::Aes128Gcm,
        CipherSuite::Aes256Gcm => Suite::Aes256Gcm,
        CipherSuite::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
    });
    suites.collect()
}

impl KeyLog {
    /// Opens the file for appending, or creates it, for its owner only. It does not follow a symbolic link.
    ///
    /// # Errors
    /// It cannot be opened, others can read it, or it belongs to another user.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, OpenKeyLogError> {
        Ok(Self(Arc::new(KeyLogFile::open(file.as_ref())?)))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyLog").field(&self.path()).finish()
    }
}
