//! `plait completions` and `plait man`: made from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Directory to write one page per command to [default: plait(1) alone, to standard output].
    directory: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> anyhow::Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "plait", &mut text);
        io::stdout().write_all(&text).context("cannot write to standard output")
    }
}

impl Manual {
    pub(crate) fn run(self, command: Command) -> anyhow::Result<()> {
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            return io::stdout().write_all(&page).context("cannot write to standard output");
        };
        let place = || format!("cannot write to {}", directory.display());
        fs::create_dir_all(&directory).with_context(place)?;
        clap_mangen::generate_to(command, &directory).with_context(place)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_that_people_can_use_has_completions_and_a_page() {
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Arguments::command(), "plait", &mut text);
        let text = String::from_utf8(text).expect("text");
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut page).expect("a page");
        let page = String::from_utf8(page).expect("text");
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(text.contains(command.get_name()), "{}", command.get_name());
            assert!(page.contains(command.get_name()), "{}", command.get_name());
        }
    }
}
