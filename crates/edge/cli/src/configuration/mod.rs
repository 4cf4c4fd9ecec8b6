//! The configuration: options from the environment and from a file, beside those on the command line.
//!
//! Options are defined once, for the parser of the command line. A key of the file and a variable of the environment have the name of an
//! option and become words of the command line, so all three mean the same. The command line counts before the environment, that before the
//! file, and in the file the table of the server before the one of the command before the keys outside of tables.

mod checking;
mod clients;
pub(crate) mod command;
mod document;
pub(crate) mod hooks;
mod layers;
mod place;
mod schema;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use self::document::Document;
use self::hooks::Hooks;
use self::layers::Given;

/// The option that names a configuration, and its variable.
const CONFIG: &str = "config";
/// The beginning of the variables.
const PREFIX: &str = "PLAIT_";

/// A command line with the options from all places.
#[derive(Debug)]
pub(crate) struct Effective {
    /// The words for the parser.
    pub(crate) words: Vec<OsString>,
    /// The places of the options that are not from the command line, by their ids.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The programs that it has for events.
    pub(crate) hooks: Hooks,
}

impl Effective {
    /// An error of the parser that may be about options of the file names the file.
    pub(crate) fn explained(&self, error: clap::Error) -> clap::Error {
        let is_about_the_file = self.origins.values().any(|origin| matches!(origin, Origin::File(_)));
        match (&self.file, error.use_stderr() && is_about_the_file) {
            (Some(file), true) => {
                let text = error.to_string();
                let text = text.strip_prefix("error: ").unwrap_or(&text);
                let note = format!(
                    "{}\nSome options are from {}: plait config show\n",
                    text.trim_end(),
                    file.display()
                );
                clap::Error::raw(error.kind(), note)
            }
            _ => error,
        }
    }
}

/// The place that an option is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A variable.
    Environment(String),
    /// A line of the file.
    File(usize),
}

/// Adds the options from the environment and from the file to the words of a command line.
///
/// # Errors
/// The file is missing, cannot be read or contains a mistake, or a variable is invalid.
pub(crate) fn effective(
    definition: &Command,
    words: Vec<OsString>,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Effective, clap::Error> {
    let Some(given) = Given::on(definition, &words) else {
        return Ok(Effective { words, origins: BTreeMap::new(), file: None, hooks: Hooks::default() });
    };
    let named = given.config().or_else(|| environment(&variable(CONFIG)));
    let document = document(definition, named.as_deref()).map_err(|what| usage(&what))?;
    let environment =
        layers::of_environment(definition, given.command(), environment).map_err(|what| usage(&what))?;
    let file = document.as_ref().map(|document| document.file().to_owned());
    let (words, origins) = given.merged(words, environment, document.as_ref());
    let hooks = document.map_or_else(Hooks::default, |document| Hooks::of(&document.hooks));
    Ok(Effective { words, origins, file, hooks })
}

/// The configuration with this name, or the default one, if there is one.
fn document(definition: &Command, named: Option<&OsStr>) -> Result<Option<Document>, String> {
    let words = |error: anyhow::Error| plait_console::exit::in_a_line(&error);
    let Some(file) = place::find(named).map_err(words)? else { return Ok(None) };
    let text = place::read(&file).map_err(words)?;
    let (document, problems) = Document::parse(&file, text);
    let problem =
        problems.into_iter().next().or_else(|| checking::problems(&document, definition).into_iter().next());
    match problem {
        Some(problem) => Err(document.shown(&problem)),
        None => Ok(Some(document)),
    }
}

/// The options in effect, each with its words, by their names.
pub(crate) type InEffect = BTreeMap<String, Vec<String>>;

/// Returns the options in effect that a configuration may set, except those that have no value.
pub(crate) fn in_effect(definition: &Command, matches: &ArgMatches) -> InEffect {
    let Some((name, given)) = matches.subcommand() else { return InEffect::new() };
    let Some(command) = definition.find_subcommand(name).filter(|command| is_configurable(command)) else {
        return InEffect::new();
    };
    let words = |option: &Arg| {
        let id = option.get_id().as_str();
        given.value_source(id)?;
        Some(match option.get_action() {
            ArgAction::SetTrue => vec![given.get_flag(id).to_string()],
            ArgAction::Count => vec![given.get_count(id).to_string()],
            ArgAction::Append => given.get_raw(id)?.map(|word| word.to_string_lossy().into_owned()).collect(),
            // The last one counts.
            _ => vec![given.get_raw(id)?.next_back()?.to_string_lossy().into_owned()],
        })
    };
    options(definition, command)
        .filter_map(|(long, option)| Some((long.to_owned(), words(option)?)))
        .collect()
}

/// An error of the command line or of the file in one line.
pub(crate) fn in_short(error: &clap::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).lines().next().unwrap_or_default().to_owned()
}

/// The commands with options that a configuration may set: those that use paths.
fn is_configurable(command: &Command) -> bool {
    command.get_arguments().any(|option| option.get_id() == "paths")
}

/// The options of a command, those of all commands included, that a configuration may set, each with its name.
fn options<'a>(definition: &'a Command, command: &'a Command) -> impl Iterator<Item = (&'a str, &'a Arg)> {
    let all =
        command.get_arguments().chain(definition.get_arguments().filter(|option| option.is_global_set()));
    all.filter_map(|option| Some((option.get_long()?, option)))
        .filter(|(long, _)| !["help", "version", CONFIG].contains(long))
}

/// The variable of an option.
fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.replace('-', "_").to_uppercase())
}

/// The known word that an unknown one may mean, for people.
fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let alike = |word: &&str| strsim::jaro_winkler(unknown, word);
    let best = known.into_iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    best.filter(|word| alike(word) > 0.8)
        .map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// An error in the environment or in the file is one of usage.
fn usage(what: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{what}\n"))
}

#[cfg(all(test, unix))]
mod tests;
