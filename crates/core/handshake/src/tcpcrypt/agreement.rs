//! Key agreement (RFC 8548, section 5): X25519 and ECDH on P-256.

use aws_lc_rs::agreement::{self, ECDH_P256, UnparsedPublicKey, X25519};
use aws_lc_rs::encoding::{AsBigEndian, EcPublicKeyCompressedBin};
use plait_base::Random;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::HandshakeError;

/// The groups that our TEPs name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Curve {
    X25519,
    P256,
}

impl Curve {
    /// Length of a public key in a message: 32 bytes, or a length (2 bytes, which counts itself) and a compressed
    /// point (33 bytes).
    pub(super) const fn encoded_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::P256 => P256_ENCODED_LEN as usize,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X25519 => "X25519",
            Self::P256 => "secp256r1",
        }
    }

    const fn algorithm(self) -> &'static agreement::Algorithm {
        match self {
            Self::X25519 => &X25519,
            Self::P256 => &ECDH_P256,
        }
    }
}

const P256_ENCODED_LEN: u16 = 2 + 33;

/// A key for one handshake. AWS-LC wipes it when it is dropped.
pub(super) struct PrivateKey {
    curve: Curve,
    key: agreement::PrivateKey,
}

/// Random bytes are no private key of P-256 with a probability of 2^-32.
const ATTEMPTS: u32 = 8;

impl PrivateKey {
    /// Generates a key, and shows it to `log`.
    pub(super) fn generate(
        curve: Curve,
        random: &mut dyn Random,
        log: impl FnOnce(&[u8]),
    ) -> Result<Self, HandshakeError> {
        let mut bytes = Zeroizing::new([0; 32]);
        for _ in 0..ATTEMPTS {
            random.fill(bytes.as_mut_slice());
            if let Ok(key) = Self::from_bytes(curve, &bytes) {
                log(bytes.as_slice());
                return Ok(key);
            }
        }
        Err(HandshakeError::Settings("the source of randomness is broken"))
    }

    pub(super) fn from_bytes(curve: Curve, bytes: &[u8; 32]) -> Result<Self, HandshakeError> {
        let key = agreement::PrivateKey::from_private_key(curve.algorithm(), bytes);
        key.map(|key| Self { curve, key }).map_err(|_| HandshakeError::WeakKey)
    }

    /// The public key as a message carries it.
    pub(super) fn public_key(&self) -> Result<Vec<u8>, HandshakeError> {
        let public = self.key.compute_public_key().map_err(|_| HandshakeError::WeakKey)?;
        Ok(match self.curve {
            Curve::X25519 => public.as_ref().to_vec(),
            Curve::P256 => {
                let point: EcPublicKeyCompressedBin<'_> =
                    public.as_be_bytes().map_err(|_| HandshakeError::WeakKey)?;
                [&P256_ENCODED_LEN.to_be_bytes()[..], point.as_ref()].concat()
            }
        })
    }

    /// The shared secret with the owner of `public`, as a message carries it.
    ///
    //= https://www.rfc-editor.org/rfc/rfc8548#section-5
    //# implementations MUST check whether the computed Diffie-Hellman shared
    //# secret is the all-zero value and abort if so
    pub(super) fn agree(self, public: &[u8]) -> Result<Zeroizing<[u8; 32]>, HandshakeError> {
        let point = match self.curve {
            Curve::X25519 => public,
            Curve::P256 => public
                .strip_prefix(&P256_ENCODED_LEN.to_be_bytes())
                // Section 5: compressed, nothing else.
                .filter(|point| matches!(point.first(), Some(2 | 3)))
                .ok_or(HandshakeError::Malformed("a public key that is not a compressed point"))?,
        };
        let peer = UnparsedPublicKey::new(self.curve.algorithm(), point);
        let mut shared = Zeroizing::new([0; 32]);
        agreement::agree(&self.key, peer, HandshakeError::WeakKey, |secret| {
            shared.as_mut_slice().copy_from_slice(secret);
            Ok(())
        })?;
        match self.curve {
            Curve::X25519 if shared.as_slice().ct_eq(&[0; 32]).into() => Err(HandshakeError::WeakKey),
            // On P-256 the point was checked to be on the curve, which has no small subgroup.
            Curve::X25519 | Curve::P256 => Ok(shared),
        }
    }
}
