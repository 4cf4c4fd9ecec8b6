//! Certificates and root certificates, in the format of PEM files.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use zeroize::Zeroizing;

/// A certificate chain, end entity first, with the private key, which is wiped on drop.
pub struct Certificate {
    /// The chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first certificate.
    pub key: Zeroizing<PrivateKeyDer<'static>>,
}

impl Certificate {
    /// Reads the chain from one PEM file and the key from another, which may be the same.
    ///
    /// # Errors
    /// [`PemError`]: a part is missing, or the key does not belong to the certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, PemError> {
        let chain = certificates(chain)?;
        let key = Zeroizing::new(PrivateKeyDer::from_pem_slice(key).map_err(|_| PemError::NoKey)?);
        let signer = any_supported_type(&key).map_err(|_| PemError::Key)?;
        match CertifiedKey::new(chain.clone(), signer).keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Self { chain, key })
            }
            Err(Error::InconsistentKeys(_)) => Err(PemError::OtherKey),
            Err(_) => Err(PemError::NoCertificate),
        }
    }

    /// The time in which the first certificate of the chain is valid; `None` if its dates make no sense.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        let verdict_at = |time: u64| {
            let (leaf, mut roots) = (self.chain.first()?, RootCertStore::empty());
            // Any root will do: the dates are judged before the issuer.
            roots.add(leaf.clone()).ok()?;
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
            let (name, time) = (ServerName::try_from("gw").ok()?, Duration::from_secs(time));
            let verifier = verifier.build().ok()?;
            verifier.verify_server_cert(leaf, &[], &name, &[], UnixTime::since_unix_epoch(time)).err()
        };
        let not_before = match verdict_at(0) {
            Some(Error::InvalidCertificate(CertificateError::NotValidYetContext { time: _, not_before })) => {
                not_before.as_secs()
            }
            // It is valid since 1970 or before.
            Some(_) => 0,
            None => return None,
        };
        match verdict_at(u64::MAX) {
            Some(Error::InvalidCertificate(CertificateError::ExpiredContext { time: _, not_after })) => {
                Some(Validity { not_before, not_after: not_after.as_secs() })
            }
            _ => None,
        }
    }
}

/// The time in which a certificate is valid (RFC 5280, section 4.1.2.5), in seconds since 1970-01-01 UTC. Both ends belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} in the chain)", self.chain.len())
    }
}

/// Reads the roots that a client trusts from a PEM file.
///
/// # Errors
/// [`PemError::NoCertificate`]: the file has no certificate that can be a root.
pub fn roots_from_pem(pem: &[u8]) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    // Bundles of operating systems contain unusable certificates. No chain leads to these.
    let (taken, _odd) = roots.add_parsable_certificates(certificates(pem)?);
    if taken == 0 { Err(PemError::NoCertificate) } else { Ok(roots) }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(PemError::NoCertificate)
}

/// The reason for which a PEM file cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PemError {
    /// No usable section `CERTIFICATE`.
    NoCertificate,
    /// No section with a private key.
    NoKey,
    /// A private key of a kind that cannot sign.
    Key,
    /// The private key of another certificate.
    OtherKey,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate => "no PEM section CERTIFICATE that can be used",
            Self::NoKey => "no PEM section with a private key",
            Self::Key => "a private key that cannot sign (RSA, ECDSA and Ed25519 can)",
            Self::OtherKey => "the private key is not the one of the certificate",
        })
    }
}

impl core::error::Error for PemError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: i32, to: i32) -> Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        Certificate::from_pem(made.pem().as_bytes(), key.serialize_pem().as_bytes()).expect("its own key")
    }

    #[test]
    fn the_dates_of_a_certificate_are_known() {
        let y2020 = 1_577_836_800;
        let y2021 = 1_609_459_200;
        let y2096 = 3_976_214_400;
        assert_eq!(made(2020, 2021).validity(), Some(Validity { not_before: y2020, not_after: y2021 }));
        assert_eq!(made(2020, 2096).validity(), Some(Validity { not_before: y2020, not_after: y2096 }));
        assert_eq!(made(1970, 2021).validity(), Some(Validity { not_before: 0, not_after: y2021 }));
        assert_eq!(made(1960, 2021).validity(), None, "no client accepts it");
    }
}
