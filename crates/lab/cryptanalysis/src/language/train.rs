//! From texts to a table of counts.
//!
//! The table is a tree, written depth first. A node is the number of its edges (one byte), then for each edge its
//! byte, the count in steps of a quarter of a power of two, and, up to four bytes deep, the node behind it.

use std::collections::BTreeSet;

use super::CONTEXT;

/// A place in a text with what follows.
type Window = [u8; CONTEXT + 1];

/// Counts the texts and writes the table. Bytes of one text are not counted as behind those of another.
#[must_use]
pub fn train(texts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let windows = texts.iter().flat_map(|text| text.as_ref().windows(CONTEXT + 1));
    let mut windows: Vec<Window> = windows.filter_map(|window| window.first_chunk().copied()).collect();
    windows.sort_unstable();
    let mut table = Vec::new();
    write_node(&windows, 0, &mut table);
    table
}

/// The first run of `length` bytes of `text` that is in `other` as well, lines and blanks left out: a run has ten
/// different bytes at least. A model that was trained on one of them knows the other too well to be tested on it.
#[must_use]
pub fn shared_run<'a>(text: &'a [u8], other: &[u8], length: usize) -> Option<&'a [u8]> {
    let known: BTreeSet<&[u8]> = other.windows(length).collect();
    let says_something = |run: &&[u8]| run.iter().collect::<BTreeSet<_>>().len() >= 10;
    text.windows(length).find(|run| known.contains(run) && says_something(run))
}

fn write_node(windows: &[Window], depth: usize, table: &mut Vec<u8>) {
    let kept: Vec<&[Window]> = windows
        .chunk_by(|one, other| one[depth] == other[depth])
        .filter(|group| group.len() >= SELDOM[depth])
        .take(usize::from(u8::MAX))
        .collect();
    // At most 255: `take`.
    table.push(kept.len() as u8);
    for group in kept {
        table.extend([group[0][depth], level_of(group.len())]);
        if depth < CONTEXT {
            write_node(group, depth + 1, table);
        }
    }
}

/// What was met fewer times is left out, by depth: the deeper, the more there is and the less it says.
const SELDOM: [usize; CONTEXT + 1] = [1, 2, 3, 4, 4];

fn level_of(count: usize) -> u8 {
    ((count as f32).log2() * 4.0).round() as u8
}

/// The count that a level stands for.
pub(super) fn count_of(level: u8) -> f32 {
    (f32::from(level) / 4.0).exp2()
}
