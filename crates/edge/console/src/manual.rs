//! The commands `completions` and `man`: generated from the definition of the command line, with examples, files and variables added.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::output;

/// The arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, Args)]
pub struct Manual {
    /// Directory to write one page per command to [default: the page of the program alone, to standard output].
    directory: Option<PathBuf>,
}

/// A name and its description.
pub type Entry = (&'static str, &'static str);

/// The parts of the pages of a program that `--help` does not have.
#[derive(Clone, Copy, Debug)]
pub struct Supplement {
    /// Command lines and their effects, each list after the name of its page, such as `plait-run`.
    pub examples: &'static [(&'static str, &'static [Entry])],
    /// Files that the program reads and writes.
    pub files: &'static [Entry],
    /// Variables of the environment that the program reads.
    pub environment: &'static [Entry],
    /// Returns the text about exit statuses of a page.
    pub statuses: fn(page: &str) -> &'static str,
    /// The text of the section SEE ALSO.
    pub see_also: &'static str,
}

impl Completions {
    /// Prints the completions of a program.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(self, mut command: Command) -> anyhow::Result<()> {
        let mut text = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut text);
        output::result(text)
    }
}

impl Manual {
    /// Writes the pages of a program.
    ///
    /// # Errors
    /// A file or standard output cannot be written.
    pub fn run(self, command: Command, supplement: &Supplement) -> anyhow::Result<()> {
        let pages = supplement.pages(command)?;
        let Some(directory) = self.directory else {
            let (_, page) = pages.first().context("the page of the program is the first")?;
            return output::result(page);
        };
        let place = || format!("cannot write to {}", directory.display());
        fs::create_dir_all(&directory).with_context(place)?;
        for (name, page) in pages {
            fs::write(directory.join(name), page).with_context(place)?;
        }
        Ok(())
    }
}

impl Supplement {
    /// Returns the pages of a command and of all below it, with the names of their files; the command's own is the first.
    ///
    /// # Errors
    /// None: the pages are written to memory.
    pub fn pages(&self, command: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        self.add_pages(&command, &mut pages)?;
        Ok(pages)
    }

    fn add_pages(&self, command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
        // The text after the help is about exit statuses, which have a section of their own.
        let man = Man::new(command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset));
        let name = man.get_filename();
        let mut page = Vec::new();
        man.render(&mut page)?;
        self.append(name.trim_end_matches(".1"), &mut page)?;
        pages.push((name, page));
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .try_for_each(|below| self.add_pages(below, pages))
    }

    /// Appends the part of a page after the text of `--help`.
    fn append(&self, name: &str, page: &mut Vec<u8>) -> io::Result<()> {
        let mut more = Roff::new();
        let mut section = |title: &str, entries: &[Entry]| {
            more.control("SH", [title]);
            for (term, about) in entries {
                more.control("TP", []).text([bold(*term)]).text([roman(*about)]);
            }
        };
        if let Some((_, examples)) = self.examples.iter().find(|(of, _)| *of == name) {
            section("EXAMPLES", examples);
        }
        section("FILES", self.files);
        section("ENVIRONMENT", self.environment);
        let statuses = (self.statuses)(name).trim_start_matches("Exit status: ");
        more.control("SH", ["EXIT STATUS"]).text([roman(statuses)]);
        more.control("SH", ["SEE ALSO"]).text([roman(self.see_also)]);
        more.to_writer(page)
    }
}
