//! The vector code of x86-64 and the one place of this crate with `unsafe`.
//!
//! A value of [`Avx2`] or [`Avx512`] exists only after the processor was asked and has the instructions. The `unsafe` blocks that call the
//! code rely on it. The other `unsafe` blocks are a load and a store of as many bytes as the reference covers.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m256i, __m512i, _mm256_alignr_epi8, _mm256_loadu_si256, _mm256_loadu2_m128i, _mm256_permute2x128_si256,
    _mm256_set_epi8, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_storeu2_m128i, _mm256_xor_si256,
    _mm512_alignr_epi8, _mm512_alignr_epi64, _mm512_clmulepi64_epi128, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512,
};

use super::engine::Block;
use super::places::{Place, Places};

/// Proof that the processor has AVX2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Avx2(());

/// Proof that the processor has AVX-512 F and BW and carry-less multiplication on 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    pub(super) fn scramble(self, window: &Block, blocks: impl Places, tail: Option<&mut Block>) {
        // SAFETY: `self` exists, so `detect` has seen the one feature that the function is compiled for.
        unsafe { scramble_avx2(window, blocks, tail) }
    }

    pub(super) fn descramble(self, window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
        // SAFETY: as above.
        unsafe { descramble_avx2(window, xor, blocks, tail) }
    }
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("vpclmulqdq");
        has_all.then_some(Self(()))
    }

    pub(super) fn scramble(self, window: &Block, blocks: impl Places, tail: Option<&mut Block>) {
        // SAFETY: `self` exists, so `detect` has seen the three features that the function is compiled for.
        unsafe { scramble_avx512(window, blocks, tail) }
    }

    pub(super) fn descramble(self, window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
        // SAFETY: as above.
        unsafe { descramble_avx512(window, xor, blocks, tail) }
    }
}

/// What spills from one block into the next: products, and sums over the last 8, 16, 32 bytes.
struct Sums512 {
    of1: __m512i,
    odd: __m512i,
    of8: __m512i,
    of16: __m512i,
    of32: __m512i,
}

impl Sums512 {
    /// Takes the next plain block and returns the scrambled one.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
    fn step(&mut self, plain: __m512i) -> __m512i {
        let ones = _mm512_set1_epi64(0x0101_0101_0101_0101);
        // Each word times 1 + z + ... + z^7: the lower half belongs to the word itself, the upper to the next.
        // The even words' products lie where they belong; the odd ones' move up by one word.
        let even = _mm512_clmulepi64_epi128::<0x00>(plain, ones);
        let odd = _mm512_clmulepi64_epi128::<0x01>(plain, ones);
        let of8 = _mm512_xor_si512(even, _mm512_alignr_epi64::<7>(odd, self.odd));
        let of16 = _mm512_xor_si512(of8, _mm512_alignr_epi64::<7>(of8, self.of8));
        let of32 = _mm512_xor_si512(of16, _mm512_alignr_epi64::<6>(of16, self.of16));
        let of32_earlier = _mm512_alignr_epi64::<4>(of32, self.of32);
        let scrambled = _mm512_ternarylogic_epi64::<XOR_OF_THREE>(of32, of32_earlier, self.of1);
        *self = Self { of1: plain, odd, of8, of16, of32 };
        scrambled
    }
}

/// Truth table of `a ^ b ^ c`.
const XOR_OF_THREE: i32 = 0x96;

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
fn scramble_avx512(window: &Block, blocks: impl Places, tail: Option<&mut Block>) {
    let zero = _mm512_setzero_si512();
    let mut sums = Sums512 { of1: zero, odd: zero, of8: zero, of16: zero, of32: zero };
    sums.step(load512(window));
    for mut place in blocks.each() {
        let scrambled = sums.step(load512(place.read()));
        store512(place.write(), scrambled);
    }
    if let Some(tail) = tail {
        let scrambled = sums.step(load512(tail));
        store512(tail, scrambled);
    }
}

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
fn descramble_avx512(window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
    let mut plain = load512(window);
    let mut y_before = _mm512_set_epi64(i64::from(xor) << 56, 0, 0, 0, 0, 0, 0, 0);
    let mut step = |scrambled: __m512i| {
        let y = _mm512_xor_si512(scrambled, plain);
        let lanes_before = _mm512_alignr_epi64::<6>(y, y_before);
        plain = _mm512_xor_si512(scrambled, _mm512_alignr_epi8::<15>(y, lanes_before));
        y_before = y;
        plain
    };
    for mut place in blocks.each() {
        let plain = step(load512(place.read()));
        store512(place.write(), plain);
    }
    if let Some(tail) = tail {
        let plain = step(load512(tail));
        store512(tail, plain);
    }
}

/// The next 64 bytes in two places of the stream: 16 of the first in the lower half of each vector, 16 of the second in the
/// upper half.
type Pair = [__m256i; 4];

/// As [`Sums512`], in two places: what they looked at last.
struct Sums256 {
    of1: Pair,
    of2: __m256i,
    of4: __m256i,
    of8: __m256i,
    of16: __m256i,
    of32: [__m256i; 2],
}

impl Sums256 {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        let zero = _mm256_setzero_si256();
        Self { of1: [zero; 4], of2: zero, of4: zero, of8: zero, of16: zero, of32: [zero; 2] }
    }

    /// Takes the next plain blocks and returns the scrambled ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn step(&mut self, plain: Pair) -> Pair {
        let mut last = self.of1[3];
        let mut blocks = plain;
        for (bytes, before) in blocks.iter_mut().zip(self.of1) {
            let of2 = with_earlier::<15>(*bytes, last);
            let of4 = with_earlier::<14>(of2, self.of2);
            let of8 = with_earlier::<12>(of4, self.of4);
            let of16 = with_earlier::<8>(of8, self.of8);
            let of32 = _mm256_xor_si256(of16, self.of16);
            let of64 = _mm256_xor_si256(of32, self.of32[0]);
            (last, self.of2, self.of4, self.of8, self.of16) = (*bytes, of2, of4, of8, of16);
            self.of32 = [self.of32[1], of32];
            *bytes = _mm256_xor_si256(of64, before);
        }
        self.of1 = plain;
        blocks
    }

    /// Scrambles a block in each place.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn scramble(&mut self, mut first: impl Place, mut second: impl Place) {
        let scrambled = self.step(load_pair(first.read(), second.read()));
        store_pair(first.write(), second.write(), scrambled);
    }
}

/// `sum ^ z^(16 - FROM) sum`; `before` are the 16 bytes of `sum` in front of it.
#[inline]
#[target_feature(enable = "avx2")]
fn with_earlier<const FROM: i32>(sum: __m256i, before: __m256i) -> __m256i {
    _mm256_xor_si256(sum, _mm256_alignr_epi8::<FROM>(sum, before))
}

#[target_feature(enable = "avx2")]
fn scramble_avx2(window: &Block, blocks: impl Places, tail: Option<&mut Block>) {
    let half = blocks.count() / 2;
    let before_second = half.checked_sub(1).map_or(*window, |last| *blocks.read(last));
    let (first, rest) = blocks.split(half);
    let (second, odd) = rest.split(half);
    let mut sums = Sums256::new();
    sums.step(load_pair(window, &before_second));
    for (first, second) in first.each().zip(second.each()) {
        sums.scramble(first, second);
    }
    // The rest follows on the second half. The output of the first place is not used.
    let mut nothing = [0; 64];
    for place in odd.each() {
        sums.scramble(&mut nothing, place);
    }
    if let Some(tail) = tail {
        sums.scramble(&mut nothing, tail);
    }
}

/// Each lane of 16 bytes replaced by the one before it in the stream.
#[inline]
#[target_feature(enable = "avx2")]
fn lane_before(now: __m256i, before: __m256i) -> __m256i {
    _mm256_permute2x128_si256::<0x21>(before, now)
}

#[target_feature(enable = "avx2")]
fn descramble_avx2(window: &Block, xor: u8, blocks: impl Places, tail: Option<&mut Block>) {
    let mut plain = load256(window);
    #[rustfmt::skip]
    let mut y_before = _mm256_set_epi8(
        xor.cast_signed(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    );
    let mut step = |scrambled: [__m256i; 2]| {
        for (plain, scrambled) in plain.iter_mut().zip(scrambled) {
            let y = _mm256_xor_si256(scrambled, *plain);
            let y_earlier = _mm256_alignr_epi8::<15>(y, lane_before(y, y_before));
            *plain = _mm256_xor_si256(scrambled, y_earlier);
            y_before = y;
        }
        plain
    };
    for mut place in blocks.each() {
        let plain = step(load256(place.read()));
        store256(place.write(), plain);
    }
    if let Some(tail) = tail {
        let plain = step(load256(tail));
        store256(tail, plain);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load512(block: &Block) -> __m512i {
    // SAFETY: the reference covers 64 readable bytes; the instruction has no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store512(block: &mut Block, bytes: __m512i) {
    // SAFETY: the reference covers 64 writable bytes; the instruction has no alignment.
    unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), bytes) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load256(block: &Block) -> [__m256i; 2] {
    let (first, second) = block.split_at(32);
    // SAFETY: each half covers 32 readable bytes; the instruction has no alignment.
    unsafe { [_mm256_loadu_si256(first.as_ptr().cast()), _mm256_loadu_si256(second.as_ptr().cast())] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store256(block: &mut Block, halves: [__m256i; 2]) {
    for (place, half) in block.as_chunks_mut::<32>().0.iter_mut().zip(halves) {
        // SAFETY: the reference covers 32 writable bytes; the instruction has no alignment.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), half) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_pair(first: &Block, second: &Block) -> Pair {
    let mut pair = [_mm256_setzero_si256(); 4];
    let places = first.as_chunks::<16>().0.iter().zip(second.as_chunks::<16>().0);
    for (vector, (first, second)) in pair.iter_mut().zip(places) {
        // SAFETY: each reference covers 16 readable bytes; the instruction has no alignment.
        *vector = unsafe { _mm256_loadu2_m128i(second.as_ptr().cast(), first.as_ptr().cast()) };
    }
    pair
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_pair(first: &mut Block, second: &mut Block, pair: Pair) {
    let places = first.as_chunks_mut::<16>().0.iter_mut().zip(second.as_chunks_mut::<16>().0);
    for (vector, (first, second)) in pair.into_iter().zip(places) {
        // SAFETY: each reference covers 16 writable bytes; the instruction has no alignment.
        unsafe { _mm256_storeu2_m128i(second.as_mut_ptr().cast(), first.as_mut_ptr().cast(), vector) }
    }
}
