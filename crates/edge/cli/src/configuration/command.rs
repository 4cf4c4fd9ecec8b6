//! `plait config`: checks a configuration, shows the options in effect, or writes the schema for editors.

use std::ffi::OsString;

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Subcommand};

use super::document::Document;
use super::{Effective, Origin, checking, effective, is_configurable, options, place, schema};
use crate::output;

/// The option that names a configuration.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The configuration to use. NAME means NAME.toml in ~/.config/plait, otherwise in /etc/plait (root: /etc/plait only). A path or a name
    /// with .toml means that file. An empty text means no file [default: plait, if it exists].
    #[arg(long, value_name = "NAME|FILE", global = true, env = "PLAIT_CONFIG")]
    pub(crate) config: Option<OsString>,
}

/// Check a configuration file, or show the options in effect and the place of each.
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Report each mistake in a configuration: unknown keys and invalid values.
    Check {
        /// The configuration, as for --config.
        #[arg(value_name = "NAME|FILE")]
        config: Option<OsString>,
    },
    /// Print the options of a command that are in effect, each with its place: command line, variable, line of the file, or default.
    Show {
        /// The command and its options, as on the command line.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        words: Vec<OsString>,
    },
    /// Write a JSON schema of the file, for editors.
    Schema,
}

impl Config {
    pub(crate) fn run(self, definition: &Command) -> anyhow::Result<()> {
        match self.task {
            Task::Check { config } => check(definition, config),
            Task::Show { words } => show(definition, words),
            Task::Schema => output::result(format!("{:#}\n", schema::of(definition))),
        }
    }
}

/// Reports all mistakes at once.
fn check(definition: &Command, config: Option<OsString>) -> anyhow::Result<()> {
    let named = config.or_else(|| std::env::var_os("PLAIT_CONFIG"));
    let Some(file) = place::find(named.as_deref())? else { bail!("there is no configuration plait") };
    let (document, mut problems) = Document::parse(&file, place::read(&file)?);
    problems.extend(checking::problems(&document, definition));
    problems.sort_by_key(|problem| problem.at.start);
    if problems.is_empty() {
        return output::result(format!("{}: ok\n", file.display()));
    }
    let shown: Vec<_> = problems.iter().map(|problem| document.shown(problem)).collect();
    bail!("{}", shown.join("\n"))
}

fn show(definition: &Command, words: Vec<OsString>) -> anyhow::Result<()> {
    let typed = [OsString::from("plait")].into_iter().chain(words).collect();
    let shown = shown(definition, typed, &|name| std::env::var_os(name));
    let shown = shown.map_err(|error| anyhow::anyhow!(checking::first_paragraph(&error)))?;
    output::result(shown)
}

/// The options in effect, a line each, as the file has them.
pub(super) fn shown(
    definition: &Command,
    typed: Vec<OsString>,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<String, clap::Error> {
    let effective = effective(definition, typed, environment)?;
    let matches = definition.clone().try_get_matches_from(&effective.words)?;
    let Some((name, given)) = matches.subcommand() else { return Ok(String::new()) };
    let Some(command) = definition.find_subcommand(name).filter(|command| is_configurable(command)) else {
        return Err(super::usage(&format!("`plait {name}` has no options of a configuration")));
    };
    let file = effective.file.as_ref();
    let file = file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let mut lines = vec![format!("# plait {name}, {file}")];
    for (long, option) in options(definition, command) {
        if let Some((value, place)) = in_effect(option, given, &effective) {
            lines.push(format!("{:<40} # {place}", format!("{long} = {value}")));
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// The value of an option and its place; `None` if it has none.
fn in_effect(option: &Arg, given: &ArgMatches, effective: &Effective) -> Option<(String, String)> {
    let id = option.get_id().as_str();
    let source = given.value_source(id);
    let place = match (effective.origins.get(id), source?) {
        (Some(Origin::Environment(name)), _) => name.clone(),
        (Some(Origin::File(line)), _) => {
            let file = effective.file.as_ref().map(|file| file.display().to_string());
            format!("{}:{line}", file.unwrap_or_default())
        }
        (None, ValueSource::DefaultValue) => "default".to_owned(),
        (None, ValueSource::EnvVariable) => super::variable(option.get_long()?),
        (None, _) => "command line".to_owned(),
    };
    let quoted = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        let is_number = word.parse::<f64>().is_ok_and(f64::is_finite);
        if is_number { word.into_owned() } else { serde_json::Value::from(word).to_string() }
    };
    let value = match option.get_action() {
        ArgAction::SetTrue => given.get_flag(id).to_string(),
        ArgAction::Count => given.get_count(id).to_string(),
        ArgAction::Append => {
            format!("[{}]", given.get_raw(id)?.map(quoted).collect::<Vec<_>>().join(", "))
        }
        _ => quoted(given.get_raw(id)?.next_back()?),
    };
    Some((value, place))
}
