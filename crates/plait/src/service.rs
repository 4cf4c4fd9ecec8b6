//! What protects the connections that we accept.

use std::sync::Arc;

use ::plait_host::{Config, Fallback, Protect, ScrambleSettings, SealedSettings};
use plait_handshake::{Certificate, ClientPolicy, Fingerprint, ListenerSettings};

use crate::identity::Identity;

/// What we show to those who connect, and who may.
#[derive(Clone, Debug)]
pub struct Service(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sealed { identity: Identity, certificate: Option<Arc<Certificate>>, clients: Clients },
    Scrambled,
    Plain,
}

/// Who may connect to a sealed service.
#[derive(Clone, Debug)]
pub struct Clients(Policy);

#[derive(Clone, Debug)]
enum Policy {
    Anyone,
    Known(Vec<Fingerprint>),
}

impl Service {
    /// Sealed connections only, under this key of ours, from these clients.
    #[must_use]
    pub fn sealed(identity: &Identity, clients: Clients) -> Self {
        Self(Kind::Sealed { identity: identity.clone(), certificate: None, clients })
    }

    /// The same, and clients that go by authorities are shown a certificate in place of the key.
    #[must_use]
    pub fn certified(identity: &Identity, certificate: Certificate, clients: Clients) -> Self {
        let certificate = Some(Arc::new(certificate));
        Self(Kind::Sealed { identity: identity.clone(), certificate, clients })
    }

    /// Scrambled connections only: obfuscation, not encryption.
    #[must_use]
    pub fn scrambled() -> Self {
        Self(Kind::Scrambled)
    }

    /// Plain connections: Multipath TCP as the Linux kernel speaks it, or TCP. Everybody on the way can read and change what
    /// is sent.
    #[must_use]
    pub fn plain() -> Self {
        Self(Kind::Plain)
    }

    pub(crate) fn settings(&self, config: &Config) -> Config {
        let (protect, fallback) = match &self.0 {
            Kind::Sealed { identity, certificate, clients } => {
                let settings = ListenerSettings {
                    certificate: certificate.clone(),
                    clients: match &clients.0 {
                        Policy::Anyone => ClientPolicy::AskForKey,
                        Policy::Known(keys) => ClientPolicy::Authorised(keys.clone()),
                    },
                    ..ListenerSettings::new(identity.0.clone())
                };
                (Protect::Sealed(SealedSettings::listener(Arc::new(settings))), Fallback::Refuse)
            }
            Kind::Scrambled => (Protect::Scramble(ScrambleSettings::default()), Fallback::Refuse),
            Kind::Plain => (Protect::Plain, Fallback::Allow),
        };
        Config { protect, fallback, ..config.clone() }
    }
}

impl Clients {
    /// Anyone. Who has a key shows it, and [`Stream::peer_identity`](crate::Stream::peer_identity) tells.
    #[must_use]
    pub fn anyone() -> Self {
        Self(Policy::Anyone)
    }

    /// Those with one of these keys, which they prove before anything else. With none of them nobody comes in.
    #[must_use]
    pub fn known(keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Policy::Known(keys.into_iter().collect()))
    }
}
