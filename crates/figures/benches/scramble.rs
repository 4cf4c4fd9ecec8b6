//! Table II of Kato 2017 and 2018, measured again: time for a message of 1280 bytes, and for 16 and 64 KiB.
//!
//! `cargo bench -p plait-figures --bench scramble`. All methods take turns in every round, so that a machine whose
//! speed swings slows all of them alike; the table shows medians, and ratios within the run.
//!
//! GCM is the library's best for this processor. `OPENSSL_ia32cap=:~0x600c0030000` takes AVX-512 and VAES away from it, as on
//! processors that have AES-NI alone.
#![expect(clippy::disallowed_methods, reason = "a bench asks for the time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use plait_figures::alternatives::methods::{Kind, Method, Work, methods};

/// Rounds in which every method has its turn.
const ROUNDS: usize = 31;

/// How long one turn takes, about.
const TURN: Duration = Duration::from_micros(400);

fn main() {
    for size in [1280, 16 * 1024, 64 * 1024] {
        let mut methods = timed();
        let mut message = vec![0x41; size];
        let repeats: Vec<u32> =
            methods.iter_mut().map(|method| repeats_in_a_turn(method, &mut message)).collect();
        let mut times = vec![Vec::with_capacity(ROUNDS); methods.len()];
        for _ in 0..ROUNDS {
            for ((method, &repeats), times) in methods.iter_mut().zip(&repeats).zip(&mut times) {
                times.push(turn(method, &mut message, repeats));
            }
        }
        print_table(size, &methods, times);
    }
}

/// Encryption and scrambling, and the way back of what is no cipher.
fn timed() -> Vec<Timed> {
    let mut list = Vec::new();
    for Method { name, kind, hide, show } in methods() {
        list.push(Timed { name: name.clone(), work: hide });
        if kind == Kind::Scrambler {
            list.push(Timed { name: format!("{name}, back"), work: show });
        }
    }
    list
}

struct Timed {
    name: String,
    work: Work,
}

const GCM: &str = "AES-128-GCM";
const REVISED: &str = "revised";

fn repeats_in_a_turn(method: &mut Timed, message: &mut [u8]) -> u32 {
    let mut repeats = 1;
    while turn(method, message, repeats) * f64::from(repeats) < TURN.as_secs_f64() && repeats < 1 << 20 {
        repeats *= 2;
    }
    repeats
}

/// Seconds per message.
fn turn(method: &mut Timed, message: &mut [u8], repeats: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        (method.work)(black_box(message));
    }
    start.elapsed().as_secs_f64() / f64::from(repeats)
}

fn print_table(size: usize, methods: &[Timed], times: Vec<Vec<f64>>) {
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    let of = |name: &str| {
        let at = methods.iter().position(|method| method.name == name).expect("in the list");
        medians[at]
    };
    let (revised, gcm) = (of(REVISED), of(GCM));
    println!("\n{size} bytes, medians of {ROUNDS} rounds in turn");
    println!("{:<26} {:>12} {:>8} {:>12} {:>15}", "", "us", "GB/s", "x revised", "x AES-128-GCM");
    for (method, median) in methods.iter().zip(&medians) {
        println!(
            "{:<26} {:>12.3} {:>8.2} {:>12.2} {:>15.2}",
            method.name,
            median * 1e6,
            size as f64 / median / 1e9,
            revised / median,
            gcm / median
        );
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
