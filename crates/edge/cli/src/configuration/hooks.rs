//! The table `hooks`: programs that are run at events.

use super::document::{Entry, Problem, Value};
use super::suggestion;
use crate::options::seconds;

/// Its keys, each with the kind of its value and its meaning.
pub(crate) const KEYS: [(&str, &str, &str); 5] = [
    ("on-up", "array", "The program, and its arguments, that is run when the first path works."),
    ("on-down", "array", "The program that is run when no path works any more."),
    ("on-path-change", "array", "The program that is run when a path goes up or down."),
    ("time-limit", "number", "The seconds after which a program is killed [default: 30]."),
    ("as-root", "boolean", "Whether programs run as root if plait does. Otherwise none is run then."),
];

/// The mistake in a key or its value.
pub(super) fn problem(entry: &Entry) -> Option<Problem> {
    let Some((_, kind, _)) = KEYS.iter().find(|(key, _, _)| *key == entry.key) else {
        let known = KEYS.iter().map(|(key, _, _)| *key);
        let what = format!("there is no hook `{}`{}", entry.key, suggestion(&entry.key, known));
        return Some(Problem::new(&entry.key_at, what));
    };
    let fits = match (&entry.value, *kind) {
        (Value::Many(words), "array") => words.first().is_some_and(|program| program.starts_with('/')),
        (Value::Flag(_), "boolean") => true,
        (Value::One(number), "number") => seconds(number).is_ok(),
        _ => false,
    };
    let expected = match *kind {
        "array" => "an array: the path of a program from /, and its arguments",
        "boolean" => "true or false",
        _ => "a positive number of seconds",
    };
    (!fits).then(|| Problem::new(&entry.value_at, format!("`{}` is {expected}", entry.key)))
}
