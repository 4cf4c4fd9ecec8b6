//! Eight 64-bit words at a time, for processors without wide vectors.
//!
//! The sum over the last 64 bytes changes from one byte to the next by `b[i] ^ b[i-64]`. So scrambling is a running XOR
//! of these differences: inside a word in three doubling steps, from word to word by one byte.

use super::engine::Block;
use super::places::{Place, Places};

/// A block as words; the first byte of the stream is the lowest byte of the first word.
type Words = [u64; 8];

pub(super) fn scramble(window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
    let mut sums = Sums { before: words(window), sum: in_every_byte(xor.into()) };
    for mut place in blocks.each() {
        *place.write() = sums.step(place.read());
    }
    if let Some(tail) = tail {
        *tail = sums.step(tail);
    }
}

/// The state of scrambling.
struct Sums {
    before: Words,
    /// The XOR of the last 64 bytes, in every byte.
    sum: u64,
}

impl Sums {
    /// Takes the next plain block and returns the scrambled one.
    #[inline(always)]
    fn step(&mut self, plain: &Block) -> Block {
        let plain = words(plain);
        let changes: Words = std::array::from_fn(|at| running_xor(plain[at] ^ self.before[at]));
        let scrambled = std::array::from_fn(|at| {
            let scrambled = changes[at] ^ self.sum ^ self.before[at];
            self.sum ^= in_every_byte(changes[at] >> 56);
            scrambled
        });
        self.before = plain;
        bytes(scrambled)
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

pub(super) fn descramble(window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
    let mut past = Past { plain: words(window), y: u64::from(xor) << 56 };
    for mut place in blocks.each() {
        *place.write() = past.step(place.read());
    }
    if let Some(tail) = tail {
        *tail = past.step(tail);
    }
}

/// The state of descrambling.
struct Past {
    plain: Words,
    /// The last word of `Y`.
    y: u64,
}

impl Past {
    /// Takes the next scrambled block and returns the plain one.
    #[inline(always)]
    fn step(&mut self, scrambled: &Block) -> Block {
        let scrambled = words(scrambled);
        let y: Words = std::array::from_fn(|at| scrambled[at] ^ self.plain[at]);
        self.plain = std::array::from_fn(|at| {
            let earlier = if at == 0 { self.y } else { y[at - 1] };
            scrambled[at] ^ (y[at] << 8 | earlier >> 56)
        });
        self.y = y[7];
        bytes(self.plain)
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
