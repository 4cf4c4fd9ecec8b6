//! Randomness that the caller owns.

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use zeroize::Zeroizing;

/// A source of unpredictable bytes.
///
/// Two separate sources exist per endpoint: one for values that are visible on the wire (initial sequence numbers, ports, nonces of a
/// join), one for secrets (keys). They are never the same object, so that the first cannot reveal the second.
pub trait Random {
    /// Fills all of `out`.
    fn fill(&mut self, out: &mut [u8]);

    /// Four random bytes as a number.
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_be_bytes(bytes)
    }

    /// Eight random bytes as a number.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// A number below `bound`, evenly spread. `bound` must not be zero.
    fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: the bias is below bound / 2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p` (0 to 1).
    fn chance(&mut self, p: f64) -> bool {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= p && p > 0.0
    }
}

/// ChaCha20 from a 32-byte seed: same seed, same bytes. Seeded from the operating system by the driver
/// it is fit for keys.
pub struct SeededRandom(ChaCha20Rng);

impl SeededRandom {
    /// The generator that `seed` determines.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// For tests and simulations: the generator number `seed`.
    pub fn from_number(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }
}

impl Random for SeededRandom {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

/// ChaCha20 from a 32-byte seed for keys: what was given out is neither in its memory nor follows from it. Each draw begins with
/// the key of the next one ("fast key erasure", Bernstein 2017), so a draw costs two blocks of ChaCha20 more.
pub struct SecretRandom(ChaCha20Rng);

impl SecretRandom {
    /// The generator that `seed` determines.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }
}

impl Random for SecretRandom {
    fn fill(&mut self, out: &mut [u8]) {
        let mut next = Zeroizing::new([0; 32]);
        self.0.fill_bytes(next.as_mut_slice());
        self.0.fill_bytes(out);
        // The generator keeps what it has made ahead, and does not wipe of it what was taken.
        self.0 = ChaCha20Rng::from_seed(*next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_were_drawn_do_not_come_again_and_are_not_kept() {
        let (mut a, mut b) = (SecretRandom::new([1; 32]), SecretRandom::new([1; 32]));
        let draw = |random: &mut SecretRandom| {
            let mut out = [0; 32];
            random.fill(&mut out);
            out
        };
        let first = draw(&mut a);
        assert_eq!(first, draw(&mut b), "same seed, same bytes");
        assert_ne!(first, draw(&mut a));
        // Nothing is made ahead, as in one that has given out nothing.
        assert_eq!(a.0.get_word_pos(), 0);
        let mut again = ChaCha20Rng::from_seed(a.0.get_seed());
        let mut next = [0; 64];
        again.fill_bytes(&mut next);
        assert_eq!(draw(&mut a), next[32..], "the first half is the next key");
    }

    #[test]
    fn same_seed_same_bytes() {
        let (mut a, mut b, mut c) =
            (SeededRandom::from_number(1), SeededRandom::from_number(1), SeededRandom::from_number(2));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
    }

    #[test]
    fn bounded_numbers_stay_below_the_bound_and_reach_everything() {
        let mut random = SeededRandom::from_number(3);
        let mut seen = [false; 6];
        for _ in 0..1000 {
            seen[usize::try_from(random.below(6)).expect("small")] = true;
        }
        assert_eq!(seen, [true; 6]);
    }

    #[test]
    fn impossible_never_happens_and_certain_always_does() {
        let mut random = SeededRandom::from_number(4);
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
    }
}
