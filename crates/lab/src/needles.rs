//! Whether any eight bytes in a row of a known text occur somewhere else.

/// Length of a run: long enough that random bytes do not match (2^-64 per pair of places), short enough that no
/// clear text hides.
pub const RUN: usize = 8;

/// Bits of the filter's index: 2^20 bits are 128 KiB, which stay in the second-level cache.
const FILTER_BITS: u32 = 20;

/// All runs of [`RUN`] bytes of a text, to be looked for. Runs of one repeated byte (padding, zeros) are left out: they
/// prove nothing.
#[derive(Clone, Debug)]
pub struct Needles {
    /// Sorted, each once.
    runs: Vec<u64>,
    /// One bit per hash of a run.
    filter: Vec<u64>,
}

impl Needles {
    /// The runs of `text`; none if it is shorter than a run.
    pub fn of(text: &[u8]) -> Self {
        let mut runs: Vec<u64> = text.windows(RUN).map(number).filter(|run| !is_constant(*run)).collect();
        runs.sort_unstable();
        runs.dedup();
        let mut filter = vec![0_u64; 1 << (FILTER_BITS - 6)];
        for run in &runs {
            let bit = hash(*run);
            filter[bit / 64] |= 1 << (bit % 64);
        }
        Self { runs, filter }
    }

    /// Different runs to look for.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Places in `bytes` at which a run of the text begins.
    pub fn count_in(&self, bytes: &[u8]) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let Some((first, rest)) = bytes.split_first_chunk::<RUN>() else { return 0 };
        let mut window = u64::from_be_bytes(*first);
        let mut found = u64::from(self.has(window));
        for byte in rest {
            window = window << 8 | u64::from(*byte);
            found += u64::from(self.has(window));
        }
        found
    }

    fn has(&self, run: u64) -> bool {
        let bit = hash(run);
        self.filter[bit / 64] >> (bit % 64) & 1 == 1 && self.runs.binary_search(&run).is_ok()
    }
}

fn number(window: &[u8]) -> u64 {
    window.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn is_constant(run: u64) -> bool {
    run == run.rotate_left(8)
}

/// The upper bits of a product with an odd constant (2^64 over the golden ratio).
fn hash(run: u64) -> usize {
    (run.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_in_a_row_are_found_at_any_place_and_seven_are_not() {
        let needles = Needles::of(b"The quick brown fox jumps over the lazy dog");
        for before in 0..20 {
            let mut hay = vec![b'#'; before];
            hay.extend(b"brown fo");
            assert_eq!(needles.count_in(&hay), 1);
            hay.extend(b"--");
            assert_eq!(needles.count_in(&hay), 1);
            hay[before + 3] ^= 1;
            assert_eq!(needles.count_in(&hay), 0);
        }
        assert_eq!(needles.count_in(b"brown f#"), 0);
        assert_eq!(needles.count_in(b"brown"), 0);
    }

    #[test]
    fn the_count_is_that_of_the_slow_search() {
        let text: Vec<u8> = (0..400_u32).map(|i| (i * i % 7) as u8).collect();
        let needles = Needles::of(&text[..100]);
        let slow = text
            .windows(RUN)
            .filter(|window| text[..100].windows(RUN).any(|run| run == *window))
            .filter(|window| window.iter().any(|byte| *byte != window[0]))
            .count();
        assert_eq!(needles.count_in(&text), slow as u64);
    }

    #[test]
    fn padding_is_no_text() {
        assert!(Needles::of(&[0; 100]).is_empty());
        assert!(Needles::of(b"short").is_empty());
    }
}
