//! The tables of `client`: each is a line of `authorized_clients`.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::document::Problem;

/// The key of allowed clients: an array of texts as for `--client`, or of tables.
pub(crate) const CLIENT: &str = "client";
/// The keys of a table.
pub(super) const KEYS: [&str; 5] = ["name", "key", "allow", "expires", "connections"];

/// The line that a table means.
///
/// # Errors
/// The mistakes in the table.
pub(super) fn line(at: &Range<usize>, table: &DeTable<'_>) -> Result<String, Vec<Problem>> {
    let (mut name, mut key, mut options, mut problems) = (None, None, Vec::new(), Vec::new());
    for (word, value) in table {
        let at = value.span();
        match (word.get_ref().replace('_', "-").as_str(), value.get_ref()) {
            ("name", DeValue::String(text)) if is_name(text) => name = Some(text.to_string()),
            ("key", DeValue::String(text)) if is_key(text) => key = Some(text.to_string()),
            ("allow", DeValue::String(text)) if is_word(text) => options.push(format!("allow={text}")),
            ("allow", DeValue::Array(array)) => {
                let rules = array.iter().map(|rule| match rule.get_ref() {
                    DeValue::String(text) if is_word(text) && !text.contains(',') => Some(text.to_string()),
                    _ => None,
                });
                match rules.collect::<Option<Vec<_>>>().filter(|rules| !rules.is_empty()) {
                    Some(rules) => options.push(format!("allow={}", rules.join(","))),
                    None => problems.push(Problem::new(&at, "`allow` is a list of rules, as in \"*:443\"")),
                }
            }
            ("expires", DeValue::String(text)) if is_word(text) => options.push(format!("expires={text}")),
            ("expires", DeValue::Datetime(time)) => {
                options.push(format!("expires={}", time.to_string().replace(' ', "T")));
            }
            ("connections", DeValue::Integer(number)) if number.radix() == 10 => {
                options.push(format!("connections={}", number.as_str().replace('_', "")));
            }
            (known, _) if KEYS.contains(&known) => {
                problems.push(Problem::new(&at, format!("not a value of `{known}`")));
            }
            (other, _) => {
                let suggestion = super::suggestion(other, KEYS);
                problems
                    .push(Problem::new(&word.span(), format!("a client has no key `{other}`{suggestion}")));
            }
        }
    }
    let missing = |what: &str| Problem::new(at, format!("a client without `{what}`"));
    problems.extend(name.is_none().then(|| missing("name")).filter(|_| problems.is_empty()));
    problems.extend(key.is_none().then(|| missing("key")).filter(|_| problems.is_empty()));
    match (name, key, problems) {
        (Some(name), Some(key), problems) if problems.is_empty() => {
            options.extend([key, name]);
            Ok(options.join(" "))
        }
        (_, _, problems) => Err(problems),
    }
}

/// A text that is one word of a line.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// The two words of a public key, without a name behind them.
fn is_key(text: &str) -> bool {
    text.split(' ').count() == 2 && text.split(' ').all(is_word)
}

fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || c == '#')
}
