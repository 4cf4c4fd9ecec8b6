//! Which server is expected.

use std::sync::Arc;

use ::plait_host::{PeerIdentity, SealedStatus};
use plait_handshake::{Fingerprint, OpenerSettings, PemError, ServerName, ServerTrust, roots_from_pem};
use plait_keys::KnownPeers;

use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::remote::Remote;
use crate::sealing::Weaker;

/// How we know the server that we open a connection to.
///
/// Each of them excludes the handshakes that could not prove it: only with [`Trust::anonymous`] a peer may use tcpcrypt
/// (RFC 8548), which proves no identity.
#[derive(Clone, Debug)]
pub struct Trust(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Pinned(Vec<Fingerprint>),
    Authorities { roots: ServerTrust, name: Option<String> },
    Known(KnownPeers),
    Anonymous,
}

/// What a trust comes to for one server.
pub(crate) struct Expected {
    pub(crate) settings: OpenerSettings,
    demand: Demand,
    weaker: Weaker,
    /// As [`Sealing::require_paths`](crate::Sealing::require_paths) asks.
    pub(crate) require_paths: u8,
}

enum Demand {
    Pinned(Vec<Fingerprint>),
    Certificate,
    Known { authority: String, peers: KnownPeers },
    Nothing,
}

impl Trust {
    /// The server has this key.
    #[must_use]
    pub fn pinned(key: Fingerprint) -> Self {
        Self::any_of([key])
    }

    /// The server has one of these keys: an old one and its successor, say. With none of them no server is good enough.
    #[must_use]
    pub fn any_of(keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Kind::Pinned(keys.into_iter().collect()))
    }

    /// The server shows a certificate for its name that leads to one of these roots (PEM). The name is the one that is
    /// connected to.
    ///
    /// # Errors
    /// There is no certificate in `pem`, or one that makes no sense.
    pub fn authorities(pem: &[u8]) -> Result<Self, PemError> {
        let roots = ServerTrust::Roots(Arc::new(roots_from_pem(pem)?));
        Ok(Self(Kind::Authorities { roots, name: None }))
    }

    /// As [`Trust::authorities`], with the name that the certificate has to be for, whatever is connected to.
    ///
    /// # Errors
    /// As [`Trust::authorities`].
    pub fn authorities_for(server: impl Into<String>, pem: &[u8]) -> Result<Self, PemError> {
        let roots = ServerTrust::Roots(Arc::new(roots_from_pem(pem)?));
        Ok(Self(Kind::Authorities { roots, name: Some(server.into()) }))
    }

    /// The server has the key that this file knows of it. One that it does not know is believed the first time and
    /// written down: an attacker who intercepts that first connection is believed, too. Where
    /// [`Sealing::require_paths`](crate::Sealing::require_paths) asks for several paths, a new key is not written down before so many
    /// have led to it, which is after the connection is there: as a rule each connection has to show it anew.
    #[must_use]
    pub fn known_peers(peers: KnownPeers) -> Self {
        Self(Kind::Known(peers))
    }

    /// Anybody: the connection is encrypted and an eavesdropper cannot read it, but a man in the middle of all paths is
    /// not noticed. [`Stream::peer_identity`](crate::Stream::peer_identity) says whom the handshake has found.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Kind::Anonymous)
    }

    pub(crate) fn expect(
        &self,
        remote: &Remote,
        identity: Option<&Identity>,
        weaker: Weaker,
    ) -> Result<Expected, Error> {
        let host = match &self.0 {
            Kind::Authorities { name: Some(name), .. } => name,
            Kind::Pinned(_) | Kind::Authorities { .. } | Kind::Known(_) | Kind::Anonymous => remote.host(),
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, format!("{host} is not a name a server can have"))
        })?;
        let (server, demand) = match &self.0 {
            Kind::Pinned(keys) => (ServerTrust::Pinned(keys.clone()), Demand::Pinned(keys.clone())),
            Kind::Authorities { roots, .. } => (roots.clone(), Demand::Certificate),
            Kind::Known(peers) => {
                let authority = remote.authority();
                let server = match peers.find(&authority)? {
                    Some(known) => ServerTrust::Pinned(vec![known.fingerprint]),
                    None => ServerTrust::AcceptNew,
                };
                (server, Demand::Known { authority, peers: peers.clone() })
            }
            Kind::Anonymous => (ServerTrust::AcceptNew, Demand::Nothing),
        };
        let mut settings = OpenerSettings::new(name, server);
        settings.identity = identity.map(|identity| identity.0.clone());
        Ok(Expected { settings, demand, weaker, require_paths: 0 })
    }
}

impl Expected {
    /// Whether a server that proves no identity will do.
    pub(crate) fn takes_anybody(&self) -> bool {
        match self.demand {
            Demand::Nothing => true,
            Demand::Pinned(_) | Demand::Certificate | Demand::Known { .. } => false,
        }
    }

    /// Judges the peer of a connection that is open, before its owner gets it. The handshake has done so already, but for a
    /// server that is met for the first time; what it has found is looked at once more here, where data may first flow.
    pub(crate) fn judge(&self, sealed: Option<&SealedStatus>) -> Result<(), Error> {
        let Some(sealed) = sealed.filter(|sealed| sealed.suite.is_some()) else {
            return match self.weaker {
                Weaker::Nothing => Err(Error::new(ErrorKind::NotProtected, "the connection is not sealed")),
                // Asked for by name, and told by the status.
                Weaker::Multipath | Weaker::Tcp => Ok(()),
            };
        };
        let shown = match &sealed.peer {
            PeerIdentity::Key { fingerprint, .. } => fingerprint.parse::<Fingerprint>().ok(),
            PeerIdentity::Anonymous | PeerIdentity::Certificate => None,
        };
        match (&self.demand, shown) {
            (Demand::Nothing, _) => Ok(()),
            (Demand::Pinned(keys), Some(shown)) if keys.contains(&shown) => Ok(()),
            (Demand::Certificate, _) if sealed.peer == PeerIdentity::Certificate => Ok(()),
            // Whatever was known when the connection began: what counts is what is known now.
            (Demand::Known { peers, authority, .. }, Some(shown)) => {
                let [sent, received] = sealed.mixed_paths;
                let paths = u8::try_from(sent.min(received)).unwrap_or(u8::MAX);
                match (peers.find(authority)?, self.require_paths) {
                    // The other paths have not been heard of yet: nothing is written down, and nothing flows before they are.
                    (None, required) if paths < required => {}
                    // Where they are not asked for, one may have joined an address that whoever answered has announced.
                    (_, 0 | 1) => drop(peers.pin_shown(authority, shown, 1)?),
                    (_, _) => drop(peers.pin_shown(authority, shown, paths)?),
                }
                Ok(())
            }
            (Demand::Pinned(_) | Demand::Certificate | Demand::Known { .. }, _) => {
                let words = "the server has not proved to be the one that was asked for";
                Err(Error::new(ErrorKind::NotAuthenticated, words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(peer: PeerIdentity) -> SealedStatus {
        SealedStatus { suite: Some("AES-128-GCM"), peer, ..SealedStatus::default() }
    }

    fn key(byte: u8) -> PeerIdentity {
        let fingerprint = Fingerprint::new([byte; 32]).to_string();
        PeerIdentity::Key { line: String::new(), fingerprint, is_known: true }
    }

    fn kind_of(trust: &Trust, status: Option<&SealedStatus>) -> Option<ErrorKind> {
        let expected = trust.expect(&"gw:7443".into(), None, Weaker::Nothing).expect("it makes sense");
        expected.judge(status).err().map(|error| error.kind())
    }

    #[test]
    fn what_is_not_sealed_with_a_suite_is_refused_whoever_is_trusted() {
        for trust in [Trust::anonymous(), Trust::pinned(Fingerprint::new([1; 32]))] {
            let asked_for = SealedStatus { suite: None, ..sealed(key(1)) };
            for status in [None, Some(&asked_for)] {
                assert_eq!(kind_of(&trust, status), Some(ErrorKind::NotProtected));
            }
        }
    }

    #[test]
    fn a_peer_that_does_not_show_the_pinned_key_is_refused() {
        let trust = Trust::pinned(Fingerprint::new([1; 32]));
        assert_eq!(kind_of(&trust, Some(&sealed(key(1)))), None);
        for peer in [key(2), PeerIdentity::Anonymous, PeerIdentity::Certificate] {
            assert_eq!(kind_of(&trust, Some(&sealed(peer))), Some(ErrorKind::NotAuthenticated));
        }
        let nobody = Trust::any_of([]);
        assert_eq!(kind_of(&nobody, Some(&sealed(key(1)))), Some(ErrorKind::NotAuthenticated));
    }

    #[test]
    fn a_new_key_is_not_written_down_before_the_paths_that_are_asked_for_have_led_to_it() {
        let scratch = std::env::temp_dir().join(format!("plait-paths-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&scratch);
        let peers = KnownPeers::in_file(scratch.join("known_peers"));
        let judged = |paths: usize| {
            let trust = Trust::known_peers(peers.clone());
            let mut expected =
                trust.expect(&"gw:7443".into(), None, Weaker::Nothing).expect("it makes sense");
            expected.require_paths = 2;
            expected.judge(Some(&SealedStatus { mixed_paths: [paths; 2], ..sealed(key(1)) })).expect("new");
            peers.find("gw:7443").expect("read")
        };
        assert_eq!(judged(1), None, "somebody may be in the middle of it");
        assert_eq!(judged(2).expect("written").paths, Some(2));
        std::fs::remove_dir_all(&scratch).expect("removed");
    }
}
