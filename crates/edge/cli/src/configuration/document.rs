//! A configuration as text: sections of keys and values, each with its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::clients::{self, CLIENT};

/// The table of servers, by name.
pub(crate) const SERVERS: &str = "servers";
/// The table of programs that are run at events.
pub(crate) const HOOKS: &str = "hooks";
/// The key of paths: an array of texts as for `--path`, or of tables.
pub(crate) const PATH: &str = "path";
/// The keys of a table of `path`, each with the kind of its value.
pub(crate) const PATH_KEYS: [&str; 5] = ["device", "class", "backup", "cap", "over-cap"];
/// The key of the volumes of paths.
pub(crate) const CAP: &str = "cap";

/// A configuration.
#[derive(Debug)]
pub(crate) struct Document {
    file: PathBuf,
    text: String,
    /// The keys outside of tables: they count for each command that has such an option.
    pub(crate) common: Section,
    /// The tables with the names of commands.
    pub(crate) commands: BTreeMap<String, Section>,
    pub(crate) servers: BTreeMap<String, Section>,
    pub(crate) hooks: Section,
}

/// A table.
#[derive(Clone, Default, Debug)]
pub(crate) struct Section {
    /// Its name in the file.
    pub(crate) at: Range<usize>,
    pub(crate) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// With `-` in place of `_`.
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) key_at: Range<usize>,
    pub(crate) value_at: Range<usize>,
    /// The place of each client, if it is a list of clients.
    pub(crate) parts: Vec<Range<usize>>,
}

/// A value, as the words of a command line have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Flag(bool),
    One(String),
    Many(Vec<String>),
}

/// A mistake in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) at: Range<usize>,
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(at: &Range<usize>, what: impl Into<String>) -> Self {
        Self { at: at.clone(), what: what.into() }
    }
}

impl Document {
    /// Reads the text of `file`. The problems are those of the form; what is readable is in the document all the same.
    pub(crate) fn parse(file: &Path, text: String) -> (Self, Vec<Problem>) {
        let (table, errors) = DeTable::parse_recoverable(&text);
        let mut problems: Vec<_> =
            errors.iter().map(|error| Problem::new(&error.span().unwrap_or(0..0), error.message())).collect();
        let mut reading = Reading { problems: &mut problems, caps: Vec::new() };
        let (mut common, mut hooks) = (Section::default(), Section::default());
        let (mut commands, mut servers) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in table.get_ref() {
            match value.get_ref() {
                DeValue::Table(table) if key.get_ref() == SERVERS => {
                    for (name, server) in table {
                        if let Some(section) = reading.table(name.span(), server) {
                            servers.insert(name.get_ref().to_string(), section);
                        }
                    }
                }
                DeValue::Table(table) => {
                    let section = reading.section(key.span(), table);
                    if key.get_ref() == HOOKS {
                        hooks = section;
                    } else {
                        commands.insert(key.get_ref().to_string(), section);
                    }
                }
                _ => {
                    common.entries.extend(reading.entry((key.get_ref(), key.span()), value));
                    // Before another table is read.
                    common.entries.extend(reading.caps_read());
                }
            }
        }
        reading.without_twins(&mut common);
        drop(table);
        (Self { file: file.to_owned(), text, common, commands, servers, hooks }, problems)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The line of a place, from 1.
    pub(crate) fn line(&self, at: &Range<usize>) -> usize {
        self.position(at.start).0
    }

    /// The line and the column, in characters, of a place, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    /// A problem with its place, its line and a mark below it.
    pub(crate) fn shown(&self, problem: &Problem) -> String {
        let (line, column) = self.position(problem.at.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let (number, margin) = (line.to_string(), " ".repeat(line.to_string().len()));
        let width = self
            .text
            .get(problem.at.clone())
            .map_or(1, |part| part.lines().next().unwrap_or_default().chars().count().max(1));
        let mut shown = format!("{}:{line}:{column}: {}", self.file.display(), problem.what);
        // A line that fits a terminal.
        if text.chars().count() <= 120 && !text.contains(char::is_control) {
            let mark = " ".repeat(column - 1) + &"^".repeat(width.min(120));
            let _ = write!(shown, "\n  {number} | {text}\n  {margin} | {mark}");
        }
        shown
    }
}

/// The reading of a document, which goes on after problems.
struct Reading<'a> {
    problems: &'a mut Vec<Problem>,
    /// The volumes in the paths of the current table.
    caps: Vec<Entry>,
}

impl Reading<'_> {
    fn table(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) -> Option<Section> {
        match value.get_ref() {
            DeValue::Table(table) => Some(self.section(at, table)),
            _ => {
                self.problems.push(Problem::new(&value.span(), "not a table"));
                None
            }
        }
    }

    fn section(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Section {
        let entries =
            table.iter().filter_map(|(key, value)| self.entry((key.get_ref(), key.span()), value)).collect();
        let mut section = Section { at, entries };
        section.entries.extend(self.caps_read());
        self.without_twins(&mut section);
        section
    }

    /// The volumes in the paths that were read, as the option has them.
    fn caps_read(&mut self) -> Option<Entry> {
        let caps = std::mem::take(&mut self.caps);
        let first = caps.first()?.clone();
        let words = caps.into_iter().filter_map(|cap| match cap.value {
            Value::One(word) => Some(word),
            Value::Flag(_) | Value::Many(_) => None,
        });
        Some(Entry { value: Value::Many(words.collect()), ..first })
    }

    /// `max_connections` and `max-connections` are one key.
    fn without_twins(&mut self, section: &mut Section) {
        section.entries.sort_by_key(|entry| entry.key_at.start);
        let mut seen = Vec::new();
        for entry in &section.entries {
            if seen.contains(&&entry.key) {
                self.problems.push(Problem::new(&entry.key_at, format!("a second value of `{}`", entry.key)));
            }
            seen.push(&entry.key);
        }
    }

    fn entry(&mut self, (key, key_at): (&str, Range<usize>), value: &Spanned<DeValue<'_>>) -> Option<Entry> {
        let key = key.replace('_', "-");
        let (value_at, mut parts) = (value.span(), Vec::new());
        let value = match value.get_ref() {
            DeValue::Array(array) if key == CLIENT => {
                let read = array.iter().filter_map(|item| Some((self.client(item)?, item.span())));
                let (lines, places) = read.unzip();
                parts = places;
                Some(Value::Many(lines))
            }
            DeValue::Array(array) if key == PATH => Some(Value::Many(self.paths(array))),
            DeValue::Array(array) => {
                let words = array.iter().filter_map(|item| self.word(item)).collect();
                Some(Value::Many(words))
            }
            DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
            DeValue::Table(_) => {
                self.problems.push(Problem::new(&key_at, format!("`{key}` is no table")));
                None
            }
            _ => self.word(value).map(Value::One),
        };
        value.map(|value| Entry { key, value, key_at, value_at, parts })
    }

    /// A value as a word of a command line.
    fn word(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
            DeValue::Float(number) => Some(number.as_str().replace('_', "")),
            DeValue::Integer(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                self.problems.push(Problem::new(&value.span(), "neither a text nor a number"));
                None
            }
        }
    }

    /// The paths, each as the option has it: `device = "eth0"`, `class = "untrusted"` and `backup = true` are `eth0=untrusted,backup`.
    fn paths(&mut self, array: &DeArray<'_>) -> Vec<String> {
        let path = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::Table(table) => self.path(item.span(), table),
            _ => self.word(item),
        };
        array.iter().filter_map(path).collect()
    }

    /// A client, as the option has it.
    fn client(&mut self, item: &Spanned<DeValue<'_>>) -> Option<String> {
        let DeValue::Table(table) = item.get_ref() else { return self.word(item) };
        let line = clients::line(&item.span(), table);
        line.map_err(|problems| self.problems.extend(problems)).ok()
    }

    fn path(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Option<String> {
        let (mut device, mut how) = (None, Vec::new());
        let (mut cap, mut over) = (None, "");
        for (key, value) in table {
            let name = key.get_ref().replace('_', "-");
            match (name.as_str(), value.get_ref()) {
                ("device", DeValue::String(text)) => device = Some(text.to_string()),
                ("class", DeValue::String(text)) => how.push(text.to_string()),
                ("backup", DeValue::Boolean(true)) => how.push("backup".to_owned()),
                ("backup", DeValue::Boolean(false)) => {}
                ("cap", DeValue::String(text)) => cap = Some((text.to_string(), key.span(), value.span())),
                ("over-cap", DeValue::String(text)) if text == "never" => over = ",never",
                ("over-cap", DeValue::String(text)) if text == "backup" => {}
                (key, _) if PATH_KEYS.contains(&key) => {
                    self.problems.push(Problem::new(&value.span(), format!("not a value of `{key}`")));
                }
                (other, _) => {
                    let suggestion = super::suggestion(other, PATH_KEYS);
                    let what = format!("a path has no key `{other}`{suggestion}");
                    self.problems.push(Problem::new(&key.span(), what));
                }
            }
        }
        let Some(device) = device else {
            self.problems.push(Problem::new(&at, "a path without `device`"));
            return None;
        };
        if let Some((text, key_at, value_at)) = cap {
            let value = Value::One(format!("{device}={text}{over}"));
            self.caps.push(Entry { key: CAP.to_owned(), value, key_at, value_at, parts: Vec::new() });
        }
        // The class comes first, whatever the order in the file.
        how.sort_by_key(|word| word == "backup");
        Some(if how.is_empty() { device } else { format!("{device}={}", how.join(",")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Document, Vec<String>) {
        let (document, problems) = Document::parse(Path::new("gw.toml"), text.to_owned());
        let shown = problems.iter().map(|problem| document.shown(problem)).collect();
        (document, shown)
    }

    fn values(section: &Section) -> Vec<(&str, Value)> {
        section.entries.iter().map(|entry| (entry.key.as_str(), entry.value.clone())).collect()
    }

    #[test]
    fn keys_are_options_in_the_order_of_the_file() {
        let (document, problems) = parsed(
            "carrier = \"udp\"\nkeep_alive = 12.5\nmesh = true\n[serve]\nlisten = 7_443\nallow = [\"*:443\", \"h:1\"]\n\
             [servers.work]\nurl = \"plait://gw\"\n[hooks]\non_up = [\"/bin/true\"]\n",
        );
        assert_eq!(problems, [""; 0]);
        let one = |text: &str| Value::One(text.to_owned());
        let many = |words: &[&str]| Value::Many(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(
            values(&document.common),
            [("carrier", one("udp")), ("keep-alive", one("12.5")), ("mesh", Value::Flag(true))]
        );
        assert_eq!(
            values(&document.commands["serve"]),
            [("listen", one("7443")), ("allow", many(&["*:443", "h:1"]))]
        );
        assert_eq!(values(&document.servers["work"]), [("url", one("plait://gw"))]);
        assert_eq!(values(&document.hooks), [("on-up", many(&["/bin/true"]))]);
    }

    #[test]
    fn a_path_is_a_text_or_a_table() {
        let (document, problems) =
            parsed("path = [\"wlan0=untrusted\", { device = \"usb*\", backup = true }]\n");
        assert_eq!(problems, [""; 0]);
        let paths = ["wlan0=untrusted", "usb*=backup"].map(str::to_owned).to_vec();
        assert_eq!(values(&document.common), [("path", Value::Many(paths))]);
        let (document, problems) =
            parsed("[[path]]\nbackup = true\nclass = \"untrusted\"\ndevice = \"eth0\"\n");
        assert_eq!(problems, [""; 0]);
        let paths = vec!["eth0=untrusted,backup".to_owned()];
        assert_eq!(values(&document.common), [("path", Value::Many(paths))]);
    }

    #[test]
    fn each_mistake_has_its_place_and_the_rest_is_read() {
        let (document, problems) = parsed(
            "carrier = \"udp\ncheck = 1979-05-27\n[[path]]\ndevise = \"eth0\"\n[serve]\nmax_per = 1\nmax-per = 2\n",
        );
        for (text, place) in [
            ("invalid basic string", ":1:"),
            ("neither a text nor a number", ":2:9:"),
            ("a path has no key `devise` (did you mean `device`?)", ":4:1:"),
            ("a path without `device`", ":3:"),
            ("a second value of `max-per`", ":7:1:"),
        ] {
            let found = problems.iter().find(|shown| shown.contains(text));
            let found = found.unwrap_or_else(|| panic!("{text}: {problems:#?}"));
            assert!(found.starts_with(&format!("gw.toml{place}")), "{found}");
        }
        assert_eq!(document.commands["serve"].entries.len(), 2);
        let marked = problems.iter().find(|shown| shown.contains("devise")).expect("one");
        assert!(marked.ends_with("  4 | devise = \"eth0\"\n    | ^^^^^^"), "{marked}");
    }
}
