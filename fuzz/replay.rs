//! Walks over a corpus without a fuzzer: each seed as it is, with bits flipped, and cut short; what a fuzzer has found and named by
//! its hash as it is. Tests include this file next to the properties that the fuzz targets call.

#![allow(clippy::disallowed_methods, reason = "the corpora are files")]

use std::fs;
use std::path::{Path, PathBuf};

/// The part of each seed that is changed, and the share of its bits.
pub(crate) struct Effort {
    /// Bytes from the start.
    pub(crate) bytes: usize,
    /// One bit in so many.
    pub(crate) step: usize,
}

/// At least `seeds` files with names, each of which says something.
pub(crate) fn replay(target: &str, seeds: usize, effort: &Effort, property: fn(&[u8]) -> bool) {
    let (found, files): (Vec<_>, Vec<_>) = corpus(target).into_iter().partition(|file| is_found(file));
    assert!(files.len() >= seeds, "{} seeds for {target}", files.len());
    for file in found {
        property(&fs::read(&file).expect("the corpus is readable"));
    }
    for file in files {
        let seed = fs::read(&file).expect("the corpus is readable");
        assert!(property(&seed), "{} says nothing", file.display());
        for length in (0..seed.len()).step_by(effort.step) {
            property(&seed[..length]);
        }
        let mut mutant = seed.clone();
        for bit in (0..seed.len().min(effort.bytes) * 8).step_by(effort.step) {
            mutant[bit / 8] ^= 1 << (bit % 8);
            property(&mutant);
            mutant[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Whether a fuzzer has named it.
fn is_found(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is checked in");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}
