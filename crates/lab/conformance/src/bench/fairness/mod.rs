//! The share of a path that `plait` takes beside the kernel's TCP. Both send as fast as they can over token buckets (tbf), and the
//! server's kernel reports the bytes of each subflow.
//!
//! * [`fight`]: one run; [`sockets`]: the kernel's count; [`report`]: the table, the goals, and figures for other programs.

mod fight;
mod report;
mod sockets;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use plait_bench::{Rounds, write_json};

use self::fight::Conditions;
use self::report::Row;

/// The selection of measurements.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these settings; may be repeated.
    #[arg(long, value_enum, value_name = "SETTING")]
    only: Vec<Setting>,
    /// Runs of each setting, in turn.
    #[arg(long, default_value = "10")]
    runs: NonZeroU32,
    /// Seconds that are measured in a run.
    #[arg(long, default_value = "20")]
    seconds: NonZeroU32,
    /// Seconds before, in which the connections come to terms.
    #[arg(long, default_value = "10")]
    before: u32,
    /// Seconds that plait is alone before the rivals begin.
    #[arg(long, default_value = "0")]
    late: u32,
    /// Congestion control of the rivals, a name that the kernel knows.
    #[arg(long, default_value = "cubic")]
    rival: String,
    /// Rate of each bottleneck, Mbit/s; 50 ms may wait there.
    #[arg(long, default_value = "20")]
    megabits: NonZeroU32,
    /// The binary under test.
    #[arg(long, default_value = "target/release/plait")]
    plait: PathBuf,
    /// Writes the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The competing connections, and their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setting {
    /// Two paths with a bottleneck each, one TCP of the kernel on each; plait as it is by default.
    Adaptive,
    /// One path, one TCP of the kernel; plait as it is by default.
    AdaptiveOne,
    /// Two paths over one bottleneck, one TCP of the kernel; plait as it is by default.
    AdaptiveShared,
    /// As `adaptive`, plait with BBR.
    Bbr,
    /// As `adaptive-one`, plait with BBR.
    BbrOne,
    /// As `adaptive-shared`, plait with BBR. It has no goal: BBR is not coupled.
    BbrShared,
    /// As `adaptive`, plait with CUBIC.
    Cubic,
    /// As `adaptive-shared`, plait with LIA.
    Lia,
    /// As `adaptive-shared`, plait with OLIA.
    Olia,
    /// As `adaptive`, with another TCP of the kernel (CUBIC) on each path in place of plait: what the figures of one run are worth.
    Control,
}

/// The paths of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// One, with a rival.
    One,
    /// Two, each with a bottleneck and a rival of its own.
    Two,
    /// Two over one bottleneck, with one rival.
    Shared,
}

impl Paths {
    /// The number of figures of a run.
    const fn figures(self) -> usize {
        match self {
            Self::One | Self::Shared => 1,
            Self::Two => 2,
        }
    }
}

impl Setting {
    /// The name in the table; `--congestion` of plait, in `control` the kernel's congestion control in its place; and the paths.
    const fn row(self) -> (&'static str, &'static str, Paths) {
        match self {
            Self::Adaptive => ("adaptive", "adaptive", Paths::Two),
            Self::AdaptiveOne => ("adaptive-one", "adaptive", Paths::One),
            Self::AdaptiveShared => ("adaptive-shared", "adaptive", Paths::Shared),
            Self::Bbr => ("bbr", "bbr", Paths::Two),
            Self::BbrOne => ("bbr-one", "bbr", Paths::One),
            Self::BbrShared => ("bbr-shared", "bbr", Paths::Shared),
            Self::Cubic => ("cubic", "cubic", Paths::Two),
            Self::Lia => ("lia", "lia", Paths::Shared),
            Self::Olia => ("olia", "olia", Paths::Shared),
            Self::Control => ("control", "cubic", Paths::Two),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) const fn congestion(self) -> &'static str {
        self.row().1
    }

    pub(crate) const fn paths(self) -> Paths {
        self.row().2
    }
}

/// Measures what was asked for; false if a median misses its goal.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let directory = crate::runner::prepare_directory(None)?;
    let plait = crate::runner::binary(&options.plait)?;
    let conditions = Conditions {
        plait,
        megabits: options.megabits.get(),
        before: Duration::from_secs(options.before.into()),
        measured: Duration::from_secs(options.seconds.get().into()),
        late: Duration::from_secs(options.late.into()),
        rival: options.rival.clone(),
    };
    let wanted = |setting: &&Setting| options.only.is_empty() || options.only.contains(setting);
    let settings = Setting::value_variants().iter().filter(wanted);
    let rows = Rounds::of(options.runs).take_turns(settings, |setting, run| {
        let place = directory.join(format!("fairness-{}-{run}", setting.name()));
        std::fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        let carried = fight::run(**setting, &conditions, &place).with_context(|| setting.name())?;
        let row = Row::new(**setting, run, carried);
        println!("{row}");
        Ok(row)
    })?;
    let rows: Vec<Row> = rows.into_iter().flat_map(|(_, rows)| rows).collect();
    std::fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    println!("\n{}", report::summary(&rows));
    if let Some(file) = &options.json {
        write_json(file, &rows)?;
    }
    Ok(report::holds(&rows))
}
