//! Runs the scenarios one after the other, a line each, and a table at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::interop::scenario::{Context, Role, Scenario, Settings, Verdict, all};
use crate::interop::testbed::Family;

/// What to run and how.
#[derive(Args)]
pub(crate) struct Options {
    /// Only scenarios whose line (`name role v4|v6`) contains this; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Not those whose line contains this; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// Smaller transfers and crowds, and goals in seconds or Mbit/s printed but not judged: for CI, where other work may
    /// share the machine.
    #[arg(long)]
    quick: bool,
    /// Each scenario in each role over one family only, IPv4 and IPv6 in turn: half the time.
    #[arg(long)]
    alternate: bool,
    /// Bytes of the transfers over paths without a rate limit [default: 256 MiB, with --quick 32 MiB].
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// The binary under test.
    #[arg(long, default_value = "target/release/plait")]
    plait: PathBuf,
    /// The kernel on both sides: shows that the scenarios hold for a peer known to be good.
    #[arg(long)]
    baseline: bool,
    /// Captures packets, and keeps them with the programs' output for scenarios that fail.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Passed,
    Failed,
    NotApplicable,
}

/// Prints the names.
pub(crate) fn list() {
    for Scenario { name, about, roles, run: _ } in all() {
        let roles: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        println!("{name:<24} {:<14} {about}", roles.join(" "));
    }
}

/// Runs what was asked for; false if a scenario failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        bail!("network namespaces need root: run it with sudo, or as root in a user namespace (unshare -rn)");
    }
    let settings = settings(options)?;
    for name in netns::sweep()? {
        eprintln!("removed {name}, left behind by an earlier run");
    }
    let root = options
        .keep
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("plait-interop-{}", std::process::id())));
    let mut results = Vec::new();
    for (index, scenario) in all().into_iter().enumerate() {
        for (turn, &role) in (index..).zip(scenario.roles) {
            let in_turn = [Family::BOTH[turn % 2]];
            let families = if options.alternate { &in_turn[..] } else { &Family::BOTH[..] };
            for &family in families {
                let line = format!("{} {} {}", scenario.name, role.name(), family.name());
                if options.wants(&line) {
                    let class = one(&scenario, role, family, &settings, &root, options.keep.is_some())?;
                    results.push((line, class));
                }
            }
        }
    }
    if options.keep.is_none() {
        let _ = std::fs::remove_dir_all(&root);
    }
    ensure!(!results.is_empty(), "no scenario is called so; `conformance interop list` names them");
    Ok(table(&results))
}

impl Options {
    fn wants(&self, line: &str) -> bool {
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| line.contains(pattern.as_str()));
        (self.only.is_empty() || fits(&self.only)) && !fits(&self.skip)
    }
}

fn settings(options: &Options) -> Result<Settings> {
    let plait = if options.baseline {
        None
    } else {
        let path = options.plait.canonicalize().with_context(|| {
            format!(
                "no binary at {}: build it with `cargo build --release`, or name it with --plait",
                options.plait.display()
            )
        })?;
        Some(path)
    };
    let default = if options.quick { 32 << 20 } else { 256 << 20 };
    Ok(Settings { plait, quick: options.quick, size: options.size.unwrap_or(default) })
}

/// Runs one scenario and prints its line.
fn one(
    scenario: &Scenario,
    role: Role,
    family: Family,
    settings: &Settings,
    root: &Path,
    capture: bool,
) -> Result<Class> {
    let directory = root.join(format!("{}-{}-{}", scenario.name, role.name(), family.name()));
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let began = Instant::now();
    let context = Context::new(settings, role, family, &directory, capture);
    let (class, text) = match (scenario.run)(&context) {
        Ok(Verdict::Passed(evidence)) => (Class::Passed, evidence),
        Ok(Verdict::NotApplicable(reason)) => (Class::NotApplicable, reason.to_owned()),
        Err(error) => (Class::Failed, format!("{error:#}")),
    };
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{:<24} {:<6} {} {} {seconds:5.1} s  {text}",
        scenario.name,
        role.name(),
        family.name(),
        class.word(),
        text = text.replace('\n', "\n    ")
    );
    if class != Class::Failed || !capture {
        let _ = std::fs::remove_dir_all(&directory);
    }
    Ok(class)
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok  ",
            Self::Failed => "FAIL",
            Self::NotApplicable => "n/a ",
        }
    }
}

/// One row per scenario, one column per role and family.
fn table(results: &[(String, Class)]) -> bool {
    let columns = ["client v4", "client v6", "server v4", "server v6"];
    let mut names: Vec<&str> = Vec::new();
    let mut cells: BTreeMap<(&str, &str), Class> = BTreeMap::new();
    for (line, class) in results {
        let Some((name, column)) = line.split_once(' ') else { continue };
        if !names.contains(&name) {
            names.push(name);
        }
        cells.insert((name, column), *class);
    }
    println!("\n{:<24} {}", "", columns.join("  "));
    for name in names {
        let row = columns.map(|column| cells.get(&(name, column)).map_or("-", |class| class.word()));
        println!("{name:<24} {}", row.map(|word| format!("{word:<9}")).join("  "));
    }
    let of = |wanted| results.iter().filter(|(_, class)| *class == wanted).count();
    let (passed, failed, other) = (of(Class::Passed), of(Class::Failed), of(Class::NotApplicable));
    println!("\n{passed} passed, {failed} failed, {other} not applicable");
    failed == 0
}
