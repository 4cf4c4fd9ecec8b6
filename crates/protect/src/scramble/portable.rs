//! Eight 64-bit words at a time, for processors without wide vectors.
//!
//! The sum over the last 64 bytes changes from one byte to the next by `b[i] ^ b[i-64]`. So scrambling is a running XOR
//! of these differences: inside a word in three doubling steps, from word to word by one byte.

use super::engine::Block;

/// A block as words; the first byte of the stream is the lowest byte of the first word.
type Words = [u64; 8];

pub(super) fn scramble(window: &Block, xor: u8, blocks: &mut [Block], tail: Option<&mut Block>) {
    let mut before = words(window);
    let mut sum_before = in_every_byte(xor.into());
    for block in blocks.iter_mut().chain(tail) {
        let plain = words(block);
        let changes: Words = std::array::from_fn(|at| running_xor(plain[at] ^ before[at]));
        *block = bytes(std::array::from_fn(|at| {
            let scrambled = changes[at] ^ sum_before ^ before[at];
            sum_before ^= in_every_byte(changes[at] >> 56);
            scrambled
        }));
        before = plain;
    }
}

/// Each byte XORed with all that come before it in the word.
#[inline(always)]
fn running_xor(word: u64) -> u64 {
    let of2 = word ^ (word << 8);
    let of4 = of2 ^ (of2 << 16);
    of4 ^ (of4 << 32)
}

#[inline(always)]
fn in_every_byte(byte: u64) -> u64 {
    byte * 0x0101_0101_0101_0101
}

pub(super) fn descramble(window: &Block, xor: u8, blocks: &mut [Block], tail: Option<&mut Block>) {
    let mut plain = words(window);
    let mut before = u64::from(xor) << 56;
    for block in blocks.iter_mut().chain(tail) {
        let scrambled = words(block);
        let y: Words = std::array::from_fn(|at| scrambled[at] ^ plain[at]);
        plain = std::array::from_fn(|at| {
            let earlier = if at == 0 { before } else { y[at - 1] };
            scrambled[at] ^ (y[at] << 8 | earlier >> 56)
        });
        before = y[7];
        *block = bytes(plain);
    }
}

#[inline(always)]
fn words(block: &Block) -> Words {
    let (words, _) = block.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

#[inline(always)]
fn bytes(words: Words) -> Block {
    let mut block = [0; 64];
    let (chunks, _) = block.as_chunks_mut();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    block
}
