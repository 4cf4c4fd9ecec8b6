//! Whether any eight bytes in a row of a known text occur somewhere else.

/// Length of a run: long enough that random bytes do not match (2^-64 per pair of places), short enough that no
/// clear text hides.
pub const RUN: usize = 8;

/// Runs per word of the filter at most, on average. Each sets three of its 64 bits, so that at most about a sixth of them are set, and one
/// in two hundred of other runs has to be looked for among those that belong to the word. No cache holds any of that for a large text.
const PER_WORD: usize = 4;

/// All runs of [`RUN`] bytes of a text, to be looked for. Runs of one repeated byte (padding, zeros) are left out: they
/// prove nothing.
#[derive(Clone, Debug)]
pub struct Needles {
    /// The hash of each run, sorted, each once: no two runs have the same.
    hashes: Vec<u64>,
    /// By the upper bits of a hash: three bits for each run that belongs here.
    filter: Vec<u64>,
    /// Where in `hashes` those that belong to each word of the filter begin; and their end.
    starts: Vec<u32>,
    /// How far a hash is shifted to be an index of the filter.
    shift: u32,
}

impl Needles {
    /// The runs of `text`; none if it is shorter than a run.
    pub fn of(text: &[u8]) -> Self {
        let runs = text.windows(RUN).map(number).filter(|run| !is_constant(*run));
        let mut hashes: Vec<u64> = runs.map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let words = hashes.len().div_ceil(PER_WORD).next_power_of_two().max(2);
        let shift = 64 - words.ilog2();
        let mut filter = vec![0; words];
        let mut starts = vec![0; words + 1];
        for &hash in &hashes {
            let word = (hash >> shift) as usize;
            filter[word] |= bits(hash);
            starts[word + 1] += 1;
        }
        for word in 0..words {
            starts[word + 1] += starts[word];
        }
        Self { hashes, filter, starts, shift }
    }

    /// Different runs to look for.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
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
        let hash = hash(run);
        self.passes(hash) && {
            let word = (hash >> self.shift) as usize;
            self.hashes[self.starts[word] as usize..self.starts[word + 1] as usize].contains(&hash)
        }
    }

    /// Whether the filter has nothing against it.
    fn passes(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.filter[(hash >> self.shift) as usize] & bits == bits
    }
}

/// The bits of a hash in its word of the filter. The lower ones of a product depend on few of the run's: the middle ones choose.
fn bits(hash: u64) -> u64 {
    let bit = |from: u32| 1 << (hash >> from & 63);
    bit(22) | bit(28) | bit(34)
}

fn number(window: &[u8]) -> u64 {
    window.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn is_constant(run: u64) -> bool {
    run == run.rotate_left(8)
}

/// A product with an odd constant (2^64 over the golden ratio), of the run folded upon itself: its middle bits depend on all of it, and
/// both steps can be undone, so that it says as much as the run does.
fn hash(run: u64) -> u64 {
    (run ^ run >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
    fn few_runs_of_other_bytes_pass_the_filter_of_a_large_text() {
        let noise = |seed: u64, length: usize| -> Vec<u8> {
            let mut state = seed;
            let step = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            std::iter::repeat_with(step).take(length).collect()
        };
        let needles = Needles::of(&noise(1, 1 << 18));
        let passing = |bytes: &[u8]| {
            let passes = |window: &&[u8]| needles.passes(hash(number(window)));
            bytes.windows(RUN).filter(passes).count()
        };
        let other = noise(2, 1 << 18);
        assert!(passing(&other) < other.len() / 60, "{} of {}", passing(&other), other.len());
        let text: Vec<u8> = crate::documents::diary(1 << 18);
        assert!(passing(&text) < text.len() / 60, "{} of {}", passing(&text), text.len());
    }

    #[test]
    fn padding_is_no_text() {
        assert!(Needles::of(&[0; 100]).is_empty());
        assert!(Needles::of(b"short").is_empty());
    }
}
