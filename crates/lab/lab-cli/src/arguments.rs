//! The command line; the arguments of each command are in its module.

use clap::{CommandFactory, Parser, Subcommand};
use plait_console::logging::Verbosity;
use plait_console::manual::{Completions, Manual};

use crate::demo::Demo;
use crate::figures::Figures;
use crate::lab::Action;
use crate::manual::{EXIT_STATUS, SUPPLEMENT};
use crate::prerequisite::Doctor;
use crate::scramble::Scramble;

/// The laboratory of plait: two hosts and paths with an eavesdropper and an injector on each, and what is measured there.
#[derive(Debug, Parser)]
#[command(name = crate::NAME, version, max_term_width = 100, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Lab(Action),
    /// Run the walkthrough: what eavesdroppers read and what attacks do, with four systems; ends in a report.
    Demo(Demo),
    /// Repeat the measurements of the papers: writes a page with their numbers beside ours, and the reason of each difference. It
    /// takes about ten minutes, in hosts of its own; a running lab does not matter.
    Figures(Figures),
    /// Read a scrambled connection from a capture of one path, without any key.
    Scramble(Scramble),
    /// Report missing prerequisites, and the fix of each.
    Doctor(Doctor),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write the manual pages.
    Man(Manual),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Lab(action) => action.run(),
            Self::Demo(demo) => demo.run(),
            Self::Figures(figures) => figures.run(),
            Self::Scramble(scramble) => scramble.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Completions(completions) => completions.run(Arguments::command()),
            Self::Man(manual) => manual.run(Arguments::command(), &SUPPLEMENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn errors_of_usage_have_their_status() {
        for words in
            ["", "scramble", "up --path a=fast", "attack", "figures --only figure-99", "demo --runs 0"]
        {
            let words = std::iter::once("plait-lab").chain(words.split_whitespace());
            assert_eq!(
                Arguments::try_parse_from(words.clone()).expect_err("one").exit_code(),
                2,
                "{words:?}"
            );
        }
    }
}
