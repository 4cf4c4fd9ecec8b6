//! Whether the lab tells the truth: two paths of 300 Mbit/s with captures, eavesdroppers that watch for a page and armed injectors, beside
//! the same paths bare; the kernel's Multipath TCP sends. Judges the goals on a quiet machine, and says when it was busy. Needs root:
//! `cargo bench -p plait-lab --bench truth`

#![allow(clippy::disallowed_methods)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;

use plait_bench::{Rounds, Spread};
use plait_lab::Watch;
use support::load::{self, Measured};

/// Rounds, in which both take turns.
const ROUNDS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
/// How much of its rate a path may miss.
const MISSING: f64 = 0.02;
/// How late the median of the probes may be, in milliseconds.
const LATE: f64 = 1.0;

fn main() -> ExitCode {
    let captures = std::env::temp_dir().join(format!("plait-lab-truth-{}", std::process::id()));
    let watch = Watch::start();
    let subjects = [("everything on", Some(captures.as_path())), ("bare", None)];
    let turn = |&mut (what, captures): &mut (&str, Option<&Path>), round| {
        let measured = load::measure(captures);
        print(round, what, &measured);
        if let Some(captures) = captures {
            std::fs::remove_dir_all(captures)?;
        }
        Ok(measured)
    };
    let all =
        Rounds::of(ROUNDS).take_turns(subjects, turn).expect("the lab is built, and its captures are there");
    let strain = watch.end();
    let median = |subject: usize, of: &dyn Fn(&Measured) -> f64| {
        Spread::of(all[subject].1.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
    };
    let (missing, late) = (median(0, &Measured::missing), median(0, &Measured::latest));
    let kept = median(0, &|one| one.goodput) / median(1, &|one| one.goodput);
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

fn print(round: u32, what: &str, measured: &Measured) {
    let Measured { rates: [a, b], goodput, late: [late_a, late_b], unread } = measured;
    println!(
        "round {round}, {what:<13}: a {a:.1}, b {b:.1} Mbit/s of 300; kernel MPTCP {goodput:.1} Mbit/s; probes late by {late_a:.2} and {late_b:.2} ms; {unread} bytes unread"
    );
}
