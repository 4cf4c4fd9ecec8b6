//! Whether the lab tells the truth: two paths of 300 Mbit/s with captures, eavesdroppers that watch for a page and armed injectors, beside
//! the same paths bare; the kernel's Multipath TCP sends. Judges the goals on a quiet machine, and says when it was busy. Needs root:
//! `cargo bench -p plait-lab --bench truth`

#![allow(clippy::disallowed_methods)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

use plait_lab::{Spread, Watch};
use support::load::{self, Measured};

/// Rounds, in which both take turns.
const ROUNDS: usize = 5;
/// How much of its rate a path may miss.
const MISSING: f64 = 0.02;
/// How late the median of the probes may be, in milliseconds.
const LATE: f64 = 1.0;

fn main() -> ExitCode {
    let captures = std::env::temp_dir().join(format!("plait-lab-truth-{}", std::process::id()));
    let watch = Watch::start();
    let (mut full, mut bare) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        for (what, captures, all) in
            [("everything on", Some(captures.as_path()), &mut full), ("bare", None, &mut bare)]
        {
            let measured = load::measure(captures);
            print(round, what, &measured);
            all.push(measured);
        }
        let _ = std::fs::remove_dir_all(&captures);
    }
    let strain = watch.end();
    let median = |all: &[Measured], of: &dyn Fn(&Measured) -> f64| {
        Spread::of(all.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
    };
    let (missing, late) = (median(&full, &Measured::missing), median(&full, &Measured::latest));
    let kept = median(&full, &|one| one.goodput) / median(&bare, &|one| one.goodput);
    println!(
        "\nmedians of {ROUNDS}: {:.1} % of the rate missing (goal {:.0} %), probes {late:.2} ms late (goal {LATE} ms)",
        missing * 100.0,
        MISSING * 100.0
    );
    println!(
        "kernel MPTCP with everything on: {:.1} % of its goodput on bare paths (goal {:.0} %)",
        kept * 100.0,
        (1.0 - MISSING) * 100.0
    );
    println!("{strain}");
    let is_met = missing <= MISSING && late <= LATE && kept >= 1.0 - MISSING;
    println!("{}", if is_met { "the goals are met" } else { "the goals are MISSED" });
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(round: usize, what: &str, measured: &Measured) {
    let Measured { rates: [a, b], goodput, late: [late_a, late_b], unread } = measured;
    println!(
        "round {round}, {what:<13}: a {a:.1}, b {b:.1} Mbit/s of 300; kernel MPTCP {goodput:.1} Mbit/s; probes late by {late_a:.2} and {late_b:.2} ms; {unread} bytes unread"
    );
}
