//! What of the attacks is run, and how.

use anyhow::Result;
use clap::Args;

use crate::attacks::case::{Case, Context, Settings, all};
use crate::runner;

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
    for Case { name, about, is_quick, run: _ } in all() {
        println!("{name:<40} {} {about}", if is_quick { "quick" } else { "     " });
    }
}

/// Runs what was asked for; false if a case failed.
pub(crate) fn run(Selection { common }: &Selection) -> Result<bool> {
    let settings = Settings { plait: common.plait()?, size: common.size(SMALL) };
    let cases = all();
    let cases = cases.iter().map(|case| {
        let (column, row) = case.name.split_once('/').unwrap_or(("", &case.name));
        let settings = &settings;
        runner::Case {
            name: case.name.clone(),
            row: row.to_owned(),
            column: column.to_owned(),
            is_quick: case.is_quick,
            run: Box::new(move |directory| (case.run)(&Context { settings, directory })),
        }
    });
    runner::run(common, cases.collect())
}
