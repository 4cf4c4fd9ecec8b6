//! The client's configuration.

use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, version};

use super::verify::{Accepted, RawKeyVerifier};
use super::{ALPN, KnownKeys, WallClock, provider};
use crate::error::HandshakeError;
use crate::identity::Identity;
use crate::settings::{OpenerSettings, ServerTrust};

pub(super) fn config(
    settings: &OpenerSettings,
    wall_clock: UnixTime,
) -> Result<ClientConfig, HandshakeError> {
    let provider = provider(&settings.suites)?;
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(WallClock(wall_clock)))
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous();
    let builder = match &settings.server {
        ServerTrust::Pinned(keys) => builder.with_custom_certificate_verifier(RawKeyVerifier::new(
            Accepted::Listed(keys.clone()),
            algorithms,
        )),
        ServerTrust::AcceptNew => {
            builder.with_custom_certificate_verifier(RawKeyVerifier::new(Accepted::Any, algorithms))
        }
        ServerTrust::Roots(roots) => {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider));
            builder.with_custom_certificate_verifier(verifier.build()?)
        }
    };
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = raw_certified_key(identity)?;
            builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.key_log = Arc::clone(&settings.key_log);
    Ok(config)
}

/// With a list of pinned keys all that get through are known.
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
