//! The recovered fraction as a function of the bytes per visit of a text, several as one:
//! `cargo run --release -p plait-cryptanalysis --bin exposure -- TEXT...`
//!
//! For each length, visits all over the text are attacked, each on its own, until an eavesdropper has seen 64 KiB. The
//! spread is that of the text's eighths.

#![allow(clippy::disallowed_methods, reason = "texts are files, and all processors help")]

use std::{env, fs, io, thread};

use plait_cryptanalysis::{Effort, Model, fraction_by_visit};

/// Bytes seen that a row rests on.
const SEEN: usize = 64 * 1024;
const LENGTHS: [usize; 11] = [32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 16_384];

fn main() -> io::Result<()> {
    let texts = env::args_os().skip(1).map(fs::read).collect::<io::Result<Vec<_>>>()?;
    let plain = texts.concat();
    if plain.is_empty() {
        return Err(io::Error::other("usage: exposure TEXT..."));
    }
    let scrambled = scramble(&plain);
    let model = Model::shipped();
    println!("{:>8} {:>8} {:>10} {:>10}   spread", "bytes", "visits", "seen", "recovered");
    thread::scope(|scope| {
        let (scrambled, plain, model) = (&scrambled, &plain, &model);
        let row = |length: usize| {
            let count = SEEN.div_ceil(length);
            move || fraction_by_visit(scrambled, plain, length, count, model, Effort::default())
        };
        for row in LENGTHS.map(|length| scope.spawn(row(length))) {
            let visits = row.join().expect("no attack panics");
            let (lowest, highest) = visits.spread(8);
            println!(
                "{:>8} {:>8} {:>10} {:>9.1}%   {:.1} to {:.1} %",
                visits.length,
                visits.scores.len(),
                visits.score().seen,
                visits.score().fraction() * 100.0,
                lowest * 100.0,
                highest * 100.0
            );
        }
    });
    Ok(())
}

/// Kato 2017, III-B, word for word, from a window of zeros: the start value makes no difference to the attack.
fn scramble(plain: &[u8]) -> Vec<u8> {
    (0..plain.len())
        .map(|at| plain[at.saturating_sub(64)..=at].iter().fold(0, |sum, byte| sum ^ byte))
        .collect()
}
