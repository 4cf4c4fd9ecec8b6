//! `plait doctor`: what this machine lacks.

use anyhow::Context;
use std::io::{self, Write};

use crate::prerequisite::{Check, MissingPrerequisite};

/// Tells about each check in a line; the first missing prerequisite that matters is the result.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut first: Option<MissingPrerequisite> = None;
    let mut out = io::stdout().lock();
    for check in Check::ALL {
        let outcome = check.check();
        writeln!(out, "{}", check.line(&outcome)).context("cannot write to standard output")?;
        if let (Err(missing), true, None) = (outcome, check.is_required(), &first) {
            first = Some(missing);
        }
    }
    first.map_or(Ok(()), |missing| Err(missing.into()))
}
