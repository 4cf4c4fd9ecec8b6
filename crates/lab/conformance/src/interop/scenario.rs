//! The register of scenarios, and the context of a running one.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result};

use crate::interop::scenarios;
pub(crate) use crate::runner::Verdict;
use plait_lab::wired::Family;

/// The side of the subject: `plait`, or in a baseline the kernel in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One scenario.
pub(crate) struct Scenario {
    /// Its name, in words with dashes.
    pub(crate) name: &'static str,
    /// Its purpose, in one line.
    pub(crate) about: &'static str,
    /// The possible sides of the subject.
    pub(crate) roles: &'static [Role],
    /// The scenario.
    pub(crate) run: fn(&Context<'_>) -> Result<Verdict>,
}

/// Both sides.
pub(crate) const BOTH: &[Role] = &[Role::Client, Role::Server];
/// The active side only.
pub(crate) const CLIENT: &[Role] = &[Role::Client];
/// The passive side only.
pub(crate) const SERVER: &[Role] = &[Role::Server];

/// All scenarios in the order in which they run.
pub(crate) fn all() -> Vec<Scenario> {
    [
        scenarios::transfer::ALL,
        scenarios::joining::ALL,
        scenarios::closing::ALL,
        scenarios::corruption::ALL,
        scenarios::outage::ALL,
        scenarios::fallback::ALL,
        scenarios::decoding::ALL,
        scenarios::ecn::ALL,
        scenarios::path_mtu::ALL,
        scenarios::carriers::ALL,
        scenarios::crowd::ALL,
        scenarios::served_crowd::ALL,
        scenarios::hostile::ALL,
        scenarios::throughput::ALL,
        scenarios::scramble::ALL,
    ]
    .into_iter()
    .flatten()
    .map(|&Scenario { name, about, roles, run }| Scenario { name, about, roles, run })
    .collect()
}

/// The settings of all scenarios of a run.
pub(crate) struct Settings {
    /// The binary under test; without it the kernel takes its side.
    pub(crate) plait: Option<PathBuf>,
    /// Smaller sizes, and no verdict by time, for CI.
    pub(crate) quick: bool,
    /// Bytes of a full transfer over paths without a rate limit.
    pub(crate) size: u64,
}

/// The context of a scenario.
pub(crate) struct Context<'a> {
    settings: &'a Settings,
    /// The side of the subject.
    pub(crate) role: Role,
    /// The family of the addresses.
    pub(crate) family: Family,
    /// The directory of its programs' output.
    directory: &'a Path,
    /// Whether packets are captured there as well.
    pub(crate) capture: bool,
    baseline: bool,
    runs: Rc<Cell<u32>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        role: Role,
        family: Family,
        directory: &'a Path,
        capture: bool,
    ) -> Self {
        let (baseline, runs) = (settings.plait.is_none(), Rc::new(Cell::new(0)));
        Self { settings, role, family, directory, capture, baseline, runs }
    }

    /// The same with the kernel in the subject's place: for reference figures.
    pub(crate) fn as_baseline(&self) -> Self {
        let Self { settings, role, family, directory, capture, baseline: _, runs } = self;
        let runs = Rc::clone(runs);
        Context { settings, role: *role, family: *family, directory, capture: *capture, baseline: true, runs }
    }

    /// The binary under test, unless this is a baseline.
    pub(crate) fn plait(&self) -> Option<&Path> {
        self.settings.plait.as_deref().filter(|_| !self.baseline)
    }

    pub(crate) fn is_baseline(&self) -> bool {
        self.plait().is_none()
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.settings.quick
    }

    /// Whether a goal in seconds, or one of speed, decides. In a quick run it is only printed: other work on the machine may
    /// take the time.
    pub(crate) fn judges_time(&self) -> bool {
        !self.settings.quick
    }

    /// Bytes of a full transfer.
    pub(crate) fn size(&self) -> u64 {
        self.settings.size
    }

    /// Bytes of a transfer with an event in its middle, over paths of `megabits` together: it takes some `seconds`.
    pub(crate) fn bytes_for(&self, seconds: u64, megabits: u64) -> u64 {
        seconds * megabits * 125_000
    }

    /// A new directory for the output of the programs of one session.
    pub(crate) fn run_directory(&self) -> Result<PathBuf> {
        let run = self.runs.replace(self.runs.get() + 1);
        let kind = if self.is_baseline() { "kernel" } else { "plait" };
        let directory = self.directory.join(format!("{kind}-{run}"));
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        Ok(directory)
    }
}
