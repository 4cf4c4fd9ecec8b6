//! `plait demo`: the whole story, and its report.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

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
        let scratch = env::temp_dir().join(format!("plait-demo-{}", std::process::id()));
        let plait = env::current_exe().context("finding the program itself")?;
        let story = demo::tell(&demo::Options { plait, scratch, size: self.size })?;
        demo::write_report(&story, &self.report)?;
        println!("report: {}", self.report.display());
        let contradictions = story.contradictions();
        if !contradictions.is_empty() {
            bail!("this is not what plait promises:\n  {}", contradictions.join("\n  "));
        }
        println!("every attack reached the wire, and no attack on one path broke a sealed connection");
        Ok(())
    }
}
