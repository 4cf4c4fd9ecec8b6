//! The AEAD key of one direction and generation.

use core::fmt;

pub(super) use aws_lc_rs::aead::NONCE_LEN;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use plait_base::Dsn;
use zeroize::Zeroizing;

use super::block::{DATA_TAG_LEN, Header};
use super::suite::Suite;

/// An AEAD key with the value that its nonces start from. Wiped on drop (the key by AWS-LC, which clears what
/// it frees).
pub struct BlockKey {
    key: LessSafeKey,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    #[cfg(test)]
    recorded_as: super::nonce_tests::KeyName,
}

impl BlockKey {
    /// A key of `suite` whose bytes `fill` writes: first the key, second the start value of the nonces.
    pub fn filled_by(suite: Suite, fill: impl FnOnce(&mut [u8], &mut [u8; NONCE_LEN])) -> Self {
        let algorithm = suite.algorithm();
        let mut bytes = Zeroizing::new([0; 32]);
        let bytes = &mut bytes[..algorithm.key_len()];
        let mut iv = Zeroizing::new([0; NONCE_LEN]);
        fill(bytes, &mut iv);
        let unbound = UnboundKey::new(algorithm, bytes).expect("the length is the algorithm's own");
        Self {
            key: LessSafeKey::new(unbound),
            #[cfg(test)]
            recorded_as: super::nonce_tests::KeyName::of(bytes),
            iv,
        }
    }

    /// Encrypts `text` in place. Only the sealer calls it, once for each data sequence number.
    pub(super) fn seal(&self, header: Header, dsn: Dsn, text: &mut [u8]) -> [u8; DATA_TAG_LEN] {
        let nonce = self.nonce(header, dsn);
        #[cfg(test)]
        self.recorded_as.record(nonce);
        self.seal_with(nonce, &[header.bits()], text)
    }

    /// Decrypts `C || T_d` in place and gives the length of the text. Its bytes mean nothing after an error.
    pub(super) fn open(&self, header: Header, dsn: Dsn, sealed: &mut [u8]) -> Result<usize, WrongTag> {
        self.open_with(self.nonce(header, dsn), &[header.bits()], sealed)
    }

    pub(super) fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        text: &mut [u8],
    ) -> [u8; DATA_TAG_LEN] {
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), text)
            .expect("a block is far below the longest text of any suite");
        tag.as_ref().try_into().expect("all suites have tags of 16 bytes")
    }

    pub(super) fn open_with(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        sealed: &mut [u8],
    ) -> Result<usize, WrongTag> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self.key.open_in_place(nonce, Aad::from(associated), sealed) {
            Ok(text) => Ok(text.len()),
            Err(_) => Err(WrongTag),
        }
    }

    /// N = iv XOR ((H & C0) || 000 || DSN64).
    pub(super) fn nonce(&self, header: Header, dsn: Dsn) -> [u8; NONCE_LEN] {
        let mut nonce = self.nonce_of(dsn.bits());
        nonce[0] ^= header.bits() & 0xc0;
        nonce
    }

    /// N = iv XOR (0000 || u64).
    pub(super) fn nonce_of(&self, number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = *self.iv;
        for (byte, position) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= position;
        }
        nonce
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockKey(..)")
    }
}

/// The AEAD did not accept the block.
pub(super) struct WrongTag;
