//! The protection of connections that we open.

use ::plait_host::{Config, Fallback, Protect};

use plait_handshake::Fingerprint;

use crate::error::Error;
use crate::identity::Identity;
use crate::remote::Remote;
use crate::scrambling::Scrambling;
use crate::sealing::Sealing;
use crate::trust::{Expected, Trust};

/// The protection of a connection that we open. A [`Trust`] alone gives a sealed one; a [`Sealing`] has more settings of it, and a
/// [`Scrambling`] is a weaker protection.
#[derive(Clone, Debug)]
pub struct Protection(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sealed(Sealing),
    Scrambled(Scrambling),
    Plain(Plain),
}

/// The accepted protocols of a connection without protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plain {
    Any,
    Multipath,
    Tcp,
}

/// Explicit congestion notification (RFC 3168; RFC 9768 where the peer has it): routers mark packets where they would drop them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Ecn {
    /// Neither asked for nor agreed to.
    #[default]
    Off,
    /// Agreed to where the peer asks.
    Answer,
    /// Asked for, too. Some devices drop a first packet that asks; it is repeated a second later without.
    Ask,
}

impl Protection {
    /// Every block is encrypted and authenticated, between us and the server that `trust` describes. The connection is so or
    /// it fails.
    #[must_use]
    pub fn sealed(trust: Trust) -> Self {
        Sealing::new(trust).into()
    }

    /// The same, and a server that asks for it is shown a key of ours: some take certain clients only.
    #[must_use]
    pub fn sealed_as(identity: &Identity, trust: Trust) -> Self {
        Sealing::new(trust).identity(identity).into()
    }

    /// Data scrambling after Kato et al. This is obfuscation, not encryption: an eavesdropper on one path can read it.
    #[must_use]
    pub fn scrambled() -> Self {
        Scrambling::new().into()
    }

    /// No protection: Multipath TCP as the Linux kernel supports it, or TCP if the peer does not. Each host on the path can read and change
    /// the data.
    #[must_use]
    pub fn plain() -> Self {
        Self(Kind::Plain(Plain::Any))
    }

    /// As [`Protection::plain`], and fails where the peer speaks TCP only.
    #[must_use]
    pub fn plain_multipath() -> Self {
        Self(Kind::Plain(Plain::Multipath))
    }

    /// As [`Protection::plain`], and does not offer Multipath TCP: one path, plain TCP.
    #[must_use]
    pub fn plain_tcp() -> Self {
        Self(Kind::Plain(Plain::Tcp))
    }

    /// The same with datagrams beside the stream ([`Sealing::datagrams`]). Without sealing there are none, and nothing changes.
    #[must_use]
    pub fn datagrams(self) -> Self {
        match self.0 {
            Kind::Sealed(sealing) => sealing.datagrams().into(),
            Kind::Scrambled(_) | Kind::Plain(_) => self,
        }
    }

    /// The same for an unknown server that has one of these keys, as its DNS zone proves.
    pub(crate) fn published(self, keys: Vec<Fingerprint>) -> Self {
        match self.0 {
            Kind::Sealed(sealing) => Self(Kind::Sealed(sealing.published(keys))),
            Kind::Scrambled(_) | Kind::Plain(_) => self,
        }
    }

    /// The settings of a connection to `remote`, and the identity that is expected there.
    pub(crate) fn settings(
        &self,
        remote: &Remote,
        config: &Config,
    ) -> Result<(Config, Option<Expected>), Error> {
        match &self.0 {
            Kind::Sealed(sealing) => {
                let (config, expected) = sealing.settings(remote, config)?;
                Ok((config, Some(expected)))
            }
            Kind::Scrambled(scrambling) => Ok((scrambling.settings(config), None)),
            Kind::Plain(plain) => Ok((plain.settings(config), None)),
        }
    }
}

impl Plain {
    pub(crate) fn settings(self, config: &Config) -> Config {
        let (multipath, fallback) = match self {
            Self::Any => (true, Fallback::Allow),
            Self::Multipath => (true, Fallback::Refuse),
            Self::Tcp => (false, Fallback::Allow),
        };
        Config { protect: Protect::Plain, multipath, fallback, ..config.clone() }
    }
}

impl From<Sealing> for Protection {
    fn from(sealing: Sealing) -> Self {
        Self(Kind::Sealed(sealing))
    }
}

impl From<Scrambling> for Protection {
    fn from(scrambling: Scrambling) -> Self {
        Self(Kind::Scrambled(scrambling))
    }
}

impl From<Trust> for Protection {
    fn from(trust: Trust) -> Self {
        Self::sealed(trust)
    }
}

impl From<Ecn> for ::plait_host::Ecn {
    fn from(ecn: Ecn) -> Self {
        match ecn {
            Ecn::Off => Self::Off,
            Ecn::Answer => Self::Answer,
            Ecn::Ask => Self::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealing::Handshake;
    use ::plait_host::SealedSettings;
    use plait_handshake::{Fingerprint, Policy, Tep};

    fn settings(protection: impl Into<Protection>) -> Result<Config, Error> {
        Ok(protection.into().settings(&"gw:7443".into(), &Config::default())?.0)
    }

    fn sealed_with(protection: impl Into<Protection>) -> SealedSettings {
        match settings(protection).expect("it makes sense").protect {
            Protect::Sealed(sealed) => sealed,
            other => panic!("{other:?}"),
        }
    }

    fn pinned() -> Trust {
        Trust::pinned(Fingerprint::new([1; 32]))
    }

    #[test]
    fn a_trust_makes_a_connection_that_has_to_be_sealed_by_what_proves_it() {
        let pinned = sealed_with(pinned());
        assert_eq!((pinned.policy, &pinned.teps[..]), (Policy::Require, &[Tep::Tls13][..]));
        let anonymous = sealed_with(Trust::anonymous());
        assert_eq!((anonymous.policy, &anonymous.teps[..]), (Policy::Require, &Tep::ALL[..]));
    }

    #[test]
    fn a_handshake_that_proves_nothing_cannot_be_asked_for_where_something_is_to_be_proved() {
        let tcpcrypt = |trust| Sealing::new(trust).handshakes([Handshake::Tcpcrypt]);
        let refused = settings(tcpcrypt(pinned())).expect_err("nothing would be left");
        assert_eq!(refused.kind(), crate::ErrorKind::InvalidInput);
        let anonymous = sealed_with(tcpcrypt(Trust::anonymous()));
        assert!(!anonymous.teps.contains(&Tep::Tls13) && anonymous.teps.len() == 2, "{:?}", anonymous.teps);
    }

    #[test]
    fn what_is_weaker_has_to_be_asked_for_by_name() {
        for (sealing, policy, fallback) in [
            (Sealing::new(pinned()), Policy::Require, Fallback::Refuse),
            (Sealing::new(pinned()).or_plain_multipath(), Policy::Prefer, Fallback::Refuse),
            (Sealing::new(pinned()).or_plain(), Policy::Prefer, Fallback::Allow),
        ] {
            assert_eq!(settings(sealing.clone()).expect("it makes sense").fallback, fallback);
            assert_eq!(sealed_with(sealing).policy, policy);
        }
        let scrambled = settings(Protection::scrambled()).expect("it makes sense");
        assert_eq!(scrambled.fallback, Fallback::Refuse);
    }
}
