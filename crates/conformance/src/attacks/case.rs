//! The register of cases, and what one is given when it runs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use plait_lab::Addresses;

use crate::attacks::cases;
pub(crate) use crate::runner::Verdict;

/// One case.
pub(crate) struct Case {
    /// `GROUP/NAME`.
    pub(crate) name: String,
    /// What it shows, in one line.
    pub(crate) about: &'static str,
    /// Whether it is one of those for CI: short, and the same on a busy machine.
    pub(crate) is_quick: bool,
    /// One of its programs is the kernel's, which speaks TCP alone.
    pub(crate) needs_tcp: bool,
    /// The case.
    pub(crate) run: Box<Run>,
}

/// What a case does.
type Run = dyn Fn(&Context<'_>) -> Result<Verdict> + Send + Sync;

impl Case {
    pub(crate) fn new(
        name: impl Into<String>,
        about: &'static str,
        run: impl Fn(&Context<'_>) -> Result<Verdict> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), about, is_quick: false, needs_tcp: false, run: Box::new(run) }
    }

    /// One in which the kernel takes part, if `condition` says so.
    pub(crate) fn with_kernel_if(self, condition: bool) -> Self {
        Self { needs_tcp: condition, ..self }
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

/// All cases in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    [
        cases::opening::all(),
        cases::one_path::all(),
        cases::every_path::all(),
        cases::interference::all(),
        cases::ends::all(),
        cases::liveness::all(),
        cases::outage::all(),
        cases::instances::all(),
        cases::flood::all(),
        cases::first_contact::all(),
        cases::records::all(),
        cases::shares::all(),
        cases::control::all(),
        cases::negotiation::all(),
        cases::eavesdropper::all(),
        cases::memory::all(),
        cases::kernel_tls::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The same for all cases of a run.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The binary under attack.
    pub(crate) plait: PathBuf,
    /// Bytes of a full transfer, each way.
    pub(crate) size: u64,
    /// Whether a case fails that takes longer than is promised; a machine that does other work is no judge of that.
    pub(crate) judges_times: bool,
    /// What the client connects over.
    pub(crate) family: Family,
    /// What carries the segments.
    pub(crate) carrier: Carrier,
}

/// What carries the segments of both programs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Carrier {
    Tcp,
    Udp,
}

impl Carrier {
    /// As options of `plait`.
    pub(crate) fn options(self) -> [&'static str; 2] {
        match self {
            Self::Tcp => ["--carrier", "tcp"],
            Self::Udp => ["--carrier", "udp"],
        }
    }
}

/// The version of IP between client and server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(self, addresses: &Addresses) -> IpAddr {
        match self {
            Self::V4 => addresses.v4,
            Self::V6 => addresses.v6,
        }
    }

    /// As options of `plait connect`.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            // Where IPv6 is there, too, it may be used.
            Self::V4 => &[],
            Self::V6 => &["-6"],
        }
    }
}

/// What a case is given.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    /// Where its programs leave their output; empty, and removed after it.
    pub(crate) directory: &'a Path,
}
