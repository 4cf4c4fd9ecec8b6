//! The program `plait`, which the walkthrough and the figures start.
//!
//! `plait-lab doctor` looks for it in the same place.

use std::env;
use std::fs;
use std::path::PathBuf;

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
    /// There is no such file.
    pub(crate) fn find(self) -> Result<PathBuf, MissingPrerequisite> {
        let missing = |why: String| {
            let fix =
                "install it beside plait-lab (cargo install --path crates/edge/cli), or name it with --plait";
            MissingPrerequisite::named("plait", (why, fix.into()))
        };
        let file = match self.file {
            Some(file) => file,
            None => env::current_exe()
                .map_err(|error| missing(format!("plait-lab does not find itself: {error}")))?
                .with_file_name("plait"),
        };
        fs::canonicalize(&file).map_err(|error| missing(format!("{}: {error}", file.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_a_missing_prerequisite() {
        let plait = Plait { file: Some("/nowhere/plait".into()) };
        let missing = plait.find().expect_err("it is not there");
        assert_eq!(missing.what, "plait");
        assert!(missing.why.starts_with("/nowhere/plait: "), "{missing}");
        let here = env::current_exe().expect("a program");
        assert_eq!(Plait { file: Some(here.clone()) }.find().expect("it is there"), here);
    }
}
