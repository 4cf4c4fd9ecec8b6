//! The register of trials, and what one is given when it runs.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::attacks::trials;
pub(crate) use crate::runner::Verdict;

/// One trial.
pub(crate) struct Trial {
    /// `GROUP/NAME`.
    pub(crate) name: String,
    /// What it shows, in one line.
    pub(crate) about: &'static str,
    /// Whether it is one of those for CI: short, and the same on a busy machine.
    pub(crate) is_quick: bool,
    /// The trial.
    pub(crate) run: Box<Deed>,
}

/// What a trial does.
type Deed = dyn Fn(&Context<'_>) -> Result<Verdict>;

impl Trial {
    pub(crate) fn new(
        name: impl Into<String>,
        about: &'static str,
        run: impl Fn(&Context<'_>) -> Result<Verdict> + 'static,
    ) -> Self {
        Self { name: name.into(), about, is_quick: false, run: Box::new(run) }
    }

    /// One for CI.
    pub(crate) fn quick(self) -> Self {
        Self { is_quick: true, ..self }
    }

    /// One for CI if `condition` says so.
    pub(crate) fn quick_if(self, condition: bool) -> Self {
        Self { is_quick: condition, ..self }
    }
}

/// All trials in the order in which they run.
pub(crate) fn all() -> Vec<Trial> {
    [
        trials::opening::all(),
        trials::one_path::all(),
        trials::every_path::all(),
        trials::records::all(),
        trials::control::all(),
        trials::negotiation::all(),
        trials::eavesdropper::all(),
        trials::memory::all(),
        trials::kernel_tls::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The same for all trials of a run.
pub(crate) struct Settings {
    /// The binary under attack.
    pub(crate) plait: PathBuf,
    /// Bytes of a full transfer, each way.
    pub(crate) size: u64,
}

/// What a trial is given.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    /// Where its programs leave their output; empty, and removed after it.
    pub(crate) directory: &'a Path,
}
