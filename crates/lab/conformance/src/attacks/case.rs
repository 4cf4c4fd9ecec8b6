//! The register of cases, and the context of a running one.

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
    /// Its purpose, in one line.
    pub(crate) about: &'static str,
    /// Whether it is a case for CI: short, and the same on a busy machine.
    pub(crate) is_quick: bool,
    /// One of its programs is the kernel's, which supports TCP alone.
    pub(crate) needs_tcp: bool,
    /// The case.
    pub(crate) run: Box<Run>,
}

/// The work of a case.
type Run = dyn Fn(&Context<'_>) -> Result<Verdict> + Send + Sync;

impl Case {
    pub(crate) fn new(
        name: impl Into<String>,
        about: &'static str,
        run: impl Fn(&Context<'_>) -> Result<Verdict> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), about, is_quick: false, needs_tcp: false, run: Box::new(run) }
    }

    /// Makes the kernel one of its programs, if `condition` is true.
    pub(crate) fn with_kernel_if(self, condition: bool) -> Self {
        Self { needs_tcp: condition, ..self }
    }

    /// Makes it a case for CI.
    pub(crate) fn quick(self) -> Self {
        Self { is_quick: true, ..self }
    }

    /// Makes it a case for CI if `condition` is true.
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

/// The settings of all cases of a run.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The binary under attack.
    pub(crate) plait: PathBuf,
    /// Bytes of a full transfer, each way.
    pub(crate) size: u64,
    /// Whether a case fails if it takes longer than promised; a busy machine cannot judge that.
    pub(crate) judges_times: bool,
    /// The address family between client and server.
    pub(crate) family: Family,
    /// The carrier of the segments.
    pub(crate) carrier: Carrier,
}

/// The carrier of both programs.
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

/// The context of a case.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    /// The directory of its programs' output; empty, and removed after it.
    pub(crate) directory: &'a Path,
}
