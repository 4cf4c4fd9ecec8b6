//! Raw public keys (RFC 7250), checked like the host keys of ssh.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::sync::Arc;
use subtle::{Choice, ConstantTimeEq};

use crate::error::{Found, HandshakeError};
use crate::fingerprint::Fingerprint;
use crate::identity::PublicKey;

/// Returns the raw key in the value that rustls calls a certificate, if it is one.
pub(super) fn raw_key(shown: &CertificateDer<'_>) -> Option<PublicKey> {
    PublicKey::from_spki(shown)
}

/// The accepted raw keys.
#[derive(Clone, Debug)]
pub(super) enum Accepted {
    Any,
    Listed(Vec<Fingerprint>),
    /// For servers: no client is asked. rustls still needs a verifier of raw keys if a client offers one.
    NotAsked,
}

impl Accepted {
    fn contains(&self, shown: &Fingerprint) -> bool {
        match self {
            Self::Any => true,
            Self::NotAsked => false,
            Self::Listed(known) => known
                .iter()
                .fold(Choice::from(0), |found, known| found | known.as_bytes().ct_eq(shown.as_bytes()))
                .into(),
        }
    }
}

/// The verifier of either side: a server's key for clients, a client's key for servers.
#[derive(Debug)]
pub(super) struct RawKeyVerifier {
    accepted: Accepted,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RawKeyVerifier {
    pub(super) fn new(accepted: Accepted, algorithms: WebPkiSupportedAlgorithms) -> Arc<Self> {
        Arc::new(Self { accepted, algorithms })
    }

    fn check(
        &self,
        shown: &CertificateDer<'_>,
        refusal: fn(Fingerprint) -> HandshakeError,
    ) -> Result<(), Error> {
        let Some(key) = raw_key(shown) else { return Err(found(HandshakeError::KeyType)) };
        let shown = key.fingerprint();
        if self.accepted.contains(&shown) { Ok(()) } else { Err(found(refusal(shown))) }
    }
}

/// The methods that rustls requires of the verifier on either side.
macro_rules! signatures_of_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.3 only".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// Wraps the error for rustls, which then tells the peer that the fault is its key.
fn found(error: HandshakeError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Found(error)))))
}

impl ServerCertVerifier for RawKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, |shown| HandshakeError::WrongServerKey { shown })?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}

impl ClientCertVerifier for RawKeyVerifier {
    fn offer_client_auth(&self) -> bool {
        match self.accepted {
            Accepted::Any | Accepted::Listed(_) => true,
            Accepted::NotAsked => false,
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, |shown| HandshakeError::UnknownClientKey { shown })?;
        Ok(ClientCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}
