//! The table `hooks`: programs that are run at events.

use std::path::PathBuf;
use std::time::Duration;

use super::document::{Entry, Problem, Section, Value};
use super::suggestion;
use crate::options::seconds;

/// Its keys, each with the kind of its value and its meaning.
pub(super) const KEYS: [(&str, &str, &str); 6] = [
    ("on-up", "array", "The program, and its arguments, that is run when the first path works."),
    ("on-down", "array", "The program that is run when no path works any more."),
    ("on-path-change", "array", "The program that is run when a path goes up or down, or is removed."),
    ("time-limit", "number", "The seconds after which a program is killed [default: 30]."),
    ("user", "string", "The user that programs run as, if plait is root."),
    (
        "as-root",
        "boolean",
        "Whether programs run as root if plait is root. Without this and without `user`, the plait of root runs no program.",
    ),
];
/// The time limit of a program.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The programs of a configuration.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Hooks {
    entries: Vec<(String, Value)>,
}

impl Hooks {
    /// The values of a section that has been checked.
    pub(super) fn of(section: &Section) -> Self {
        Self {
            entries: section.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect(),
        }
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Whether any program is run at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The program of an event, and its arguments.
    pub(crate) fn program(&self, event: &str) -> Option<&[String]> {
        match self.value(&format!("on-{event}"))? {
            Value::Many(words) => Some(words),
            Value::Flag(_) | Value::One(_) => None,
        }
    }

    /// The files of the programs.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let programs = self.entries.iter().filter_map(|(_, value)| match value {
            Value::Many(words) => words.first(),
            Value::Flag(_) | Value::One(_) => None,
        });
        programs.map(PathBuf::from)
    }

    pub(crate) fn time_limit(&self) -> Duration {
        match self.value("time-limit") {
            Some(Value::One(number)) => seconds(number).unwrap_or(TIME_LIMIT),
            Some(Value::Flag(_) | Value::Many(_)) | None => TIME_LIMIT,
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        match self.value("user")? {
            Value::One(name) => Some(name),
            Value::Flag(_) | Value::Many(_) => None,
        }
    }

    pub(crate) fn as_root(&self) -> bool {
        self.value("as-root") == Some(&Value::Flag(true))
    }
}

/// The mistake in a key or its value.
pub(super) fn problem(entry: &Entry) -> Option<Problem> {
    let Some((_, kind, _)) = KEYS.iter().find(|(key, _, _)| *key == entry.key) else {
        let known = KEYS.iter().map(|(key, _, _)| *key);
        let what = format!("there is no hook `{}`{}", entry.key, suggestion(&entry.key, known));
        return Some(Problem::new(&entry.key_at, what));
    };
    let (fits, expected) = match (*kind, &entry.value) {
        ("array", value) => {
            let fits = matches!(value, Value::Many(words) if words.first().is_some_and(|name| name.starts_with('/')));
            (fits, "an array: a program with its path from /, and its arguments")
        }
        ("boolean", value) => (matches!(value, Value::Flag(_)), "true or false"),
        ("number", value) => {
            (matches!(value, Value::One(number) if seconds(number).is_ok()), "a positive number of seconds")
        }
        (_, value) => (matches!(value, Value::One(_)), "a text"),
    };
    (!fits).then(|| Problem::new(&entry.value_at, format!("`{}` is {expected}", entry.key)))
}
