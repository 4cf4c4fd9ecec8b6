//! The check of a configuration against the options of the program.

use std::ffi::OsString;
use std::ops::Range;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};

use super::clients::CLIENT;
use super::document::{Document, Entry, HOOKS, Problem, SERVERS, Section, Value};
use super::{hooks, is_configurable, options, suggestion};

/// The key of a server's address.
pub(crate) const URL: &str = "url";

/// The mistakes in a document: unknown keys and tables, and values that an option does not take.
pub(crate) fn problems(document: &Document, definition: &Command) -> Vec<Problem> {
    let commands: Vec<_> = definition.get_subcommands().filter(|command| is_configurable(command)).collect();
    let mut problems = Vec::new();
    let mut check = |section: &Section, commands: &[&Command], whose: &str| {
        for entry in &section.entries {
            problems.extend(problem(entry, (definition, commands), whose));
            if entry.key == CLIENT {
                problems.extend(twins(entry, |at| document.line(at)));
            }
        }
    };
    check(&document.common, &commands, "no command has an option");
    for (name, section) in &document.commands {
        if let Some(command) = commands.iter().find(|command| command.get_name() == name) {
            check(section, &[command], &format!("`plait {name}` has no option"));
        }
    }
    let of_clients: Vec<_> = commands.iter().copied().filter(|command| takes_server(command)).collect();
    for server in document.servers.values() {
        let options = Section {
            at: server.at.clone(),
            entries: server.entries.iter().filter(|entry| entry.key != URL).cloned().collect(),
        };
        check(&options, &of_clients, "no command with a server has an option");
    }
    problems.extend(unknown_tables(document, &commands));
    problems.extend(document.hooks.entries.iter().filter_map(hooks::problem));
    problems.extend(document.servers.values().filter_map(problem_of_server));
    problems
}

/// Whether a command connects to a server that its options name.
pub(crate) fn takes_server(command: &Command) -> bool {
    command.get_arguments().any(|option| option.get_id() == "server")
}

fn unknown_tables(document: &Document, commands: &[&Command]) -> Vec<Problem> {
    let known = || commands.iter().map(|command| command.get_name());
    let unknown = document.commands.iter().filter(|(name, _)| !known().any(|known| known == *name));
    unknown
        .map(|(name, section)| {
            let suggestion = suggestion(name, known().chain([SERVERS, HOOKS]));
            Problem::new(&section.at, format!("there is no table `{name}`{suggestion}"))
        })
        .collect()
}

fn problem_of_server(server: &Section) -> Option<Problem> {
    match server.entries.iter().find(|entry| entry.key == URL) {
        None => Some(Problem::new(&server.at, format!("a server without `{URL}`"))),
        Some(Entry { value, value_at, .. }) => {
            let urls = match value {
                Value::One(url) => std::slice::from_ref(url),
                Value::Many(urls) if !urls.is_empty() => urls,
                Value::Many(_) | Value::Flag(_) => {
                    return Some(Problem::new(value_at, "neither a text nor a list of texts"));
                }
            };
            let error = urls.iter().find_map(|url| url.parse::<plait_proxy::url::ServerUrl>().err())?;
            Some(Problem::new(value_at, format!("no server: {error}")))
        }
    }
}

/// The mistake in a key or its value, for the first of the commands that has such an option.
fn problem(entry: &Entry, (definition, commands): (&Command, &[&Command]), whose: &str) -> Option<Problem> {
    let found = commands.iter().find_map(|command| {
        let option = options(definition, command).find(|(long, _)| *long == entry.key)?.1;
        Some((*command, option))
    });
    let Some((command, option)) = found else {
        let known = commands.iter().flat_map(|command| options(definition, command)).map(|(long, _)| long);
        let what = format!("{whose} `{}`{}", entry.key, suggestion(&entry.key, known));
        return Some(Problem::new(&entry.key_at, what));
    };
    let words = match words(option, &entry.value) {
        Ok(words) => words,
        Err(expected) => {
            return Some(Problem::new(&entry.value_at, format!("`{}` is {expected}", entry.key)));
        }
    };
    let all = [OsString::from("plait"), OsString::from(command.get_name())].into_iter().chain(words);
    rejected(definition, all).map(|error| Problem::new(&entry.value_at, first_paragraph(&error)))
}

/// The clients of an entry that cannot be told apart: a problem for each second one, at its place, with the line of the first.
fn twins(entry: &Entry, line: impl Fn(&Range<usize>) -> usize) -> Vec<Problem> {
    let Value::Many(lines) = &entry.value else { return Vec::new() };
    // What is no client has its own problem.
    let Ok(clients) = lines.iter().map(|line| line.parse()).collect::<Result<Vec<_>, _>>() else {
        return Vec::new();
    };
    let twins = plait_proxy::clients::twins(&clients).into_iter();
    let problem = |(first, second, what): (usize, usize, &str)| {
        let [first, second] = [first, second].map(|at| entry.parts.get(at).unwrap_or(&entry.value_at));
        Problem::new(second, format!("this client has the {what} of the one in line {}", line(first)))
    };
    twins.map(problem).collect()
}

/// The words of a command line that mean this value of an option.
///
/// # Errors
/// The kind of value that the option has.
pub(crate) fn words(option: &Arg, value: &Value) -> Result<Vec<OsString>, &'static str> {
    let long = option.get_long().unwrap_or_default();
    let with = |word: &String| OsString::from(format!("--{long}={word}"));
    match (option.get_action(), value) {
        (ArgAction::SetTrue, Value::Flag(is_set)) => {
            Ok(is_set.then(|| OsString::from(format!("--{long}"))).into_iter().collect())
        }
        (ArgAction::SetTrue, _) => Err("true or false"),
        (ArgAction::Count, Value::One(number)) => match number.parse::<usize>() {
            Ok(count @ 0..=9) => Ok(vec![OsString::from(format!("--{long}")); count]),
            Ok(_) | Err(_) => Err("a number up to 9"),
        },
        (ArgAction::Count, _) => Err("a number up to 9"),
        (ArgAction::Append, Value::Many(words)) => Ok(words.iter().map(with).collect()),
        (_, Value::One(word)) => Ok(vec![with(word)]),
        (ArgAction::Append, Value::Flag(_)) => Err("an array"),
        (_, Value::Flag(_) | Value::Many(_)) => Err("a text or a number"),
    }
}

/// The error of the parser about a value in these words. Words that are incomplete without others are no error.
pub(crate) fn rejected(definition: &Command, words: impl Iterator<Item = OsString>) -> Option<clap::Error> {
    let error = definition.clone().try_get_matches_from(words).err()?;
    let is_about_values = matches!(
        error.kind(),
        ErrorKind::InvalidValue
            | ErrorKind::ValueValidation
            | ErrorKind::TooManyValues
            | ErrorKind::TooFewValues
            | ErrorKind::WrongNumberOfValues
            | ErrorKind::NoEquals
    );
    is_about_values.then_some(error)
}

/// The text of an error without its frame.
pub(crate) fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}
