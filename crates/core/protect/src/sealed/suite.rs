//! The AEAD algorithms of the blocks.

use aws_lc_rs::aead;

use super::limits::KeyLimits;

/// An AEAD algorithm, with the number it has in RFC 8548, section 7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Suite {
    /// 0x0001, which every host must support.
    Aes128Gcm,
    /// 0x0002.
    Aes256Gcm,
    /// 0x0010.
    ChaCha20Poly1305,
}

impl Suite {
    /// All of them, in the default order of preference.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Its number on the wire and in the key schedule.
    pub const fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => 0x0001,
            Self::Aes256Gcm => 0x0002,
            Self::ChaCha20Poly1305 => 0x0010,
        }
    }

    /// Returns the suite with this number, if it is supported.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0x0001 => Some(Self::Aes128Gcm),
            0x0002 => Some(Self::Aes256Gcm),
            0x0010 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Its name in configuration and status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The suite with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.name() == name)
    }

    /// Returns the suite that an acceptor takes: one of `offered`, best first for the opener, and of `ours`, best first. The opener decides, unless
    /// our best is ChaCha20: then this processor is slow with AES, and we decide. So neither end computes AES without instructions for it
    /// if the other one has ChaCha20.
    pub fn chosen(ours: &[Self], offered: &[Self]) -> Option<Self> {
        let (deciding, other) = if Self::acceptor_decides(ours) { (ours, offered) } else { (offered, ours) };
        deciding.iter().copied().find(|suite| other.contains(suite))
    }

    /// Whether an acceptor with these suites, best first, decides.
    pub fn acceptor_decides(ours: &[Self]) -> bool {
        ours.first() == Some(&Self::ChaCha20Poly1305)
    }

    /// How long one key of it may be used.
    pub const fn limits(self) -> KeyLimits {
        KeyLimits::of(self)
    }

    pub(super) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Suite::{self, *};

    #[test]
    fn the_end_that_is_slow_with_aes_decides() {
        let (by_aes, by_chacha) = ([Aes128Gcm, Aes256Gcm, ChaCha20Poly1305], [ChaCha20Poly1305, Aes128Gcm]);
        assert_eq!(Suite::chosen(&by_aes, &by_aes), Some(Aes128Gcm));
        assert_eq!(Suite::chosen(&by_chacha, &by_aes), Some(ChaCha20Poly1305));
        assert_eq!(Suite::chosen(&by_aes, &by_chacha), Some(ChaCha20Poly1305));
        assert_eq!(Suite::chosen(&by_chacha, &[Aes256Gcm, Aes128Gcm]), Some(Aes128Gcm));
        assert_eq!(Suite::chosen(&by_aes, &[Aes256Gcm, Aes128Gcm]), Some(Aes256Gcm), "the opener decides");
        assert_eq!(Suite::chosen(&[Aes256Gcm], &[ChaCha20Poly1305]), None);
    }
}
