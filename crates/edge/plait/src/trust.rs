//! The expected server.

use std::sync::Arc;

use ::plait_host::{PeerIdentity, SealedStatus};
use plait_handshake::{Fingerprint, OpenerSettings, PemError, ServerName, ServerTrust, roots_from_pem};
use plait_keys::{KnownPeers, NameBasis, Shown};

use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::names::Names;
use crate::networks::Devices;
use crate::remote::Remote;
use crate::sealing::Weaker;

/// How the identity of a server that we connect to is verified.
///
/// Each trust excludes the handshakes that cannot prove it. Only with [`Trust::anonymous`] may a peer use tcpcrypt (RFC 8548), which proves
/// no identity.
#[derive(Clone, Debug)]
pub struct Trust(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Pinned(Vec<Fingerprint>),
    Authorities {
        roots: ServerTrust,
        name: Option<String>,
    },
    Known {
        peers: KnownPeers,
        first_contact: u8,
    },
    /// As `Known`, for a server with one of these keys, as its DNS zone proves.
    Published {
        peers: KnownPeers,
        keys: Vec<Fingerprint>,
    },
    Anonymous,
}

/// Number of disjoint paths that must lead to a server at its first contact, unless the caller asks for less by name.
const FIRST_CONTACT_PATHS: u8 = 2;

/// The requirements of a trust for one server.
pub(crate) struct Expected {
    pub(crate) settings: OpenerSettings,
    demand: Demand,
    weaker: Weaker,
    /// Number of disjoint paths that must be in the keys before the connection opens.
    pub(crate) require_paths: u8,
    /// Whether so many because the server is new.
    is_first_contact: bool,
    /// Whether nothing is known about the key of the server.
    is_new: bool,
}

enum Demand {
    Pinned(Vec<Fingerprint>),
    Certificate,
    Known { authority: String, peers: KnownPeers },
    Published { authority: String, peers: KnownPeers, keys: Vec<Fingerprint> },
    Nothing,
}

impl Trust {
    /// The server has this key.
    #[must_use]
    pub fn pinned(key: Fingerprint) -> Self {
        Self::any_of([key])
    }

    /// The server has one of these keys: for example an old key and its successor. With no key, no server is accepted.
    #[must_use]
    pub fn any_of(keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Kind::Pinned(keys.into_iter().collect()))
    }

    /// The server shows a certificate for its name that leads to one of these roots (PEM). The name is the name in the call that connects.
    ///
    /// # Errors
    /// `pem` has no certificate, or an invalid one.
    pub fn authorities(pem: &[u8]) -> Result<Self, PemError> {
        let roots = ServerTrust::Roots(Arc::new(roots_from_pem(pem)?));
        Ok(Self(Kind::Authorities { roots, name: None }))
    }

    /// The same as [`Trust::authorities`], with this name in the certificate instead of the name in the call that connects.
    ///
    /// # Errors
    /// As [`Trust::authorities`].
    pub fn authorities_for(server: impl Into<String>, pem: &[u8]) -> Result<Self, PemError> {
        let roots = ServerTrust::Roots(Arc::new(roots_from_pem(pem)?));
        Ok(Self(Kind::Authorities { roots, name: Some(server.into()) }))
    }

    /// The server has the key, or one of the keys, that this file lists for it. A server that is not in the file is trusted if at least two disjoint paths lead
    /// to the key holder; the key and the number of paths are then written to the file. An attacker that intercepts one of the paths is
    /// detected before a byte is sent, and the error names the path. The name of such a server is looked up over each path
    /// ([`Host::look_up`](crate::Host::look_up)), and several paths must return the same addresses. An attacker that intercepts all paths
    /// is trusted. Devices that share a network ([`Host::shared_networks`](crate::Host::shared_networks)) are one path. A host with one path
    /// cannot connect to a new server.
    ///
    /// If the host has trust anchors (feature `dnssec`, `HostBuilder::dnssec`) and the DNS zone of a new server publishes its keys, the server
    /// must have one of them. One path is then enough, and the file says that the key rests on DNSSEC ([`NameBasis::Dnssec`]).
    #[must_use]
    pub fn known_peers(peers: KnownPeers) -> Self {
        Self(Kind::Known { peers, first_contact: FIRST_CONTACT_PATHS })
    }

    /// The same as [`Trust::known_peers`], but one path is enough for a server that is not in the file. An attacker that intercepts this
    /// first connection stays trusted.
    #[must_use]
    pub fn known_peers_by_one_path(peers: KnownPeers) -> Self {
        Self(Kind::Known { peers, first_contact: 1 })
    }

    /// Any server: the connection is encrypted and an eavesdropper cannot read it, but a man in the middle of all paths is not detected.
    /// [`Stream::peer_identity`](crate::Stream::peer_identity) returns the identity that the handshake found.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Kind::Anonymous)
    }

    /// The same for an unknown server that has one of these keys, as its DNS zone proves.
    pub(crate) fn published(self, keys: Vec<Fingerprint>) -> Self {
        match self.0 {
            Kind::Known { peers, first_contact: _ } => Self(Kind::Published { peers, keys }),
            kind
            @ (Kind::Pinned(_) | Kind::Authorities { .. } | Kind::Published { .. } | Kind::Anonymous) => {
                Self(kind)
            }
        }
    }

    pub(crate) fn expect(
        &self,
        remote: &Remote,
        identity: Option<&Identity>,
        weaker: Weaker,
    ) -> Result<Expected, Error> {
        let host = match &self.0 {
            Kind::Authorities { name: Some(name), .. } => name,
            Kind::Pinned(_)
            | Kind::Authorities { .. }
            | Kind::Known { .. }
            | Kind::Published { .. }
            | Kind::Anonymous => remote.host(),
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, format!("{host} is not a name a server can have"))
        })?;
        let (mut first_contact, mut is_new) = (0, false);
        let (server, demand) = match &self.0 {
            Kind::Pinned(keys) => (ServerTrust::Pinned(keys.clone()), Demand::Pinned(keys.clone())),
            Kind::Authorities { roots, .. } => (roots.clone(), Demand::Certificate),
            Kind::Known { peers, first_contact: paths } => {
                let authority = remote.authority();
                let server = match known_keys(peers, &authority)? {
                    Some(keys) => ServerTrust::Pinned(keys),
                    None => {
                        (first_contact, is_new) = (*paths, true);
                        ServerTrust::AcceptNew
                    }
                };
                (server, Demand::Known { authority, peers: peers.clone() })
            }
            Kind::Published { peers, keys } => {
                let authority = remote.authority();
                let peers = peers.clone();
                match known_keys(&peers, &authority)? {
                    // Another connection has met the server since. Its key need not be a published one, so it is not pinned as such.
                    Some(keys) => (ServerTrust::Pinned(keys), Demand::Known { authority, peers }),
                    None => {
                        let server = ServerTrust::Pinned(keys.clone());
                        (server, Demand::Published { authority, peers, keys: keys.clone() })
                    }
                }
            }
            Kind::Anonymous => (ServerTrust::AcceptNew, Demand::Nothing),
        };
        let mut settings = OpenerSettings::new(name, server);
        settings.identity = identity.map(|identity| identity.0.clone());
        let is_first_contact = first_contact > 1;
        Ok(Expected { settings, demand, weaker, require_paths: first_contact, is_first_contact, is_new })
    }
}

/// The keys of a server in the file, if it has any.
fn known_keys(peers: &KnownPeers, authority: &str) -> Result<Option<Vec<Fingerprint>>, Error> {
    let keys: Vec<_> = peers.keys_of(authority)?.into_iter().map(|known| known.fingerprint).collect();
    Ok(Some(keys).filter(|keys| !keys.is_empty()))
}

impl Expected {
    /// Whether a server that proves no identity is accepted.
    pub(crate) fn takes_any_key(&self) -> bool {
        match self.demand {
            Demand::Nothing => true,
            Demand::Pinned(_) | Demand::Certificate | Demand::Known { .. } | Demand::Published { .. } => {
                false
            }
        }
    }

    /// Whether nothing is known about the key of the server.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the host has as many disjoint paths as are required.
    pub(crate) fn judge_paths(&self, devices: &Devices) -> Result<(), Error> {
        let required = usize::from(self.require_paths);
        if required <= devices.paths().max(1) {
            return Ok(());
        }
        let names: Vec<&str> = devices.names().map(String::as_str).collect();
        let words = format!(
            "{required} paths have to give a share to the keys, and this host has {}: {}{}",
            devices.paths(),
            names.join(", "),
            devices.remarks()
        );
        Err(self.explain(Error::new(ErrorKind::PathsMissing, words), false))
    }

    /// Whether the name of the server is looked up over each path, because the server is new and several paths must lead to it.
    pub(crate) fn asks_each_path(&self) -> bool {
        self.is_first_contact
    }

    /// Whether as many paths have named the addresses as are required.
    pub(crate) fn judge_names(&self, names: &Names) -> Result<(), Error> {
        let doubt = if self.require_paths <= names.paths() { None } else { names.doubt() };
        let Some(doubt) = doubt else { return Ok(()) };
        Err(Error::new(ErrorKind::NotProtected, doubt).with_fix(
            "give the server's key (Trust::pinned), or its addresses (Remote::at): it is not known yet, and one path alone says where it is",
        ))
    }

    /// Returns the fix for a failed connection. The connection may have been sealed and have `waited` for the required paths: the peer
    /// waits for the same time, and either may give up first.
    pub(crate) fn explain(&self, error: Error, waited: bool) -> Error {
        let error = match error.kind() {
            ErrorKind::Reset if waited => error.for_want_of_paths(),
            _ => error,
        };
        if let (Demand::Published { authority, .. }, ErrorKind::NotAuthenticated) =
            (&self.demand, error.kind())
        {
            return error.with_fix(&format!(
                "ask the operator of {authority}: it does not show the key that its DNS zone publishes (TLSA, proved by DNSSEC), so either the \
                 records are out of date or an attacker on the path intercepts you"
            ));
        }
        let is_unproved = matches!(error.kind(), ErrorKind::NotProtected | ErrorKind::PathsMissing);
        if !self.is_first_contact || !is_unproved {
            return error;
        }
        error.with_fix(
            "give the server's key (Trust::pinned): it is not known yet, and is believed only if two paths lead to its holder; \
             what one path alone shows is believed by Trust::known_peers_by_one_path",
        )
    }

    /// Judges the peer of an open connection, before its owner gets it. Except for a new server, the handshake has done so already; the
    /// result is checked again here, before data flows. `names` is the basis of the server's addresses.
    pub(crate) fn judge(&self, sealed: Option<&SealedStatus>, names: NameBasis) -> Result<(), Error> {
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
                let mixed = u8::try_from(sent.min(received)).unwrap_or(u8::MAX);
                // Without several required paths, others may have joined an address that the server announced.
                let paths = if self.require_paths > 1 { mixed } else { 1 };
                if paths < self.require_paths {
                    let words = "fewer paths than required have given a share to the keys";
                    return Err(Error::new(ErrorKind::PathsMissing, words));
                }
                peers.pin_shown(authority, Shown { key: shown, paths, names })?;
                Ok(())
            }
            (Demand::Published { authority, peers, keys }, Some(shown)) if keys.contains(&shown) => {
                peers.pin_shown(authority, Shown { key: shown, paths: 1, names: NameBasis::Dnssec })?;
                Ok(())
            }
            (
                Demand::Pinned(_) | Demand::Certificate | Demand::Known { .. } | Demand::Published { .. },
                _,
            ) => {
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
        expected.judge(status, NameBasis::Given).err().map(|error| error.kind())
    }

    #[test]
    fn what_is_not_sealed_with_a_suite_is_refused_with_any_trust() {
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

    /// A file of known servers of its own, without any yet.
    fn known_peers(name: &str) -> (std::path::PathBuf, KnownPeers) {
        let scratch = std::env::temp_dir().join(format!("plait-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&scratch);
        (scratch.clone(), KnownPeers::in_file(scratch.join("known_peers")))
    }

    fn expected(trust: &Trust) -> Expected {
        trust.expect(&"gw:7443".into(), None, Weaker::Nothing).expect("it makes sense")
    }

    #[test]
    fn a_new_key_is_written_down_when_two_paths_have_led_to_it_unless_one_is_asked_for_by_name() {
        let (scratch, peers) = known_peers("paths");
        let judged = |trust: Trust, paths: usize| {
            let status = SealedStatus { mixed_paths: [paths; 2], ..sealed(key(1)) };
            let judged =
                expected(&trust).judge(Some(&status), NameBasis::Agreed).map_err(|error| error.kind());
            (judged, peers.find("gw:7443").expect("read").and_then(|known| known.paths))
        };
        let by_two = || Trust::known_peers(peers.clone());
        assert_eq!(
            judged(by_two(), 1),
            (Err(ErrorKind::PathsMissing), None),
            "an attacker may be in the middle"
        );
        assert_eq!(judged(by_two(), 2), (Ok(()), Some(2)));
        // It is known from now on: one path is enough to see that it is the same.
        assert_eq!(expected(&by_two()).require_paths, 0);
        assert_eq!(judged(by_two(), 1), (Ok(()), Some(2)));
        std::fs::remove_dir_all(&scratch).expect("removed");
        // Without required paths, a joined address may have been announced by the host that answered.
        assert_eq!(judged(Trust::known_peers_by_one_path(peers.clone()), 2), (Ok(()), Some(1)));
        std::fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn a_published_key_is_required_in_the_handshake_and_pinned_over_one_path() {
        let (scratch, peers) = known_peers("published");
        let new = Trust::known_peers(peers.clone());
        assert!(expected(&new).is_new(), "so its zone is asked");
        let published = expected(&new.published(vec![Fingerprint::new([1; 32])]));
        assert!(
            matches!(&published.settings.server, ServerTrust::Pinned(keys) if *keys == [Fingerprint::new([1; 32])])
        );
        assert_eq!((published.require_paths, published.is_new()), (0, false));
        let judged =
            |peer| published.judge(Some(&sealed(peer)), NameBasis::OnePath).map_err(|error| error.kind());
        assert_eq!(judged(key(2)), Err(ErrorKind::NotAuthenticated));
        assert_eq!(peers.find("gw:7443").expect("read"), None);
        assert_eq!(judged(key(1)), Ok(()));
        let known = peers.find("gw:7443").expect("read").expect("written");
        assert_eq!((known.paths, known.names), (Some(1), Some(NameBasis::Dnssec)));
        std::fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn a_key_that_another_connection_has_pinned_is_not_said_to_be_published() {
        let (scratch, peers) = known_peers("raced");
        let seen = Shown { key: Fingerprint::new([2; 32]), paths: 1, names: NameBasis::OnePath };
        peers.pin_shown("gw:7443", seen).expect("written");
        let published =
            expected(&Trust::known_peers(peers.clone()).published(vec![Fingerprint::new([1; 32])]));
        // The server is forgotten while the connection opens, so that it is pinned once more.
        peers.forget("gw:7443").expect("written");
        published.judge(Some(&sealed(key(2))), NameBasis::OnePath).expect("the key that was known");
        let known = peers.find("gw:7443").expect("read").expect("written");
        assert_eq!(known.names, Some(NameBasis::OnePath), "DNSSEC has proved another key");
        std::fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn a_server_without_its_published_key_is_refused_with_the_reason() {
        let (_, peers) = known_peers("unpublished");
        let published =
            expected(&Trust::known_peers_by_one_path(peers).published(vec![Fingerprint::new([1; 32])]));
        let error = Error::new(ErrorKind::NotAuthenticated, "the server shows another key");
        let text = published.explain(error, false).to_string();
        assert!(text.contains("gw:7443") && text.contains("its DNS zone publishes"), "{text}");
    }

    #[test]
    fn a_peer_that_gives_up_first_while_paths_are_missing_leaves_the_same_error() {
        let (_, peers) = known_peers("first");
        let new = expected(&Trust::known_peers(peers));
        let reset = || Error::new(ErrorKind::Reset, "the peer closed the connection at once");
        let error = new.explain(reset(), true);
        assert_eq!(error.kind(), ErrorKind::PathsMissing);
        let text = error.to_string();
        assert!(text.contains("a share to the keys") && text.contains("known_peers_by_one_path"), "{text}");
        assert_eq!(new.explain(reset(), false).kind(), ErrorKind::Reset, "for another reason");
    }

    #[test]
    fn a_host_with_one_path_is_told_at_once_that_a_new_server_is_not_trusted() {
        let (_, peers) = known_peers("alone");
        let new = expected(&Trust::known_peers(peers.clone()));
        let error = new.judge_paths(&Devices::apart(&["eth0"])).expect_err("one path");
        assert_eq!(error.kind(), ErrorKind::PathsMissing);
        let text = error.to_string();
        assert!(text.contains("this host has 1: eth0") && text.contains("known_peers_by_one_path"), "{text}");
        new.judge_paths(&Devices::apart(&["eth0", "wlan0"])).expect("two");
        let one = new.judge_paths(&Devices::behind_one_gateway(&["eth0", "wlan0"])).expect_err("one network");
        let text = one.to_string();
        for part in [
            "this host has 1: eth0, wlan0",
            "eth0 and wlan0 have the gateway 192.168.1.1 (02:00:00:00:00:01)",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        new.judge_paths(&Devices::behind_one_gateway(&["eth0", "wlan0", "wwan0"])).expect("two networks");
        expected(&Trust::known_peers_by_one_path(peers))
            .judge_paths(&Devices::apart(&["eth0"]))
            .expect("asked for");
        expected(&Trust::anonymous()).judge_paths(&Devices::apart(&[])).expect("nothing is required");
    }
}
