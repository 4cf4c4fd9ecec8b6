//! How much of it is right, given the plain text.

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
    /// Right of seen: 0 to 1, and 0 if nothing was seen.
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
        let found = at_distance.windows(differences.len()).position(|window| window == differences)?;
        // The first difference is that of the second byte compared.
        let place = (found + LEAD) as u64;
        Some(Self { plain, offset: place.wrapping_sub(skipped as u64).wrapping_sub(longest.start) })
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

/// A line of the table: how much an eavesdropper reads when the stream visits the path for so long at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visits {
    /// Bytes of the stream seen without a gap.
    pub length: usize,
    /// Visits attacked, each on its own.
    pub count: usize,
    /// The outcome over all of them.
    pub score: Score,
}

/// Cuts a scrambled stream into visits of `length` bytes that alternate between this path and one that nobody
/// listens to, and attacks up to `most` of those on this path, each on its own. `plain` is only compared with.
///
/// The first visit is the other path's, as protocol and paper demand.
#[must_use]
pub fn fraction_by_visit(
    scrambled: &[u8],
    plain: &[u8],
    length: usize,
    most: usize,
    model: &Model,
    effort: Effort,
) -> Visits {
    let mut visits = Visits { length, count: 0, score: Score::default() };
    let ours =
        scrambled.chunks(length).enumerate().skip(1).step_by(2).filter(|(_, visit)| visit.len() == length);
    for (number, visit) in ours.take(most) {
        let start = number * length;
        let run = Run { start: start as u64, scrambled: visit.to_vec() };
        let truth = Truth { plain, offset: 0 };
        let score = truth.score(&read_runs(&[run], &[], model, effort));
        visits.count += 1;
        visits.score.seen += score.seen;
        visits.score.right += score.right;
    }
    visits
}
