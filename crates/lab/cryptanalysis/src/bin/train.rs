//! Writes the model's table from texts: `train OUT ATTACKED... -- TEXT...`. See `model/train.sh`.
//!
//! It refuses texts that share a run of 40 bytes with one that the model is to be tested on.

#![allow(clippy::disallowed_methods, reason = "texts and tables are files")]

use std::ffi::OsString;
use std::{env, fs, io};

/// Longer than any phrase that two authors happen to share.
const RUN: usize = 40;

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: train OUT ATTACKED... -- TEXT...");
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let texts = arguments.iter().position(|word| word == "--").ok_or_else(usage)?;
    let texts = arguments.split_off(texts);
    let (out, attacked) = arguments.split_first().ok_or_else(usage)?;
    let read = |paths: &[OsString]| paths.iter().map(fs::read).collect::<io::Result<Vec<_>>>();
    let (attacked, names) = (read(attacked)?.concat(), &texts[1..]);
    let texts = read(names)?;
    for (text, name) in texts.iter().zip(names) {
        if let Some(run) = plait_cryptanalysis::shared_run(text, &attacked, RUN) {
            let run = String::from_utf8_lossy(run);
            return Err(io::Error::other(format!("{} is in an attacked text too: {run}", name.display())));
        }
    }
    let table = plait_cryptanalysis::train(&texts);
    println!("{} bytes of text, {} bytes of table", texts.iter().map(Vec::len).sum::<usize>(), table.len());
    fs::write(out, table)
}
