//! Deterministic pseudo-random bytes: both ends know them from a seed, so a transfer can be checked without a copy.

use sha2::{Digest, Sha256};

/// The size of reads and writes, in bytes.
pub(crate) const BLOCK: usize = 1 << 20;

/// A stream of bytes fixed by its seed: word `i` is the `i`-th output of SplitMix64, little endian.
pub(crate) struct Pattern {
    state: u64,
    /// Bytes of the current word not yet handed out.
    rest: [u8; 8],
    used: usize,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, rest: [0; 8], used: 8 }
    }

    /// The next bytes of the stream.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        let from_rest = out.len().min(8 - self.used);
        let (head, body) = out.split_at_mut(from_rest);
        head.copy_from_slice(&self.rest[self.used..self.used + from_rest]);
        self.used += from_rest;
        let mut words = body.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next_word());
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            self.rest = self.next_word();
            self.used = tail.len();
            tail.copy_from_slice(&self.rest[..tail.len()]);
        }
    }

    fn next_word(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    }
}

/// The SHA-256 of the first `length` bytes of a pattern, in hexadecimal.
pub(crate) fn sha256_of_pattern(seed: u64, length: u64) -> String {
    let (mut pattern, mut hash, mut left) = (Pattern::new(seed), Sha256::new(), length);
    let mut block = vec![0; BLOCK];
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        pattern.fill(&mut block[..now]);
        hash.update(&block[..now]);
        left -= now as u64;
    }
    hexadecimal(&hash.finalize())
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_does_not_depend_on_how_it_is_cut() {
        let mut whole = [0; 1000];
        Pattern::new(7).fill(&mut whole);
        let (mut pattern, mut pieces) = (Pattern::new(7), Vec::new());
        for length in [1, 7, 8, 9, 3, 0, 5, 16, 951] {
            let mut piece = vec![0; length];
            pattern.fill(&mut piece);
            pieces.extend(piece);
        }
        assert_eq!(pieces, whole);
        let mut other = [0; 1000];
        Pattern::new(8).fill(&mut other);
        assert_ne!(other, whole);
    }

    #[test]
    fn nothing_has_the_hash_of_nothing() {
        assert_eq!(
            sha256_of_pattern(1, 0),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
