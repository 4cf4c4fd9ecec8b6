//! Table II of Kato 2017 and 2018, measured again: time for a message of 1280 bytes, and for 16 and 64 KiB.
//!
//! `cargo bench -p plait-figures --bench scramble`. All methods take turns in every round, so that a machine whose
//! speed swings slows all of them alike; the table shows medians, and ratios within the run.
//!
//! GCM is the library's best for this processor. `OPENSSL_ia32cap=:~0x600c0030000` takes AVX-512 and VAES away from it, as on
//! processors that have AES-NI alone.
#![expect(clippy::disallowed_methods, reason = "a bench asks for the time")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use plait_bench::{Rounds, Spread, Table};
use plait_figures::alternatives::methods::{Kind, Method, Work, methods};

/// Rounds in which every method has its turn.
const ROUNDS: NonZeroU32 = NonZeroU32::new(31).expect("not zero");

/// How long one turn takes, about.
const TURN: Duration = Duration::from_micros(400);

fn main() {
    for size in [1280, 16 * 1024, 64 * 1024] {
        let mut message = vec![0x41; size];
        let mut methods = timed();
        let repeats: Vec<u32> =
            methods.iter_mut().map(|method| repeats_in_a_turn(method, &mut message)).collect();
        let times = Rounds::of(ROUNDS)
            .take_turns(methods.into_iter().zip(repeats), |(method, repeats), _| {
                Ok(turn(method, &mut message, *repeats))
            })
            .expect("no turn fails");
        let median = |times: Vec<f64>| Spread::of(times).expect("a turn takes time").median;
        let medians = times.into_iter().map(|((method, _), times)| (method.name, median(times)));
        print_table(size, &medians.collect::<Vec<_>>());
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

fn print_table(size: usize, medians: &[(String, f64)]) {
    let of = |name: &str| medians.iter().find(|(method, _)| method == name).expect("in the list").1;
    let (revised, gcm) = (of(REVISED), of(GCM));
    println!("\n{size} bytes, medians of {ROUNDS} rounds in turn");
    let table = Table::new(26, [("us", 12), ("GB/s", 8), ("x revised", 12), ("x AES-128-GCM", 15)]);
    println!("{}", table.head(""));
    for (method, median) in medians {
        let [rate, of_revised, of_gcm] =
            [size as f64 / median / 1e9, revised / median, gcm / median].map(|figure| format!("{figure:.2}"));
        println!("{}", table.row(method, [format!("{:.3}", median * 1e6), rate, of_revised, of_gcm], ""));
    }
}
