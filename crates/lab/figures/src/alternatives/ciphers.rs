//! DES, TDEA and AES in ECB and CBC: the ciphers with which the papers compare scrambling.
//!
//! ECB shows equal blocks as equal, CBC without a tag lets blocks be changed, DES is broken. For
//! comparison only; a connection is protected by `sealed`.

use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::crypto_common::InnerInit;
use cbc::cipher::inout::InOutBuf;
use cbc::cipher::{
    BlockCipher, BlockDecrypt, BlockDecryptMut, BlockEncrypt, BlockEncryptMut, InnerIvInit, KeyInit,
};
use des::{Des, TdesEde3};

/// A block cipher with its key.
pub enum Cipher {
    /// FIPS 46-3, 8-byte key, 8-byte blocks.
    Des(Des),
    /// SP 800-67, 24-byte key (three keys), 8-byte blocks.
    Tdea(TdesEde3),
    /// FIPS 197, 16-byte key, 16-byte blocks.
    Aes128(Aes128),
    /// FIPS 197, 24-byte key.
    Aes192(Aes192),
    /// FIPS 197, 32-byte key.
    Aes256(Aes256),
}

/// Modes of operation (SP 800-38A).
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Each block on its own.
    Ecb,
    /// Each block XORed with the encrypted one before it; the vector is one block long.
    Cbc(&'a [u8]),
}

/// Misuse by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CipherError {
    /// The bytes are not a whole number of blocks.
    PartialBlock,
    /// The initialisation vector is not one block long.
    VectorLength,
    /// The key has another length than the cipher wants.
    KeyLength,
}

/// One arm per cipher, the same words in each.
macro_rules! with_cipher {
    ($self:expr, $cipher:ident => $work:expr) => {
        match $self {
            Self::Des($cipher) => $work,
            Self::Tdea($cipher) => $work,
            Self::Aes128($cipher) => $work,
            Self::Aes192($cipher) => $work,
            Self::Aes256($cipher) => $work,
        }
    };
}

impl Cipher {
    /// DES with an 8-byte key.
    pub fn des(key: &[u8]) -> Result<Self, CipherError> {
        Des::new_from_slice(key).map(Self::Des).map_err(|_| CipherError::KeyLength)
    }

    /// TDEA with three keys, 24 bytes.
    pub fn tdea(key: &[u8]) -> Result<Self, CipherError> {
        TdesEde3::new_from_slice(key).map(Self::Tdea).map_err(|_| CipherError::KeyLength)
    }

    /// AES; the length of the key says which: 16, 24 or 32 bytes.
    pub fn aes(key: &[u8]) -> Result<Self, CipherError> {
        Aes128::new_from_slice(key)
            .map(Self::Aes128)
            .or_else(|_| Aes192::new_from_slice(key).map(Self::Aes192))
            .or_else(|_| Aes256::new_from_slice(key).map(Self::Aes256))
            .map_err(|_| CipherError::KeyLength)
    }

    /// Encrypts whole blocks in place.
    pub fn encrypt(&self, mode: Mode<'_>, bytes: &mut [u8]) -> Result<(), CipherError> {
        with_cipher!(self, cipher => encrypt(cipher, mode, bytes))
    }

    /// Decrypts whole blocks in place.
    pub fn decrypt(&self, mode: Mode<'_>, bytes: &mut [u8]) -> Result<(), CipherError> {
        with_cipher!(self, cipher => decrypt(cipher, mode, bytes))
    }
}

fn encrypt<C>(cipher: &C, mode: Mode<'_>, bytes: &mut [u8]) -> Result<(), CipherError>
where
    C: BlockCipher + BlockEncrypt,
{
    let (blocks, rest) = InOutBuf::from(bytes).into_chunks();
    if !rest.is_empty() {
        return Err(CipherError::PartialBlock);
    }
    match mode {
        Mode::Ecb => ecb::Encryptor::inner_init(cipher).encrypt_blocks_inout_mut(blocks),
        Mode::Cbc(vector) => cbc::Encryptor::inner_iv_slice_init(cipher, vector)
            .map_err(|_| CipherError::VectorLength)?
            .encrypt_blocks_inout_mut(blocks),
    }
    Ok(())
}

fn decrypt<C>(cipher: &C, mode: Mode<'_>, bytes: &mut [u8]) -> Result<(), CipherError>
where
    C: BlockCipher + BlockDecrypt,
{
    let (blocks, rest) = InOutBuf::from(bytes).into_chunks();
    if !rest.is_empty() {
        return Err(CipherError::PartialBlock);
    }
    match mode {
        Mode::Ecb => ecb::Decryptor::inner_init(cipher).decrypt_blocks_inout_mut(blocks),
        Mode::Cbc(vector) => cbc::Decryptor::inner_iv_slice_init(cipher, vector)
            .map_err(|_| CipherError::VectorLength)?
            .decrypt_blocks_inout_mut(blocks),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Cipher, CipherError, Mode};

    const DES_KEY: &str = "0123456789abcdef";
    const TDEA_KEYS: &str = "0123456789abcdef23456789abcdef01456789abcdef0123";
    /// SP 800-38A, appendix F: the four blocks all its examples share.
    const BLOCKS: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                          30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";

    #[test]
    fn des_gives_the_answers_of_fips_81() {
        let cipher = Cipher::des(&hex(DES_KEY)).expect("8 bytes");
        let plain = b"Now is the time for all ";
        check(&cipher, Mode::Ecb, plain, "3fa40e8a984d48156a271787ab8883f9893d51ec4b563b53");
        let vector = hex("1234567890abcdef");
        check(&cipher, Mode::Cbc(&vector), plain, "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6");
    }

    #[test]
    fn tdea_gives_the_answer_of_sp_800_67() {
        let cipher = Cipher::tdea(&hex(TDEA_KEYS)).expect("24 bytes");
        let plain = b"The qufck brown fox jump";
        check(&cipher, Mode::Ecb, plain, "a826fd8ce53b855fcce21c8112256fe668d5c05dd9b6b900");
    }

    #[test]
    fn aes_gives_the_answers_of_fips_197() {
        let plain = hex("00112233445566778899aabbccddeeff");
        let key = hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        for (length, answer) in [
            (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
            (24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
            (32, "8ea2b7ca516745bfeafc49904b496089"),
        ] {
            check(&Cipher::aes(&key[..length]).expect("a length of AES"), Mode::Ecb, &plain, answer);
        }
    }

    #[test]
    fn aes_cbc_gives_the_answers_of_sp_800_38a() {
        let vector = hex("000102030405060708090a0b0c0d0e0f");
        for (key, answer) in [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
                 73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
            ),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a\
                 571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
            ),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
                 39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
            ),
        ] {
            check(
                &Cipher::aes(&hex(key)).expect("a length of AES"),
                Mode::Cbc(&vector),
                &hex(BLOCKS),
                answer,
            );
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert!(matches!(Cipher::des(&[0; 7]), Err(CipherError::KeyLength)));
        assert!(matches!(Cipher::tdea(&[0; 16]), Err(CipherError::KeyLength)));
        assert!(matches!(Cipher::aes(&[0; 20]), Err(CipherError::KeyLength)));
        let aes = Cipher::aes(&[0; 16]).expect("16 bytes");
        assert_eq!(aes.encrypt(Mode::Ecb, &mut [0; 17]), Err(CipherError::PartialBlock));
        assert_eq!(aes.decrypt(Mode::Cbc(&[0; 8]), &mut [0; 16]), Err(CipherError::VectorLength));
    }

    fn check(cipher: &Cipher, mode: Mode<'_>, plain: &[u8], answer: &str) {
        let mut bytes = plain.to_vec();
        cipher.encrypt(mode, &mut bytes).expect("whole blocks");
        assert_eq!(bytes, hex(answer));
        cipher.decrypt(mode, &mut bytes).expect("whole blocks");
        assert_eq!(bytes, plain);
    }

    fn hex(digits: &str) -> Vec<u8> {
        let nibble = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
        digits.as_bytes().as_chunks().0.iter().map(|[high, low]| nibble(*high) << 4 | nibble(*low)).collect()
    }
}
