//! Certificates and root certificates, in the format of PEM files.

use core::fmt;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};
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
