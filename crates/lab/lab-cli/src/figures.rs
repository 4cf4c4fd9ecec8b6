//! `plait-lab figures`: the measured results of the papers, measured again.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use plait_console::output;
use plait_figures::{Claim, Figure, Options};
use plait_lab::privilege;

use crate::plait::Plait;
use crate::prerequisite;

#[derive(Debug, Args)]
pub(crate) struct Figures {
    /// Directory of figures.html and figures.json; created if missing.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Number of measurements of each figure; use five or more for a reliable median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Use small sizes, about a minute: a functional test; the numbers are not reliable.
    #[arg(long)]
    quick: bool,
    /// Measure only this figure (repeatable): a name as in figures.json.
    #[arg(long, value_name = "NAME", value_parser = figure)]
    only: Vec<plait_figures::Id>,
    #[command(flatten)]
    plait: Plait,
}

fn figure(name: &str) -> Result<plait_figures::Id, String> {
    let all = plait_figures::Id::ALL;
    all.into_iter().find(|id| id.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|id| id.as_str()).collect();
        format!("there are: {}", names.join(", "))
    })
}

impl Figures {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        prerequisite::of_figures()?;
        if privilege::is_ordinary_user() {
            // The same again as root of a user namespace.
            let program = env::current_exe().context("finding the program itself")?;
            let mut again = privilege::in_user_namespace(program)?;
            return Err(again.args(env::args_os().skip(1)).exec()).context("starting the program again");
        }
        let scratch = env::temp_dir().join(format!("plait-figures-{}", std::process::id()));
        let Self { out, runs, quick: is_quick, only, plait } = self;
        let plait = plait.find()?;
        let options = Options { plait, scratch, runs: runs.into(), is_quick, only };
        let begins = |id: plait_figures::Id| output::say_lines(&format!("measuring {} ...\n", id.as_str()));
        let mut shown = Ok(());
        let show = |figure: &Figure| {
            if shown.is_ok() {
                shown = output::result(lines(figure));
            }
        };
        let figures = plait_figures::measure(&options, begins, show)?;
        let [html, json] = plait_figures::write(&figures, &out)?;
        shown?;
        let place = format!("{:.0} s; figures: {}, {}\n", figures.seconds, html.display(), json.display());
        output::result(place)?;
        if figures.was_busy {
            output::result("the machine was busy: measure again\n")?;
        }
        let contradictions = figures.contradictions();
        if !contradictions.is_empty() {
            bail!("this is not what plait promises:\n  {}", contradictions.join("\n  "));
        }
        Ok(())
    }
}

/// A figure and its claims, a line each.
fn lines(figure: &Figure) -> String {
    let busy = if figure.strain.was_busy { "; the machine was busy" } else { "" };
    let mut text =
        format!("{} ({}): {:.0} s{busy}\n", figure.id.as_str(), figure.source, figure.strain.seconds);
    for Claim { paper, measured, rule: _, conclusion, why: _ } in &figure.claims {
        text.push_str(&format!("  {}: {paper}\n    here: {measured}\n", conclusion.word()));
    }
    text
}
