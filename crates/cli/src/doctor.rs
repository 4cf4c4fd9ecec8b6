//! `plait doctor`: what this machine lacks.

use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::io::{self, Write};

use crate::prerequisite::{Check, MissingPrerequisite};
use crate::status::SCHEMA;

/// Say what this machine lacks for plait, and what helps.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Tell it as JSON: {"schema": 1, "checks": [{"name", "ok", "required", "needed_by", and "found" or "why" and "fix"}]}.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Tells about each check; the first missing prerequisite that matters is the result.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut first: Option<MissingPrerequisite> = None;
        let mut out = io::stdout().lock();
        let mut checks = Vec::new();
        for check in Check::ALL {
            let outcome = check.check();
            if self.json {
                checks.push(check.json(&outcome));
            } else {
                writeln!(out, "{}", check.line(&outcome)).context("cannot write to standard output")?;
            }
            if let (Err(missing), true, None) = (outcome, check.is_required(), &first) {
                first = Some(missing);
            }
        }
        if self.json {
            let all = json!({ "schema": SCHEMA, "checks": checks });
            writeln!(out, "{all}").context("cannot write to standard output")?;
        }
        first.map_or(Ok(()), |missing| Err(missing.into()))
    }
}
