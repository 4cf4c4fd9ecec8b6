//! `plait demo`: the walkthrough, and its report.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use plait_lab::privilege;

use crate::prerequisite;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where the report goes.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Bytes of the page that is fetched under each attack.
    #[arg(long, value_name = "BYTES", default_value_t = 4_000_000)]
    size: usize,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        prerequisite::of_lab()?;
        let plait = env::current_exe().context("finding the program itself")?;
        if privilege::is_ordinary_user() {
            // The same again as root of a user namespace.
            let mut again = privilege::in_user_namespace(&plait)?;
            return Err(again.args(env::args_os().skip(1)).exec()).context("starting the program again");
        }
        let scratch = env::temp_dir().join(format!("plait-demo-{}", std::process::id()));
        let walkthrough = plait_demo::run_all(&plait_demo::Options { plait, scratch, size: self.size })?;
        plait_demo::write_report(&walkthrough, &self.report)?;
        println!("report: {}", self.report.display());
        let contradictions = walkthrough.contradictions();
        if !contradictions.is_empty() {
            bail!("this is not what plait promises:\n  {}", contradictions.join("\n  "));
        }
        println!("every attack reached the wire, and no attack on one path broke a sealed connection");
        Ok(())
    }
}
