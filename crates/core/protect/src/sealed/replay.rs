//! The replay window of one subflow and direction (RFC 6479).

/// Counters behind the highest that are remembered.
const WINDOW: u64 = 1024;
/// One word more than the window: the oldest word is cleared as a whole.
const WORDS: u64 = WINDOW / 64 + 1;

/// The counters that have arrived. A counter is accepted once, and only if it is within the last 1,024.
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    words: [u64; WORDS as usize],
    /// The counter after the highest that was accepted.
    next: u64,
    /// Number of accepted counters.
    count: u64,
}

impl ReplayWindow {
    pub(super) const fn new() -> Self {
        Self { words: [0; WORDS as usize], next: 0, count: 0 }
    }

    /// Returns the counter after the highest that was accepted.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of accepted counters.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the counter with these lower 32 bits that is closest to the next one.
    pub(super) const fn expand(&self, wire: u32) -> u64 {
        let ahead = wire.wrapping_sub(self.next as u32).cast_signed();
        match self.next.checked_add_signed(ahead as i64) {
            Some(counter) => counter,
            // Before the first counter there is none.
            None => self.next.wrapping_add(wire.wrapping_sub(self.next as u32) as u64),
        }
    }

    /// Whether this counter is new. Nothing changes: the datagram may be forged.
    pub(super) const fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        if self.next - counter > WINDOW {
            return false;
        }
        self.words[(counter / 64 % WORDS) as usize] & 1 << (counter % 64) == 0
    }

    /// Accepts the counter of a verified datagram, which is new.
    pub(super) fn accept(&mut self, counter: u64) {
        if counter >= self.next {
            let (newest, word) = (self.next.saturating_sub(1) / 64, counter / 64);
            for cleared in (newest + 1..=word).rev().take(WORDS as usize) {
                self.words[(cleared % WORDS) as usize] = 0;
            }
            self.next = counter + 1;
        }
        self.words[(counter / 64 % WORDS) as usize] |= 1 << (counter % 64);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plait_base::{Random, SeededRandom};

    use super::*;

    #[test]
    fn the_window_accepts_what_a_list_of_all_counters_accepts() {
        let mut random = SeededRandom::new([6; 32]);
        for span in [3, 70, 1500, 5000, 200_000] {
            let (mut window, mut seen, mut base) = (ReplayWindow::new(), BTreeSet::new(), 0);
            for _ in 0..20_000 {
                let counter = base + random.next_u64() % span;
                let highest = seen.last().copied();
                let is_recent = highest.is_none_or(|highest: u64| highest < counter + WINDOW);
                let is_new = is_recent && !seen.contains(&counter);
                assert_eq!(window.is_new(counter), is_new, "{counter} after {highest:?}");
                if is_new {
                    window.accept(counter);
                    seen.insert(counter);
                }
                base += random.next_u64() % 3;
            }
            assert_eq!(window.count(), seen.len() as u64);
        }
    }

    #[test]
    fn a_counter_of_32_bits_is_the_closest_one() {
        const WRAP: u64 = 1 << 32;
        let mut window = ReplayWindow::new();
        assert_eq!(window.expand(5), 5);
        assert_eq!(window.expand(u32::MAX), u64::from(u32::MAX), "there is none before the first");
        window.accept(WRAP - 2);
        assert_eq!(window.expand(1), WRAP + 1);
        window.accept(WRAP + 1);
        assert_eq!((window.expand(u32::MAX), window.expand(2)), (WRAP - 1, WRAP + 2));
    }
}
