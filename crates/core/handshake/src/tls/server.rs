//! The server's configuration, which depends on the client's abilities.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::UnixTime;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, CertificateType, ClientHello, NoServerSessionStorage,
    StoresServerSessions,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{KeyLog, ServerConfig, version};

use super::client::raw_certified_key;
use super::verify::{Accepted, RawKeyVerifier};
use super::{ALPN, KnownKeys, WallClock, provider};
use crate::error::HandshakeError;
use crate::settings::{ClientPolicy, ListenerSettings};
use plait_protect::sealed::Suite;

/// The parts of a configuration, which is created when the ClientHello has arrived.
///
/// A verifier that requires raw keys refuses clients without one, and a server that shows raw keys refuses clients that require
/// certificates. Therefore the configuration is chosen per client, by the certificate types that it offers.
pub(super) struct ServerConfigs {
    provider: Arc<CryptoProvider>,
    settings: ListenerSettings,
    wall_clock: UnixTime,
    key_log: Arc<dyn KeyLog>,
}

impl ServerConfigs {
    pub(super) fn new(
        settings: &ListenerSettings,
        wall_clock: UnixTime,
        key_log: Arc<dyn KeyLog>,
    ) -> Result<Self, HandshakeError> {
        if settings.identity.is_none() && settings.certificate.is_none() {
            return Err(HandshakeError::Settings("a listener needs a key or a certificate"));
        }
        let provider = provider(&settings.suites, settings.key_exchanges)?;
        Ok(Self { provider, settings: settings.clone(), wall_clock, key_log })
    }

    /// Returns the configuration for this client, which looks for its session in `store`.
    pub(super) fn choose(
        &self,
        hello: &ClientHello<'_>,
        store: Option<Arc<dyn StoresServerSessions>>,
    ) -> Result<Arc<ServerConfig>, HandshakeError> {
        let offers_raw = |types: Option<&[CertificateType]>| {
            types.is_some_and(|types| types.contains(&CertificateType::RawPublicKey))
        };
        let takes_raw_key = offers_raw(hello.server_cert_types());
        let has_raw_key = offers_raw(hello.client_cert_types());
        let builder = ServerConfig::builder_with_details(
            Arc::clone(&self.provider),
            Arc::new(WallClock(self.wall_clock)),
        )
        .with_protocol_versions(&[&version::TLS13])?;
        let algorithms = self.provider.signature_verification_algorithms;
        let accepted = match &self.settings.clients {
            ClientPolicy::Authorised(keys) => Some(Accepted::Listed(keys.clone())),
            ClientPolicy::AskForKey if has_raw_key => Some(Accepted::Any),
            ClientPolicy::Anonymous if has_raw_key => Some(Accepted::NotAsked),
            ClientPolicy::AskForKey | ClientPolicy::Anonymous => None,
        };
        let builder = match accepted {
            Some(accepted) => builder.with_client_cert_verifier(RawKeyVerifier::new(accepted, algorithms)),
            None => builder.with_no_client_auth(),
        };
        let mut config = match (&self.settings.identity, &self.settings.certificate) {
            (Some(identity), _) if takes_raw_key => {
                let key = raw_certified_key(identity)?;
                builder.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)))
            }
            (_, Some(certificate)) => {
                let key = any_supported_type(&certificate.key)?;
                let key = CertifiedKey::new(certificate.chain.clone(), key);
                builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
            (Some(_), None) | (None, None) => return Err(HandshakeError::IdentityKind),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        // One ticket: a returning client gets the next one.
        config.send_tls13_tickets = usize::from(store.is_some());
        config.session_storage = store.unwrap_or_else(|| Arc::new(NoServerSessionStorage {}));
        config.ignore_client_order = Suite::acceptor_decides(&self.settings.suites);
        config.max_early_data_size = 0;
        config.key_log = Arc::clone(&self.key_log);
        Ok(Arc::new(config))
    }
}

/// With a list of authorised keys, all accepted keys are known.
pub(super) fn known_keys(settings: &ListenerSettings) -> KnownKeys {
    match settings.clients {
        ClientPolicy::Authorised(_) => KnownKeys::All,
        ClientPolicy::AskForKey | ClientPolicy::Anonymous => KnownKeys::None,
    }
}
