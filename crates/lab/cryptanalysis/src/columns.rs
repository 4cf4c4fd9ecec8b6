//! The relation that breaks scrambling, as a table: 65 columns whose inner differences are on the wire.

/// Distance of the two plain bytes whose XOR two neighbours on the wire give away.
pub const PERIOD: usize = 65;

/// Bytes in front of a run that its first scrambled byte already mixes in.
pub(crate) const LEAD: usize = PERIOD - 1;

/// Scrambled bytes seen without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Place of the first byte in the stream, counted from the first byte seen of the stream or from any
    /// other fixed place: only differences count.
    pub start: u64,
    /// The bytes on the wire.
    pub scrambled: Vec<u8>,
}

/// What a run says about the plain text: for each byte from 64 before its start to its end, the XOR with the
/// first byte of the same column. Columns are the places modulo 65, counted from 64 before the start.
#[derive(Clone, Debug)]
pub struct Columns {
    differences: Vec<u8>,
    /// XOR of the first 65 plain bytes, which is the first scrambled byte; `None` of an empty run.
    sum: Option<u8>,
}

impl Columns {
    /// Sorts a run into columns.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let mut differences = vec![0; PERIOD.min(LEAD + run.scrambled.len())];
        for (at, neighbours) in run.scrambled.windows(2).enumerate() {
            differences.push(differences[at] ^ neighbours[0] ^ neighbours[1]);
        }
        Self { differences, sum: run.scrambled.first().copied() }
    }

    /// Bytes covered: the run and the 64 before it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.differences.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sum.is_none()
    }

    /// Rows of 65 bytes; the last may be shorter.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.len().div_ceil(PERIOD)
    }

    /// XOR of the plain byte in this row and column with that of the column's first; `None` behind the end.
    #[must_use]
    pub fn difference(&self, row: usize, column: usize) -> Option<u8> {
        self.differences.get(row * PERIOD + column).copied()
    }

    /// The plain text from 64 bytes before the run to its end, given the first byte of each column.
    #[must_use]
    pub fn plain(&self, first: &[u8; PERIOD]) -> Vec<u8> {
        self.differences.chunks(PERIOD).flat_map(|row| row.iter().zip(first).map(|(a, b)| a ^ b)).collect()
    }

    /// Whether these columns add up to what was on the wire. Right ones do; of wrong ones, one in 256.
    #[must_use]
    pub fn adds_up(&self, first: &[u8; PERIOD]) -> bool {
        self.sum.is_none_or(|sum| first.iter().fold(0, |sum, byte| sum ^ byte) == sum)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Columns, PERIOD, Run};

    /// Kato 2017, III-B, word for word: for tests that need something to attack.
    pub(crate) fn scramble(plain: &[u8]) -> Vec<u8> {
        (0..plain.len())
            .map(|at| plain[at.saturating_sub(64)..=at].iter().fold(0, |sum, byte| sum ^ byte))
            .collect()
    }

    #[test]
    fn the_right_first_bytes_give_the_run_and_64_bytes_before_it() {
        let plain: Vec<u8> = (0..1000_u32).map(|at| (at * at / 7) as u8).collect();
        let wire = scramble(&plain);
        for (from, to) in [(64, 1000), (100, 101), (300, 364), (300, 430), (64, 66)] {
            let columns = Columns::new(&Run { start: 0, scrambled: wire[from..to].to_vec() });
            let first: [u8; PERIOD] = plain[from - 64..=from].try_into().expect("65 bytes");
            assert!(columns.adds_up(&first));
            assert_eq!(columns.plain(&first), plain[from - 64..to]);
            let mut wrong = first;
            wrong[3] ^= 1;
            assert!(!columns.adds_up(&wrong));
            assert_ne!(columns.plain(&wrong), plain[from - 64..to]);
        }
    }

    #[test]
    fn an_empty_run_covers_nothing_that_is_known() {
        let columns = Columns::new(&Run { start: 0, scrambled: vec![] });
        assert!(columns.is_empty());
        assert_eq!(columns.difference(1, 0), None);
    }
}
