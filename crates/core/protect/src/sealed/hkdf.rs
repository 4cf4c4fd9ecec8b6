//! HKDF with SHA-256 (RFC 5869) and the labelled expansion `XL` of the wire format.

use core::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::hmac;

/// A pseudo-random key that other keys are expanded from. Wiped on drop.
pub struct Hkdf(Prk);

/// The longest output of one expansion, in bytes (RFC 5869, section 2.3: 255 hashes).
const MAX_OUTPUT: usize = 255 * 32;

impl Hkdf {
    /// HKDF-Extract: `material` condensed to a key, under a salt that need not be secret.
    pub fn extract(salt: &[u8], material: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, salt).extract(material))
    }

    /// HKDF-Extract under a salt that is secret as well: without either of them the output cannot be computed.
    pub(super) fn extract_into(salt: &[u8; 32], material: &[&[u8]], out: &mut [u8; 32]) {
        let mut extract = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, salt));
        for piece in material {
            extract.update(piece);
        }
        out.copy_from_slice(extract.sign().as_ref());
    }

    /// A key that is pseudo-random already.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(Prk::new_less_safe(HKDF_SHA256, secret))
    }

    /// HKDF-Expand: fills `out`, with `info` (the pieces one behind the other) telling outputs apart.
    ///
    /// # Errors
    /// [`OutputTooLong`] for more than 8,160 bytes.
    pub fn expand(&self, info: &[&[u8]], out: &mut [u8]) -> Result<(), OutputTooLong> {
        if out.len() > MAX_OUTPUT {
            return Err(OutputTooLong);
        }
        self.0.expand(info, Length(out.len())).and_then(|okm| okm.fill(out)).map_err(|_| OutputTooLong)
    }

    /// XL(S, label, ctx, L): the expansion whose info names the length, the label and the context.
    pub(super) fn labelled(&self, label: &str, context: &[u8], out: &mut [u8]) {
        let length = u16::try_from(out.len()).expect("labels of the schedule ask for at most 44 bytes");
        let label_length =
            u8::try_from(LABEL_PREFIX.len() + label.len()).expect("labels are short constants");
        let context_length = u8::try_from(context.len()).expect("contexts are at most 11 bytes");
        let info = [
            &length.to_be_bytes()[..],
            &[label_length],
            LABEL_PREFIX,
            label.as_bytes(),
            &[context_length],
            context,
        ];
        self.expand(&info, out).expect("at most 44 bytes");
    }
}

impl fmt::Debug for Hkdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hkdf(..)")
    }
}

/// More output was asked for than HKDF can give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputTooLong;

/// Prefix that separates these labels from those of TLS.
const LABEL_PREFIX: &[u8] = b"mptcpsec ";

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
