//! Ciphertext only: the first bytes of the columns that make text of all rows.
//!
//! Column by column from the left, a beam of the best guesses: each of the 256 possible bytes of the next column
//! is judged by how likely it makes the next byte of every row. Guesses that agree in the last four columns have
//! the same future, so only the better one stays. A second pass knows how each row ends, and so how the next begins.

use crate::columns::{Columns, PERIOD};
use crate::language::{CONTEXT, Model, NextByte};

/// The effort for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Most rows of 65 bytes that are used; more give nothing new.
    pub rows: usize,
    /// Rows times guesses that are followed at a time; from eight rows on, every row makes the right guess
    /// stand out more, and fewer are followed.
    pub breadth: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { rows: 64, breadth: 2048 }
    }
}

/// The outcome for one run.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The first byte of each column.
    pub first: [u8; PERIOD],
    /// Bits per byte that the model needs for it.
    pub bits_per_byte: f32,
}

/// Searches the columns' first bytes. Known ones stay as they are.
#[must_use]
pub fn solve(columns: &Columns, known: &[Option<u8>; PERIOD], model: &Model, effort: Effort) -> Solution {
    let search = Search { columns, known, model, rows: columns.rows().min(effort.rows), effort };
    let once = search.pass(None);
    let twice = search.pass(Some(&once));
    let plain = columns.plain(&twice);
    let judged = &plain[..plain.len().min(effort.rows * PERIOD)];
    Solution { first: twice, bits_per_byte: model.bits_per_byte(judged) }
}

struct Search<'a> {
    columns: &'a Columns,
    known: &'a [Option<u8>; PERIOD],
    model: &'a Model,
    rows: usize,
    effort: Effort,
}

#[derive(Clone)]
struct Guess {
    score: f32,
    first: [u8; PERIOD],
}

impl Search<'_> {
    /// One pass from the left; `wrapped` is what an earlier one found.
    fn pass(&self, wrapped: Option<&[u8; PERIOD]>) -> [u8; PERIOD] {
        let rows = self.rows.max(1);
        let width = (self.effort.breadth / rows * 8 / rows.max(8)).max(8);
        let mut beam = vec![Guess { score: 0.0, first: [0; PERIOD] }];
        for column in 0..PERIOD {
            beam = self.next_column(&beam, column, wrapped, width);
        }
        let adding_up = beam.iter().find(|guess| self.columns.adds_up(&guess.first));
        adding_up.unwrap_or(&beam[0]).first
    }

    fn next_column(
        &self,
        beam: &[Guess],
        column: usize,
        wrapped: Option<&[u8; PERIOD]>,
        width: usize,
    ) -> Vec<Guess> {
        let rows: Vec<u8> = (0..self.rows).map_while(|row| self.columns.difference(row, column)).collect();
        let contexts = self.contexts(beam, column, rows.len(), wrapped);
        let next_bytes = NextBytes::new(self.model, &contexts);
        let mut scored = Vec::new();
        let mut best = f32::NEG_INFINITY;
        for (at, guess) in beam.iter().enumerate() {
            let mut sums = [0.0_f32; 256];
            for (row, &difference) in rows.iter().enumerate() {
                let likely = next_bytes.behind(&contexts[at * rows.len() + row]);
                add_for_each_first(&mut sums, likely, difference);
            }
            for (first, sum) in (0..=255_u8).zip(sums) {
                let score = guess.score + sum;
                if self.known[column].is_none_or(|known| known == first) && score > best - HOPELESS {
                    best = best.max(score);
                    scored.push((score, at as u32, first));
                }
            }
        }
        let guesses = best_first(scored, 2 * width).into_iter().map(|(score, at, byte)| {
            let mut first = beam[at as usize].first;
            first[column] = byte;
            Guess { score, first }
        });
        let last_four = |guess: &Guess| -> [u8; CONTEXT] {
            std::array::from_fn(|back| column.checked_sub(back).map_or(0, |column| guess.first[column]))
        };
        let mut kept: Vec<Guess> = Vec::with_capacity(width);
        let mut futures = std::collections::BTreeSet::new();
        for guess in guesses {
            if kept.len() < width && futures.insert(last_four(&guess)) {
                kept.push(guess);
            }
        }
        kept
    }

    /// The bytes before this column, for each guess and each row.
    fn contexts(
        &self,
        beam: &[Guess],
        column: usize,
        rows: usize,
        wrapped: Option<&[u8; PERIOD]>,
    ) -> Vec<Context> {
        let before = |guess: &Guess, row: usize| {
            let mut context = Context::default();
            for back in (1..=CONTEXT).rev() {
                let (row, column, first) = match (column.checked_sub(back), wrapped) {
                    (Some(column), _) => (Some(row), column, &guess.first),
                    (None, Some(wrapped)) => (row.checked_sub(1), PERIOD + column - back, wrapped),
                    (None, None) => continue,
                };
                let difference = row.and_then(|row| self.columns.difference(row, column));
                if let Some(difference) = difference {
                    context.push(first[column] ^ difference);
                }
            }
            context
        };
        beam.iter().flat_map(|guess| (0..rows).map(move |row| before(guess, row))).collect()
    }
}

/// Adds to the sum of each possible first byte what its row's byte is worth, which is the first byte XOR
/// `difference`. In fours, so that the order within them is fixed when this is compiled.
fn add_for_each_first(sums: &mut [f32; 256], likely: &NextByte, difference: u8) {
    let fours = usize::from(difference >> 2);
    match difference & 3 {
        0 => add_fours::<0>(sums, likely, fours),
        1 => add_fours::<1>(sums, likely, fours),
        2 => add_fours::<2>(sums, likely, fours),
        _ => add_fours::<3>(sums, likely, fours),
    }
}

fn add_fours<const WITHIN: usize>(sums: &mut [f32; 256], likely: &NextByte, fours: usize) {
    let (likely, _) = likely.as_chunks::<4>();
    for (at, sums) in sums.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let likely = &likely[(at ^ fours) & 63];
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum += likely[place ^ WITHIN];
        }
    }
}

/// A guess that many bits behind the best is not followed.
const HOPELESS: f32 = 40.0;

/// Up to four bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Context {
    bytes: [u8; CONTEXT],
    length: usize,
}

impl Context {
    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
}

/// The model's answers to all contexts of a column, each worked out once.
struct NextBytes {
    contexts: Vec<Context>,
    likely: Vec<NextByte>,
}

impl NextBytes {
    fn new(model: &Model, contexts: &[Context]) -> Self {
        let mut contexts = contexts.to_vec();
        contexts.sort_unstable();
        contexts.dedup();
        let likely =
            contexts.iter().map(|context| model.next_byte(&context.bytes[..context.length])).collect();
        Self { contexts, likely }
    }

    fn behind(&self, context: &Context) -> &NextByte {
        let at = self.contexts.binary_search(context).expect("all contexts of the column are in");
        &self.likely[at]
    }
}

/// The `count` highest, the highest first; equal ones in the order of their places, the same in every run.
fn best_first(mut scored: Vec<(f32, u32, u8)>, count: usize) -> Vec<(f32, u32, u8)> {
    let order = |one: &(f32, u32, u8), other: &(f32, u32, u8)| {
        other.0.total_cmp(&one.0).then_with(|| (one.1, one.2).cmp(&(other.1, other.2)))
    };
    if scored.len() > count {
        scored.select_nth_unstable_by(count, order);
        scored.truncate(count);
    }
    scored.sort_unstable_by(order);
    scored
}
