//! Runs the trials one after the other, a line each, and a table at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::attacks::trial::{Context, Settings, Trial, Verdict, all};

/// Bytes each way of a transfer under attack.
const FULL: u64 = 256 << 20;
/// The same for CI.
const SMALL: u64 = 8 << 20;

/// What to run and how.
#[derive(Args)]
pub(crate) struct Options {
    /// Only trials whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Small transfers; without --only just the trials for CI, which do not depend on how busy the machine is.
    #[arg(long)]
    quick: bool,
    /// Bytes of a transfer, each way [default: 256 MiB, with --quick 8 MiB].
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// The binary under attack.
    #[arg(long, default_value = "target/release/plait")]
    plait: PathBuf,
    /// Keeps what the programs of failed trials said.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Passed,
    Failed,
    Recorded,
}

/// Prints the names.
pub(crate) fn list() {
    for Trial { name, about, is_quick, run: _ } in all() {
        println!("{name:<30} {} {about}", if is_quick { "quick" } else { "     " });
    }
}

/// Runs what was asked for; false if a trial failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("network namespaces need root: run it with sudo");
    }
    let plait = options.plait.canonicalize().with_context(|| {
        format!(
            "no binary at {}: build it with `cargo build --release`, or name it with --plait",
            options.plait.display()
        )
    })?;
    let size = options.size.unwrap_or(if options.quick { SMALL } else { FULL });
    let settings = Settings { plait, size };
    let usual = std::env::temp_dir().join(format!("plait-siege-{}", std::process::id()));
    let root = options.keep.clone().unwrap_or(usual);
    let mut results = Vec::new();
    for trial in all() {
        let is_wanted = match options.only.is_empty() {
            true => trial.is_quick || !options.quick,
            false => options.only.iter().any(|pattern| trial.name.contains(pattern.as_str())),
        };
        if is_wanted {
            let class = one(&trial, &settings, &root, options.keep.is_some())?;
            results.push((trial.name, class));
        }
    }
    if options.keep.is_none() {
        let _ = std::fs::remove_dir_all(&root);
    }
    ensure!(!results.is_empty(), "no trial is called so; `conformance attacks list` names them");
    Ok(table(&results))
}

/// Runs one trial and prints its line.
fn one(trial: &Trial, settings: &Settings, root: &Path, keep: bool) -> Result<Class> {
    let directory = root.join(trial.name.replace('/', "-"));
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let began = Instant::now();
    let (class, text) = match (trial.run)(&Context { settings, directory: &directory }) {
        Ok(Verdict::Passed(evidence)) => (Class::Passed, evidence),
        Ok(Verdict::Recorded(what)) => (Class::Recorded, what),
        Err(error) => (Class::Failed, format!("{error:#}")),
    };
    let seconds = began.elapsed().as_secs_f64();
    println!("{:<30} {} {seconds:6.1} s  {text}", trial.name, class.word());
    if class != Class::Failed || !keep {
        std::fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    Ok(class)
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok  ",
            Self::Failed => "FAIL",
            Self::Recorded => "seen",
        }
    }
}

/// One row per name, one column per group.
fn table(results: &[(String, Class)]) -> bool {
    let split = |name: &str| -> (String, String) {
        let (group, rest) = name.split_once('/').unwrap_or(("", name));
        (group.to_owned(), rest.to_owned())
    };
    let (mut groups, mut names): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (name, _) in results {
        let (group, rest) = split(name);
        if !groups.contains(&group) {
            groups.push(group);
        }
        if !names.contains(&rest) {
            names.push(rest);
        }
    }
    let header: Vec<String> = groups.iter().map(|group| format!("{group:<12}")).collect();
    println!("\n{:<24} {}", "", header.join(" ").trim_end());
    for name in names {
        let cells: Vec<String> = groups
            .iter()
            .map(|group| {
                let wanted = format!("{group}/{name}");
                let found = results.iter().find(|(name, _)| *name == wanted);
                format!("{:<12}", found.map_or("-", |(_, class)| class.word()))
            })
            .collect();
        println!("{name:<24} {}", cells.join(" ").trim_end());
    }
    let of = |wanted| results.iter().filter(|(_, class)| *class == wanted).count();
    let (passed, failed, recorded) = (of(Class::Passed), of(Class::Failed), of(Class::Recorded));
    println!("\n{passed} passed, {failed} failed, {recorded} recorded");
    failed == 0
}
