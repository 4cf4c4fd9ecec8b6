//! Eight 64-bit words at a time, for processors without wide vectors.

use super::engine::Block;

/// A block as words; the first byte of the stream is the lowest byte of the first word.
type Words = [u64; 8];

/// Sums over the last 1, 2, 4, ... 32 bytes, for the block before: what spills into the next one.
#[derive(Clone, Copy, Default)]
struct Sums {
    of1: Words,
    of2: u64,
    of4: u64,
    of8: u64,
    of16: [u64; 2],
    of32: [u64; 4],
}

impl Sums {
    /// Takes the next plain block and returns the scrambled one.
    #[inline(always)]
    fn step(&mut self, plain: Words) -> Words {
        let of2 = add_earlier_bytes::<8>(plain, self.of1[7]);
        let of4 = add_earlier_bytes::<16>(of2, self.of2);
        let of8 = add_earlier_bytes::<32>(of4, self.of4);
        let of16 = add_earlier_words(of8, [self.of8]);
        let of32 = add_earlier_words(of16, self.of16);
        let of64 = add_earlier_words(of32, self.of32);
        let scrambled = std::array::from_fn(|at| of64[at] ^ self.of1[at]);
        *self = Self {
            of1: plain,
            of2: of2[7],
            of4: of4[7],
            of8: of8[7],
            of16: [of16[6], of16[7]],
            of32: [of32[4], of32[5], of32[6], of32[7]],
        };
        scrambled
    }
}

/// `sum ^ z^(BITS/8) sum`; `before` is the word of `sum` in front of the block.
#[inline(always)]
fn add_earlier_bytes<const BITS: u32>(sum: Words, before: u64) -> Words {
    std::array::from_fn(|at| {
        let earlier = if at == 0 { before } else { sum[at - 1] };
        sum[at] ^ (sum[at] << BITS | earlier >> (64 - BITS))
    })
}

/// `sum ^ z^(8 N) sum`; `before` are the N words of `sum` in front of the block.
#[inline(always)]
fn add_earlier_words<const N: usize>(sum: Words, before: [u64; N]) -> Words {
    std::array::from_fn(|at| sum[at] ^ if at < N { before[at] } else { sum[at - N] })
}

pub(super) fn scramble(window: &Block, blocks: &mut [Block], tail: Option<&mut Block>) {
    // Started on the window alone, the sums lack what came before it; what a block looks back on does not.
    let mut sums = Sums::default();
    sums.step(words(window));
    for block in blocks.iter_mut().chain(tail) {
        *block = bytes(sums.step(words(block)));
    }
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
