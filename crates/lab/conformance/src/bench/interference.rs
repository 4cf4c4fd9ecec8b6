//! The table of interference: the cost of each kind on one path of two, beside the honest path alone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plait_bench::Table;

use super::Place;
use crate::attacks::cases::Outcome;
use crate::attacks::cases::interference::{self, KINDS, Kind, Measured};

/// Bytes of a full transfer: each way, and one way.
const BOTH_WAYS: u64 = 25_000_000;
const ONE_WAY: u64 = 40_000_000;
/// Goals: time to the last byte as a multiple of the honest path's alone, and the longest gap at a reader.
const MOST: f64 = 1.3;
const LONGEST_GAP: Duration = Duration::from_secs(1);
/// Goal: time limit of the programs after the last byte.
const LONGEST_END: Duration = Duration::from_secs(3);
/// Time after which a transfer is given up, as a multiple of the honest path's time alone; and then some
/// time to end.
const GIVEN_UP: u32 = 3;

/// The load of a transfer.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    /// Bytes; `None`: those of the goal.
    pub(super) size: Option<u64>,
    /// From the client to the server only.
    pub(super) is_one_way: bool,
}

impl Amount {
    fn sizes(self) -> [u64; 2] {
        match self.is_one_way {
            true => [self.size.unwrap_or(ONE_WAY), 0],
            false => [self.size.unwrap_or(BOTH_WAYS); 2],
        }
    }
}

/// Runs the kinds that `wants` names, a line each; returns false if one misses a goal.
pub(super) fn run(place: &Place<'_>, amount: Amount, wants: impl Fn(&str) -> bool) -> Result<bool> {
    let (began, sizes) = (Instant::now(), amount.sizes());
    println!("{} and {} bytes up and down, over two paths of 25 Mbit/s and 20 ms", sizes[0], sizes[1]);
    let mut alone = Duration::ZERO;
    for path in ["a", "b"] {
        let measured =
            place.with(&format!("alone-{path}"), |context| interference::alone(context, path, sizes))?;
        ensure!(measured.outcome == Outcome::Equal, "path {path} alone: {:?}", measured.outcome);
        let (seconds, gap) = (measured.time.as_secs_f64(), measured.gap.as_millis());
        println!("path {path} alone: {seconds:.2} s, longest gap {gap} ms");
        // The two are alike: the slower run is nearer to what a path can do on this machine.
        alone = alone.max(measured.time);
    }
    let table = Table::new(42, [("bytes", 6), ("time", 7), ("ratio", 6), ("gap", 7), ("end", 7)]);
    println!("\n{}", table.head("interference"));
    let limit = alone * GIVEN_UP + 2 * LONGEST_END;
    let (mut missed, mut count) = (Vec::new(), 0);
    let kinds = KINDS.iter().map(|kind| if amount.is_one_way { kind.with_a_silent_server() } else { *kind });
    for kind in &kinds.filter(|kind| wants(&kind.name())).collect::<Vec<_>>() {
        let measured = place
            .with(&kind.name(), |context| interference::under(context, kind, sizes, limit))
            .with_context(|| kind.name())?;
        count += 1;
        if !print_row(&table, kind, &measured, alone) {
            missed.push(kind.name());
        }
    }
    ensure!(count > 0, "no kind of interference is called so; `attacks list` names them");
    println!("\n{count} kinds in {} s, {} missed a goal", began.elapsed().as_secs(), missed.len());
    for name in &missed {
        println!("    {name}");
    }
    Ok(missed.is_empty())
}

/// Prints a line; returns whether it meets the goals.
fn print_row(table: &Table, kind: &Kind, measured: &Measured, alone: Duration) -> bool {
    let Measured { outcome, time, ending, gap, evidence } = measured;
    let ratio = time.as_secs_f64() / alone.as_secs_f64();
    let mut missed = Vec::new();
    let bytes = match outcome {
        Outcome::Equal => "equal",
        Outcome::Error(text) | Outcome::Deceived(text) => {
            missed.push(text.clone());
            "WRONG"
        }
        Outcome::Hung(text) => {
            missed.push(format!("given up: {text}"));
            "STUCK"
        }
    };
    if ratio > MOST {
        missed.push(format!("slower than {MOST} times the honest path alone"));
    }
    if *gap >= LONGEST_GAP {
        missed.push("nothing to read for a second".to_owned());
    }
    if *ending > LONGEST_END {
        missed.push("the programs do not end".to_owned());
    }
    let evidence = match evidence {
        Ok(text) => text.clone(),
        Err(error) => {
            missed.push(error.to_string());
            String::new()
        }
    };
    let verdict = if missed.is_empty() { "ok".to_owned() } else { format!("MISSED: {};", missed.join("; ")) };
    let figures = [
        bytes.to_owned(),
        format!("{:.1} s", time.as_secs_f64()),
        format!("{ratio:.2}"),
        format!("{} ms", gap.as_millis()),
        format!("{} ms", ending.as_millis()),
    ];
    println!("{}", table.row(&kind.name(), figures, &format!("{verdict} {evidence}")));
    missed.is_empty()
}
