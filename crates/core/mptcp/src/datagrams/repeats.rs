//! Which numbered datagrams have arrived, over whichever subflow.
//!
//! Copies over several paths arrive apart by the difference of their delays. The window covers a second of difference at 16,000 datagrams a
//! second. What is older is dropped: whether it has arrived is not known.

/// Numbers behind the highest that are remembered.
const WINDOW: u32 = 1 << 14;
const WORDS: u32 = WINDOW / 64;

/// The numbers of the peer's datagrams that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Empty before the first number: most connections have none.
    words: Vec<u64>,
    /// The number after the highest.
    next: u32,
}

impl Repeats {
    /// Whether this number has not arrived, and is not too old to know. Numbers wrap.
    pub(crate) fn is_new(&self, number: u32) -> bool {
        let behind = self.next.wrapping_sub(1).wrapping_sub(number);
        match behind {
            _ if self.words.is_empty() => true,
            0..WINDOW => self.words[(number / 64 % WORDS) as usize] & 1 << (number % 64) == 0,
            // Half of all numbers are ahead.
            WINDOW.. => behind > u32::MAX / 2,
        }
    }

    /// Takes a new number.
    pub(crate) fn accept(&mut self, number: u32) {
        if self.words.is_empty() {
            self.words = vec![0; WORDS as usize];
            self.next = number;
        }
        let ahead = number.wrapping_sub(self.next);
        if ahead <= u32::MAX / 2 {
            for skipped in 0..=ahead.min(WINDOW - 1) {
                let cleared = number.wrapping_sub(skipped);
                self.words[(cleared / 64 % WORDS) as usize] &= !(1 << (cleared % 64));
            }
            self.next = number.wrapping_add(1);
        }
        self.words[(number / 64 % WORDS) as usize] |= 1 << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plait_base::{Random, SeededRandom};

    use super::*;

    #[test]
    fn each_number_is_new_once_also_where_numbers_wrap() {
        let mut random = SeededRandom::new([9; 32]);
        let (mut repeats, mut seen, mut base) = (Repeats::default(), BTreeSet::new(), (1_u64 << 32) - 20_000);
        let mut highest = 0;
        for _ in 0..200_000 {
            let number = base + random.next_u64() % 30_000;
            let is_recent = highest == 0 || highest < number + u64::from(WINDOW);
            let is_new = is_recent && !seen.contains(&number);
            assert_eq!(repeats.is_new(number as u32), is_new, "{number} after {highest}");
            if is_new {
                repeats.accept(number as u32);
                seen.insert(number);
                highest = highest.max(number);
            }
            base += random.next_u64() % 2;
        }
    }
}
