//! The recovered fraction as a function of the bytes per visit: `visits TEXT [VISITS]`.
//!
//! The stream visits two paths in turn; the eavesdropper listens to the second. Each visit is attacked on its own.

use std::{env, fs, io};

use attack::{Effort, Model, fraction_by_visit};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or_else(|| io::Error::other("usage: visits TEXT [VISITS]"))?;
    let most = arguments.next().map_or(Ok(20), |count| count.parse()).map_err(io::Error::other)?;
    let plain = fs::read(path)?;
    let scrambled = scramble(&plain);
    let model = Model::shipped();
    println!("{:>8} {:>8} {:>10}", "bytes", "visits", "recovered");
    for length in [32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 16_384] {
        let visits = fraction_by_visit(&scrambled, &plain, length, most, &model, Effort::default());
        if visits.count > 0 {
            println!("{length:>8} {:>8} {:>9.1}%", visits.count, visits.score.fraction() * 100.0);
        }
    }
    Ok(())
}

/// Kato 2017, III-B, word for word, from a window of zeros: the start value makes no difference to the attack.
fn scramble(plain: &[u8]) -> Vec<u8> {
    (0..plain.len())
        .map(|at| plain[at.saturating_sub(64)..=at].iter().fold(0, |sum, byte| sum ^ byte))
        .collect()
}
