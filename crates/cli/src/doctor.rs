//! `plait doctor`: what this machine lacks.

use anyhow::Context;
use std::io::{self, Write};

use crate::lack::{Check, Lack};

/// Tells about each check in a line; the first lack that matters is the result.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut missing: Option<Lack> = None;
    let mut out = io::stdout().lock();
    for check in Check::ALL {
        let outcome = check.check();
        writeln!(out, "{}", check.line(&outcome)).context("cannot write to standard output")?;
        if let (Err(lack), true, None) = (outcome, check.is_required(), &missing) {
            missing = Some(lack);
        }
    }
    missing.map_or(Ok(()), |lack| Err(lack.into()))
}
