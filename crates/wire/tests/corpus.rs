//! Replays the seeds of the fuzz targets, as they are, with every bit flipped, and truncated at every
//! length; so a build without cargo-fuzz walks over the same ground.

mod properties;

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn packets() {
    replay("packet", 70, properties::packet);
}

#[test]
fn option_fields() {
    replay("options", 30, properties::options_field);
}

#[test]
fn eno_contents() {
    replay("eno", 8, properties::suboptions);
}

/// At least `seeds` files, each of which says something.
fn replay(target: &str, seeds: usize, property: fn(&[u8]) -> bool) {
    let files = corpus(target);
    assert!(files.len() >= seeds, "{} seeds for {target}", files.len());
    for file in files {
        let seed = fs::read(&file).expect("the corpus is readable");
        assert!(property(&seed), "{} says nothing", file.display());
        for length in 0..seed.len() {
            property(&seed[..length]);
        }
        let mut mutant = seed.clone();
        for bit in 0..seed.len().min(MUTATED) * 8 {
            mutant[bit / 8] ^= 1 << (bit % 8);
            property(&mutant);
            mutant[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Headers and options lie within the first bytes; behind them is payload.
const MUTATED: usize = 160;

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is checked in");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}
