//! The correct share of the recovered text, given the plain text.

use crate::columns::{LEAD, PERIOD, Run};
use crate::language::Model;
use crate::recovery::{Recovered, read_runs};
use crate::solve::Effort;

/// Bytes recovered rightly, of those seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Score {
    /// Right.
    pub right: u64,
    /// Seen on the path and part of the plain text.
    pub seen: u64,
}

impl Score {
    /// Right bytes as a share of seen bytes: 0 to 1, and 0 if nothing was seen.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.right as f64 / self.seen as f64 }
    }
}

/// The plain text, and where in it the stream's place 0 lies.
pub struct Truth<'a> {
    plain: &'a [u8],
    /// Place in `plain` minus place in the stream, modulo 2^64.
    offset: u64,
}

impl<'a> Truth<'a> {
    /// Lays the plain text beside what was seen, by the differences that scrambling leaves. `None` if none of the
    /// runs belongs to it. This needs no recovered byte, so a failed attack is measured as well.
    #[must_use]
    pub fn align(plain: &'a [u8], runs: &[Run]) -> Option<Self> {
        let longest = runs.iter().max_by_key(|run| run.scrambled.len())?;
        // At the start of the stream, the first bytes are mixed with the key and not with plain text.
        let skipped = if longest.scrambled.len() > 2 * PERIOD { PERIOD } else { 0 };
        let end = longest.scrambled.len().min(skipped + COMPARED);
        let scrambled = &longest.scrambled[skipped..end];
        let differences: Vec<u8> =
            scrambled.windows(2).map(|neighbours| neighbours[0] ^ neighbours[1]).collect();
        if differences.is_empty() || plain.len() < differences.len() + PERIOD {
            return None;
        }
        let at_distance: Vec<u8> = (PERIOD..plain.len()).map(|at| plain[at] ^ plain[at - PERIOD]).collect();
        let found = at_distance.windows(differences.len()).enumerate().filter(|(_, at)| *at == differences);
        // The first difference is that of the second byte compared.
        let offsets = found.map(|(found, _)| {
            ((found + LEAD) as u64).wrapping_sub(skipped as u64).wrapping_sub(longest.start)
        });
        // A text may say the same thing twice: most of what was seen has to be in it.
        let is_in = |run: &&Run, offset| run.start.wrapping_add(offset) < plain.len() as u64;
        let offset = offsets.max_by_key(|&offset| runs.iter().filter(|run| is_in(run, offset)).count())?;
        Some(Self { plain, offset })
    }

    /// Compares what was recovered.
    #[must_use]
    pub fn score(&self, recovered: &[Recovered]) -> Score {
        let mut score = Score::default();
        for piece in recovered {
            for (place, byte) in (piece.start.wrapping_add(self.offset)..).zip(&piece.plain) {
                let truth = usize::try_from(place).ok().and_then(|place| self.plain.get(place));
                score.seen += u64::from(truth.is_some());
                score.right += u64::from(truth == Some(byte));
            }
        }
        score
    }
}

/// Bytes of a run that are laid beside the plain text to find its place.
const COMPARED: usize = 1024;

/// The part of a stream that an eavesdropper reads if the stream visits its path for this many bytes at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visits {
    /// Bytes of the stream seen without a gap.
    pub length: usize,
    /// The outcome of each visit, in the order of their places.
    pub scores: Vec<Score>,
}

impl Visits {
    /// The outcome over all of them.
    #[must_use]
    pub fn score(&self) -> Score {
        sum(&self.scores)
    }

    /// The lowest and the highest fraction of `parts` neighbouring parts of the stream; 0 and 0 without visits.
    #[must_use]
    pub fn spread(&self, parts: usize) -> (f64, f64) {
        let in_a_part = self.scores.len().div_ceil(parts.max(1)).max(1);
        let fractions = self.scores.chunks(in_a_part).map(|part| sum(part).fraction());
        let all: Vec<f64> = fractions.collect();
        (all.iter().copied().reduce(f64::min).unwrap_or(0.0), all.into_iter().reduce(f64::max).unwrap_or(0.0))
    }
}

fn sum(scores: &[Score]) -> Score {
    scores.iter().fold(Score::default(), |sum, score| Score {
        right: sum.right + score.right,
        seen: sum.seen + score.seen,
    })
}

/// Attacks `count` visits of `length` bytes to a scrambled stream, each on its own, as if nothing else of it had been
/// seen. Their places are spread evenly over the stream behind its first 65 bytes, which are not for this path.
/// `plain` is only compared with.
#[must_use]
pub fn fraction_by_visit(
    scrambled: &[u8],
    plain: &[u8],
    length: usize,
    count: usize,
    model: &Model,
    effort: Effort,
) -> Visits {
    let truth = Truth { plain, offset: 0 };
    let Some(room) = scrambled.len().checked_sub(PERIOD + length) else {
        return Visits { length, scores: Vec::new() };
    };
    let places = (0..count).map(|number| PERIOD + number * room / count);
    let score = |start: usize| {
        let run = Run { start: start as u64, scrambled: scrambled[start..start + length].to_vec() };
        truth.score(&read_runs(&[run], &[], model, effort))
    };
    Visits { length, scores: places.map(score).collect() }
}
