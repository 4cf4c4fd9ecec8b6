//! What of the attacks is run, and how.

use anyhow::Result;
use clap::Args;

use crate::attacks::trial::{Context, Settings, Trial, all};
use crate::runner::{self, Case};

/// Bytes each way of a transfer under attack, for CI.
const SMALL: u64 = 8 << 20;

/// What to run and how.
#[derive(Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    common: runner::Options,
}

/// Prints the names.
pub(crate) fn list() {
    for Trial { name, about, is_quick, run: _ } in all() {
        println!("{name:<40} {} {about}", if is_quick { "quick" } else { "     " });
    }
}

/// Runs what was asked for; false if a case failed.
pub(crate) fn run(Selection { common }: &Selection) -> Result<bool> {
    let settings = Settings { plait: common.plait()?, size: common.size(SMALL) };
    let trials = all();
    let cases = trials.iter().map(|trial| {
        let (column, row) = trial.name.split_once('/').unwrap_or(("", &trial.name));
        let settings = &settings;
        Case {
            name: trial.name.clone(),
            row: row.to_owned(),
            column: column.to_owned(),
            is_quick: trial.is_quick,
            run: Box::new(move |directory| (trial.run)(&Context { settings, directory })),
        }
    });
    runner::run(common, cases.collect())
}
