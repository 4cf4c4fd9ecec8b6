//! From runs to text.

use crate::columns::{Columns, LEAD, PERIOD, Run};
use crate::crib::{locate_crib, settle};
use crate::language::Model;
use crate::solve::{Effort, solve};

/// The text recovered from one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovered {
    /// Place of the first byte, counted like the run's.
    pub start: u64,
    /// As many bytes as the run has.
    pub plain: Vec<u8>,
    /// The 64 bytes before the run: they used other paths, and their traces in this run reveal them.
    pub before: Vec<u8>,
    /// Bits per byte that the model needs for it: of a run of a few hundred bytes, below 4.4 is
    /// text and above 5 noise.
    pub bits_per_byte: f32,
    /// Columns that a crib or the run before settled, 0 to 65.
    pub settled: usize,
}

/// Attacks each run on its own: with the cribs that lie in it, with what an earlier run ended in where fewer than
/// 64 bytes are missing between the two, and else with the model alone.
#[must_use]
pub fn read_runs(runs: &[Run], cribs: &[Vec<u8>], model: &Model, effort: Effort) -> Vec<Recovered> {
    let mut all: Vec<Recovered> = Vec::new();
    for run in runs.iter().filter(|run| !run.scrambled.is_empty()) {
        let columns = Columns::new(run);
        let mut known = [None; PERIOD];
        let is_sure =
            |earlier: &&Recovered| earlier.bits_per_byte < TEXT && earlier.plain.len() >= 4 * PERIOD;
        if let Some(earlier) = all.last().filter(is_sure) {
            settle_from(&columns, run.start, earlier, &mut known);
        }
        for crib in cribs {
            for place in locate_crib(&columns, crib) {
                settle(&columns, place, crib, &mut known);
            }
        }
        let solution = solve(&columns, &known, model, effort);
        let mut before = columns.plain(&solution.first);
        let plain = before.split_off(LEAD);
        all.push(Recovered {
            start: run.start,
            plain,
            before,
            bits_per_byte: solution.bits_per_byte,
            settled: known.iter().flatten().count(),
        });
    }
    all
}

/// Settles columns with the end of the run before, if it reaches into the 64 bytes before this one.
fn settle_from(columns: &Columns, start: u64, earlier: &Recovered, known: &mut [Option<u8>; PERIOD]) {
    let end = earlier.start.wrapping_add(earlier.plain.len() as u64);
    let gap = start.wrapping_sub(end);
    let Some(reach) = usize::try_from(gap).ok().and_then(|gap| LEAD.checked_sub(gap)) else { return };
    let reach = reach.min(earlier.plain.len());
    let place = LEAD - gap as usize - reach;
    settle(columns, place, &earlier.plain[earlier.plain.len() - reach..], known);
}

/// Bits per byte below which a solution of several rows is trusted with another. English the model has never seen
/// takes 2.2 to 4.2, wrong solutions of more than three rows above 5.
const TEXT: f32 = 4.4;
