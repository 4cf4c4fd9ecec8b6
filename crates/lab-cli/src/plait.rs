//! The program `plait`, which the walkthrough and the figures start.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use plait_console::prerequisite::MissingPrerequisite;

#[derive(Debug, Args)]
pub(crate) struct Plait {
    /// The program plait [default: the one beside plait-lab].
    #[arg(long = "plait", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Plait {
    /// Returns the whole path of the program.
    ///
    /// # Errors
    /// [`MissingPrerequisite`]: there is no such file.
    pub(crate) fn find(self) -> anyhow::Result<PathBuf> {
        let file = match self.file {
            Some(file) => file,
            None => env::current_exe().context("finding the program itself")?.with_file_name("plait"),
        };
        fs::canonicalize(&file).map_err(|error| {
            let why = format!("{}: {error}", file.display());
            let fix =
                "install it beside plait-lab (cargo install --path crates/cli), or name it with --plait";
            MissingPrerequisite::named("plait", (why, fix.into())).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_a_missing_prerequisite() {
        let plait = Plait { file: Some("/nowhere/plait".into()) };
        let error = plait.find().expect_err("it is not there");
        assert!(error.is::<MissingPrerequisite>(), "{error}");
        let here = env::current_exe().expect("a program");
        assert_eq!(Plait { file: Some(here.clone()) }.find().expect("it is there"), here);
    }
}
