//! Fingerprints of public keys.

use core::fmt;
use core::str::FromStr;

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};

/// SHA-256 of a public key's SubjectPublicKeyInfo.
///
/// It has two spellings. `SHA256:` and 43 characters of base64 are for display. The 43 characters in the URL-safe alphabet alone are for
/// addresses, as in `plait://HOST:7443#FINGERPRINT`. Parsers accept both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

const PREFIX: &str = "SHA256:";

impl Fingerprint {
    /// Returns the fingerprint with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the spelling for addresses.
    pub fn compact(&self) -> String {
        Base64UrlUnpadded::encode_string(&self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", Base64Unpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = match text.strip_prefix(PREFIX) {
            Some(long) => Base64Unpadded::decode_vec(long),
            None => Base64UrlUnpadded::decode_vec(text),
        };
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(ParseFingerprintError)
    }
}

/// The text is not a fingerprint: neither `SHA256:` with 43 characters of base64, nor the 43 characters for addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseFingerprintError;

impl fmt::Display for ParseFingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a fingerprint is SHA256: and 43 characters, or the 43 characters of its form for addresses",
        )
    }
}

impl core::error::Error for ParseFingerprintError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read() {
        let fingerprint = Fingerprint::new(core::array::from_fn(|at| 0xf8 ^ at as u8));
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert_eq!(fingerprint.compact().parse(), Ok(fingerprint));
        assert_eq!(fingerprint.compact().len(), 43);
    }

    #[test]
    fn wrong_length_alphabet_and_prefix_are_refused() {
        let fingerprint = Fingerprint::new([0xff; 32]);
        let (long, short) = (fingerprint.to_string(), fingerprint.compact());
        for wrong in ["", "SHA256:", &long[..49], &short[1..], &format!("SHA256:{short}"), &long[7..]] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(ParseFingerprintError), "{wrong}");
        }
    }
}
