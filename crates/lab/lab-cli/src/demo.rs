//! `plait-lab demo`: the walkthrough, and its report.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use plait_console::output;
use plait_lab::privilege;

use crate::plait::Plait;
use crate::prerequisite;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// File of the report; its raw data is written beside it, with the ending .json.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Bytes of the page that is fetched under each attack.
    #[arg(long, value_name = "BYTES", default_value_t = 4_000_000)]
    size: usize,
    /// Number of fetches by each system, undisturbed and under each attack; use five or more for a reliable median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Seed of all random decisions in the lab.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End with an error also if sealed is slower than required, on a machine that was not busy.
    #[arg(long)]
    judge: bool,
    #[command(flatten)]
    plait: Plait,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        prerequisite::of_lab()?;
        if privilege::is_ordinary_user() {
            // The same again as root of a user namespace.
            let program = env::current_exe().context("finding the program itself")?;
            let mut again = privilege::in_user_namespace(program)?;
            return Err(again.args(env::args_os().skip(1)).exec()).context("starting the program again");
        }
        let scratch = env::temp_dir().join(format!("plait-demo-{}", std::process::id()));
        let Self { report, size, runs, seed, judge, plait } = self;
        let plait = plait.find()?;
        let options = plait_demo::Options { plait, scratch, size, runs: runs.into(), seed };
        let walkthrough = plait_demo::run_all(&options)?;
        let [html, json] = plait_demo::write_report(&walkthrough, &report)?;
        let goals = walkthrough.goals();
        let lines: String = goals.iter().map(|goal| goal.line() + "\n").collect();
        output::result(format!("{lines}{}\n{}\n", walkthrough.strain, walkthrough.headline()))?;
        output::result(format!("report: {}; raw data: {}\n", html.display(), json.display()))?;
        let contradictions = walkthrough.contradictions();
        if !contradictions.is_empty() {
            bail!("this is not what plait promises:\n  {}", contradictions.join("\n  "));
        }
        if walkthrough.strain.was_busy {
            output::result("the machine was busy: times and rates are nothing to rely on\n")?;
        } else if judge && goals.iter().any(|goal| !goal.is_met()) {
            bail!("sealed is slower than it is to be: see the goals above");
        }
        output::result("every attack reached the wire, and no attack on one path broke a sealed connection\n")
    }
}
