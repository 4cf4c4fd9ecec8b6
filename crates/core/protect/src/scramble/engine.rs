//! The implementations: portable words, AVX2, or AVX-512, chosen at run time.
//!
//! All three work on blocks of 64 bytes, so that the window of one block lies in the block before it.
//!
//! **Scrambling** is a sum over the last 65 bytes. With `z` for "one byte earlier" it factors:
//!
//! ```text
//! 1 + z + z^2 + ... + z^63 = (1+z) (1+z^2) (1+z^4) (1+z^8) (1+z^16) (1+z^32)
//! ```
//!
//! so six shifted copies and six XORs add up 64 bytes for all positions at once, and one more XOR with the
//! block before adds the 65th. No position waits for its neighbour. AVX2 cannot shift across the middle of a vector, so it
//! works on two places of the stream at once, one in each half. AVX-512 takes the first three factors with a
//! carry-less multiplication by `0x0101010101010101`, whose upper half is what spills into the next word. Words
//! have no such shifts for nothing and do with fewer of them: see `portable`.
//!
//! **Descrambling** follows from `B[i] ^ B[i-1] = b[i] ^ b[i-65]`. With `Y[i] = B[i] ^ b[i-64]` that reads
//! `b[i] = B[i] ^ Y[i-1]`: a block needs the block before it and a shift by one byte.

use super::places::Places;
use super::{WINDOW, Window, portable};

/// 64 consecutive bytes of the stream.
pub(super) type Block = [u8; WINDOW];

/// The code that scrambles and descrambles. The value is a proof that this processor can run it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Engine(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(super::x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(super::x86::Avx512),
}

impl Engine {
    /// 64-bit words; works everywhere.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// The fastest that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = super::x86::Avx512::detect() {
                return Self(Kind::Avx512(avx512));
            }
            if let Some(avx2) = super::x86::Avx2::detect() {
                return Self(Kind::Avx2(avx2));
            }
        }
        Self::PORTABLE
    }

    /// All that this processor can run, the slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vectorised = [
            super::x86::Avx2::detect().map(|avx2| Self(Kind::Avx2(avx2))),
            super::x86::Avx512::detect().map(|avx512| Self(Kind::Avx512(avx512))),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let vectorised: [Option<Self>; 0] = [];
        [Self::PORTABLE].into_iter().chain(vectorised.into_iter().flatten()).collect()
    }

    /// A name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "u64",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "AVX-512",
        }
    }

    /// Scrambles `blocks` and then `tail`, which stand behind `window`.
    pub(super) fn scramble(self, window: &Window, blocks: impl Places, tail: Option<&mut Block>) {
        match self.0 {
            Kind::Portable => portable::scramble(&window.0, window.xor(), blocks, tail),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(avx2) => avx2.scramble(&window.0, blocks, tail),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(avx512) => avx512.scramble(&window.0, blocks, tail),
        }
    }

    /// Descrambles `blocks` and then `tail`, which stand behind `window`.
    pub(super) fn descramble(self, window: &Window, blocks: impl Places, tail: Option<&mut Block>) {
        match self.0 {
            Kind::Portable => portable::descramble(&window.0, window.xor(), blocks, tail),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(avx2) => avx2.descramble(&window.0, window.xor(), blocks, tail),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(avx512) => avx512.descramble(&window.0, window.xor(), blocks, tail),
        }
    }
}
