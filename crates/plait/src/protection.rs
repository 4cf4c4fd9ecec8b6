//! What protects the connections that we open.

use std::num::NonZeroU16;
use std::sync::Arc;

use ::plait_host::{Config, Fallback, Protect, ScrambleSettings, SealedSettings};

use crate::error::Error;
use crate::host::Remote;
use crate::identity::Identity;
use crate::trust::{Expected, Trust};

/// What protects a connection that we open. A [`Trust`] alone stands for a sealed one.
#[derive(Clone, Debug)]
pub struct Protection(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sealed { trust: Trust, identity: Option<Identity> },
    Scrambled,
    Plain { multipath_only: bool },
}

/// Which path the next bytes take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Scheduler {
    /// The one with the smallest round-trip time that has room.
    #[default]
    LowestRtt,
    /// One after the other.
    RoundRobin,
    /// All of them: each byte is sent on every path.
    Redundant,
    /// One after the other, and no path that is not trusted sees more than so many bytes in a row.
    Dispersed(NonZeroU16),
}

impl Protection {
    /// Every block is encrypted and authenticated, between us and the server that `trust` describes. The connection is so or
    /// it fails.
    #[must_use]
    pub fn sealed(trust: Trust) -> Self {
        Self(Kind::Sealed { trust, identity: None })
    }

    /// The same, and a server that asks for it is shown a key of ours: some take certain clients only.
    #[must_use]
    pub fn sealed_as(identity: &Identity, trust: Trust) -> Self {
        Self(Kind::Sealed { trust, identity: Some(identity.clone()) })
    }

    /// Data scrambling after Kato et al. This is obfuscation, not encryption: who sees one path can read it.
    #[must_use]
    pub fn scrambled() -> Self {
        Self(Kind::Scrambled)
    }

    /// No protection: Multipath TCP as the Linux kernel speaks it, or TCP where the peer does not. Everybody on the way can
    /// read and change what is sent.
    #[must_use]
    pub fn plain() -> Self {
        Self(Kind::Plain { multipath_only: false })
    }

    /// As [`Protection::plain`], and fails where the peer speaks TCP only.
    #[must_use]
    pub fn plain_multipath() -> Self {
        Self(Kind::Plain { multipath_only: true })
    }

    /// The settings of a connection to `remote`, and who has to be there.
    pub(crate) fn settings(
        &self,
        remote: &Remote,
        config: &Config,
    ) -> Result<(Config, Option<Expected>), Error> {
        let (protect, fallback, expected) = match &self.0 {
            Kind::Sealed { trust, identity } => {
                let expected = trust.expect(remote, identity.as_ref())?;
                let mut sealed = SealedSettings::opener(Arc::new(expected.settings.clone()));
                if !expected.takes_anybody() {
                    sealed.teps.retain(|tep| tep.proves_identity());
                }
                (Protect::Sealed(sealed), Fallback::Refuse, Some(expected))
            }
            Kind::Scrambled => (Protect::Scramble(ScrambleSettings::default()), Fallback::Refuse, None),
            Kind::Plain { multipath_only: true } => (Protect::Plain, Fallback::Refuse, None),
            Kind::Plain { multipath_only: false } => (Protect::Plain, Fallback::Allow, None),
        };
        Ok((Config { protect, fallback, ..config.clone() }, expected))
    }
}

impl From<Trust> for Protection {
    fn from(trust: Trust) -> Self {
        Self::sealed(trust)
    }
}

impl From<Scheduler> for ::plait_host::Scheduler {
    fn from(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::LowestRtt => Self::LowestRtt,
            Scheduler::RoundRobin => Self::RoundRobin,
            Scheduler::Redundant => Self::Redundant,
            Scheduler::Dispersed(max_exposure) => Self::Dispersed { max_exposure },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_handshake::{Fingerprint, Policy, Tep};

    fn sealed_with(trust: Trust) -> SealedSettings {
        let config = Config::default();
        let settings = Protection::from(trust).settings(&"gw:7443".into(), &config);
        match settings.expect("it makes sense").0.protect {
            Protect::Sealed(sealed) => sealed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_trust_makes_a_connection_that_has_to_be_sealed_by_what_proves_it() {
        let pinned = sealed_with(Trust::pinned(Fingerprint::new([1; 32])));
        assert_eq!((pinned.policy, &pinned.teps[..]), (Policy::Require, &[Tep::Tls13][..]));
        let anonymous = sealed_with(Trust::anonymous());
        assert_eq!((anonymous.policy, &anonymous.teps[..]), (Policy::Require, &Tep::ALL[..]));
    }
}
