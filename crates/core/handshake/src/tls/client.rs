//! The client's configuration.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    AlwaysResolvesClientRawPublicKeys, ClientSessionStore, ResolvesClientCert, Resumption, Tls12Resumption,
    WebPkiServerVerifier,
};
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, KeyLog, SignatureScheme, version};

use super::verify::{Accepted, RawKeyVerifier};
use super::{ALPN, KnownKeys, WallClock, provider};
use crate::error::HandshakeError;
use crate::identity::Identity;
use crate::settings::{OpenerSettings, ServerTrust};
use crate::tickets::Credentials;

/// Returns the verifier of the server, and our identity.
pub(super) fn credentials(settings: &OpenerSettings) -> Result<Credentials, HandshakeError> {
    let provider = provider(&settings.suites, settings.key_exchanges)?;
    let algorithms = provider.signature_verification_algorithms;
    let verifier: Arc<dyn ServerCertVerifier> = match &settings.server {
        ServerTrust::Pinned(keys) => RawKeyVerifier::new(Accepted::Listed(keys.clone()), algorithms),
        ServerTrust::AcceptNew => RawKeyVerifier::new(Accepted::Any, algorithms),
        ServerTrust::Roots(roots) => {
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider).build()?
        }
    };
    let ours: Arc<dyn ResolvesClientCert> = match &settings.identity {
        None => Arc::new(NoIdentity),
        Some(identity) => Arc::new(AlwaysResolvesClientRawPublicKeys::new(raw_certified_key(identity)?)),
    };
    Ok(Credentials { verifier, ours })
}

/// Returns the configuration for one handshake, which looks for its ticket in `store`.
pub(super) fn config(
    settings: &OpenerSettings,
    credentials: &Credentials,
    store: Option<Arc<dyn ClientSessionStore>>,
    (wall_clock, key_log): (UnixTime, Arc<dyn KeyLog>),
) -> Result<ClientConfig, HandshakeError> {
    let provider = provider(&settings.suites, settings.key_exchanges)?;
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(WallClock(wall_clock)))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&credentials.verifier))
        .with_client_cert_resolver(Arc::clone(&credentials.ours));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_early_data = false;
    // The name of the server crosses the path in clear: it is sent only if a certificate for it is required.
    config.enable_sni = settings.server.needs_name();
    config.resumption = match store {
        Some(store) => Resumption::store(store).tls12_resumption(Tls12Resumption::Disabled),
        None => Resumption::disabled(),
    };
    config.key_log = key_log;
    Ok(config)
}

/// A client without an identity.
#[derive(Debug)]
struct NoIdentity;

impl ResolvesClientCert for NoIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// With a list of pinned keys, all accepted keys are known.
pub(super) fn known_keys(settings: &OpenerSettings) -> KnownKeys {
    match settings.server {
        ServerTrust::Pinned(_) => KnownKeys::All,
        ServerTrust::AcceptNew | ServerTrust::Roots(_) => KnownKeys::None,
    }
}

/// An identity in the form in which TLS shows raw keys: the SubjectPublicKeyInfo in the place of a certificate.
pub(super) fn raw_certified_key(identity: &Identity) -> Result<Arc<CertifiedKey>, HandshakeError> {
    let key = any_eddsa_type(&identity.private_key())?;
    let spki = CertificateDer::from(identity.public_key().spki().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![spki], key)))
}
