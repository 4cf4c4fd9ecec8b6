//! The identity of a host: an Ed25519 key pair.

use core::fmt;
use core::str::FromStr;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64ct::{Base64, Base64Unpadded, Encoding};
use plait_base::Random;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use crate::fingerprint::Fingerprint;

/// A private key of this host, with its public key. Wiped on drop.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

/// PKCS#8 (RFC 8410, section 7) of an Ed25519 key up to the 32 bytes of its seed.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

impl Identity {
    /// Generates an identity from 32 bytes of `random`, which must be the source for secrets.
    pub fn generate(random: &mut dyn Random) -> Self {
        let mut pkcs8 = Zeroizing::new(vec![0; PKCS8_PREFIX.len() + 32]);
        let (prefix, seed) = pkcs8.split_at_mut(PKCS8_PREFIX.len());
        prefix.copy_from_slice(&PKCS8_PREFIX);
        random.fill(seed);
        Self::from_pkcs8(&pkcs8).expect("any 32 bytes are an Ed25519 seed")
    }

    /// Reads a PKCS#8 document.
    ///
    /// # Errors
    /// [`IdentityError::Key`] if it is not an Ed25519 key, or if its two halves do not match.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, IdentityError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| IdentityError::Key)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| IdentityError::Key)?;
        Ok(Self { pkcs8: Zeroizing::new(pkcs8.to_vec()), public: PublicKey(public) })
    }

    /// Reads a PEM file with one `PRIVATE KEY`.
    ///
    /// # Errors
    /// [`IdentityError`] if there is none in it, or if it is not Ed25519.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| IdentityError::Pem)?;
        // rustls does not wipe the bytes that it has read.
        let key = Zeroizing::new(key);
        Self::from_pkcs8(key.secret_pkcs8_der())
    }

    /// Returns the PKCS#8 document, for a file that only its owner can read.
    pub fn to_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        self.pkcs8.clone()
    }

    /// The same as PEM.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(Base64::encode_string(&self.pkcs8));
        let mut pem = Zeroizing::new(String::with_capacity(body.len() + 64));
        pem.push_str("-----BEGIN PRIVATE KEY-----\n");
        let mut rest = body.as_str();
        while rest.len() > 64 {
            let (line, behind) = rest.split_at(64);
            pem.push_str(line);
            pem.push('\n');
            rest = behind;
        }
        pem.push_str(rest);
        pem.push_str("\n-----END PRIVATE KEY-----\n");
        pem
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns the key for TLS, borrowed: a copy would stay in memory unwiped.
    pub(crate) fn private_key(&self) -> PrivatePkcs8KeyDer<'_> {
        PrivatePkcs8KeyDer::from(&self.pkcs8[..])
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public.fingerprint())
    }
}

/// The reason for which a file is not an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityError {
    /// No PEM section `PRIVATE KEY`.
    Pem,
    /// Not a PKCS#8 document with an Ed25519 key.
    Key,
    /// Not a line `plait-ed25519 BASE64`.
    PublicKeyText,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pem => "no PEM section PRIVATE KEY",
            Self::Key => "not an Ed25519 key in PKCS#8",
            Self::PublicKeyText => "a public key is plait-ed25519 and 43 characters of base64",
        })
    }
}

impl core::error::Error for IdentityError {}

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// SubjectPublicKeyInfo (RFC 8410, section 4) of an Ed25519 key up to its 32 bytes.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The start of a public key's line.
const KEY_TYPE: &str = "plait-ed25519";

impl PublicKey {
    /// The key with these bytes (RFC 8032, section 5.1.5).
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.spki()).as_ref());
        Fingerprint::new(hash)
    }

    /// Its SubjectPublicKeyInfo, which TLS sends as a raw public key (RFC 7250).
    pub fn spki(&self) -> [u8; 44] {
        let mut spki = [0; 44];
        spki[..12].copy_from_slice(&SPKI_PREFIX);
        spki[12..].copy_from_slice(&self.0);
        spki
    }

    /// Reads a SubjectPublicKeyInfo; `None` if it is not of an Ed25519 key.
    pub fn from_spki(spki: &[u8]) -> Option<Self> {
        spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }
}

impl fmt::Display for PublicKey {
    /// `plait-ed25519 BASE64`, as in files of known and authorised keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_TYPE} {}", Base64Unpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = IdentityError;

    /// Reads `plait-ed25519 BASE64`; a comment may follow.
    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some(KEY_TYPE) {
            return Err(IdentityError::PublicKeyText);
        }
        let bytes = words.next().and_then(|text| Base64Unpadded::decode_vec(text).ok());
        let key = bytes.and_then(|bytes| bytes.try_into().ok());
        key.map(Self).ok_or(IdentityError::PublicKeyText)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::SeededRandom;

    use super::*;

    #[test]
    fn an_identity_survives_its_file() {
        let identity = Identity::generate(&mut SeededRandom::from_number(1));
        let other = Identity::generate(&mut SeededRandom::from_number(2));
        assert_ne!(identity.public_key(), other.public_key());
        for read in
            [Identity::from_pkcs8(&identity.to_pkcs8()), Identity::from_pem(identity.to_pem().as_bytes())]
        {
            assert_eq!(read.expect("own output").public_key(), identity.public_key());
        }
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn the_public_key_is_the_one_of_rfc_8032() {
        let mut pkcs8 = PKCS8_PREFIX.to_vec();
        pkcs8.extend_from_slice(&hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"));
        let identity = Identity::from_pkcs8(&pkcs8).expect("a key");
        let known = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(identity.public_key().as_bytes(), &known[..]);
    }

    #[test]
    fn a_public_key_survives_its_line_and_its_der() {
        let key = Identity::generate(&mut SeededRandom::from_number(3)).public_key();
        assert_eq!(format!("{key} root@gw").parse(), Ok(key));
        assert_eq!(PublicKey::from_spki(&key.spki()), Some(key));
        assert_eq!(PublicKey::from_spki(&key.spki()[..43]), None);
        assert_eq!("ssh-ed25519 AAAA".parse::<PublicKey>(), Err(IdentityError::PublicKeyText));
        assert_eq!("plait-ed25519 AAAA".parse::<PublicKey>(), Err(IdentityError::PublicKeyText));
    }

    #[test]
    fn garbage_is_no_identity() {
        assert_eq!(Identity::from_pem(b"hello").map(drop), Err(IdentityError::Pem));
        assert_eq!(Identity::from_pkcs8(&[0x30; 48]).map(drop), Err(IdentityError::Key));
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }
}
