//! The origin of a report: enough to reproduce it, and to question it.

use jiff::Timestamp;
use plait_lab::Machine;
use serde::{Deserialize, Serialize};

/// The programs, settings and machine of a walkthrough.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// When it began: UTC, RFC 3339, to the second.
    pub date: String,
    /// Of plait.
    pub version: String,
    /// The commit that it was built from, as git names it.
    pub commit: String,
    /// Whether it was built with optimisation.
    pub is_optimised: bool,
    /// Processor, kernel, programs.
    pub machine: Machine,
    /// Of all chance in the lab.
    pub seed: u64,
    /// The command line.
    pub command: String,
    /// Of each system under each attack, and in peace.
    pub runs: usize,
    /// Bytes of the page.
    pub size: usize,
}

impl Provenance {
    pub(crate) fn look(seed: u64, runs: usize, size: usize) -> Self {
        let now = Timestamp::now();
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut words = std::env::args();
        let program = words.next().unwrap_or_default();
        // The name is enough: the directory is not part of the report.
        let name = program.rsplit('/').next().unwrap_or_default().to_owned();
        Self {
            date: now.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PLAIT_COMMIT").to_owned(),
            is_optimised: !cfg!(debug_assertions),
            machine: Machine::look(),
            seed,
            command: std::iter::once(name).chain(words).collect::<Vec<_>>().join(" "),
            runs,
            size,
        }
    }
}
