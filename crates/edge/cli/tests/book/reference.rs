//! The page `docs/options.md`: every key of the configuration, made of what `plait config schema` and `plait config show` print.
//!
//! ```console
//! PLAIT_BOOK=write cargo test -p plait-cli --test book reference      # writes the page again; scripts/book --write does that
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::support::PLAIT;

const START: &str = "# All options

This page is made of the code: `scripts/book --write` writes it again. It lists each key that a [configuration](configuration.md) can have. Each key is also an option of the
command line (`carrier` is `--carrier`) and a variable (`PLAIT_CARRIER`).

Keys stand outside of tables, in the table of a command, or in the table of a server. A key outside of tables applies to each command in its row.
With the feature `dnssec`, there is also `dnssec-anchors` ([Keys in DNS](use.md#keys-in-dns)).
";
/// It is there with a feature of the program only.
const OPTIONAL: &str = "dnssec-anchors";
/// The heading of keys that more than one command has.
const SEVERAL: &str = "Several commands";

/// A command line of each command with what it needs at least, for its defaults.
const LINES: [(&str, &str); 10] = [
    ("check", "gw"),
    ("connect", "gw 1"),
    ("doctor", ""),
    ("forward", "-s gw -L 1:gw:1"),
    ("gateway", "-s gw --lan-device lan0"),
    ("listen", "1"),
    ("proxy", "-s gw"),
    ("run", "-s gw -- true"),
    ("serve", "--proxy --allow *:1 --anyone"),
    ("up", "-s gw"),
];

/// A key, its values, its default and its meaning.
type Row = (String, String, String, String);

#[test]
fn the_reference_of_options_is_that_of_the_program() {
    let output = Command::new(PLAIT).args(["config", "schema"]).output().expect("started");
    let schema: Value = serde_json::from_slice(&output.stdout).expect("a schema");
    let page = page(&schema["properties"]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/options.md");
    if std::env::var_os("PLAIT_BOOK").is_some_and(|mode| mode == "write") {
        fs::write(&file, &page).expect("written");
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    let differs = page.lines().zip(there.lines()).find(|(new, old)| new != old);
    assert!(page == there, "docs/options.md differs: scripts/book --write\nfirst difference: {differs:#?}");
}

fn page(tables: &Value) -> String {
    let is_command = |(name, table): &(&String, &Value)| {
        table["properties"].is_object() && !["hooks", "servers"].contains(&name.as_str())
    };
    let all = tables.as_object().expect("tables");
    let commands: Vec<_> = all.iter().filter(is_command).collect();
    let mut rows: BTreeMap<Row, Vec<&str>> = BTreeMap::new();
    for (command, table) in &commands {
        let defaults = defaults_of(command);
        for mut row in keys_of(table).filter(|(key, ..)| key != OPTIONAL) {
            row.2 = defaults.get(&row.0).map_or_else(String::new, |value| format!("`{value}`"));
            rows.entry(row).or_default().push(command);
        }
    }
    let mut headings: BTreeMap<&str, Vec<(&Row, String)>> = BTreeMap::new();
    for (row, of) in &rows {
        let heading = if let [one] = &of[..] { *one } else { SEVERAL };
        let names = if of.len() == commands.len() { "all".to_owned() } else { of.join(", ") };
        headings.entry(heading).or_default().push((row, names));
    }
    let mut page = START.to_owned();
    // The capital letter of the first heading puts it before the names of commands.
    for (heading, rows) in headings {
        let _ = write!(page, "\n## {heading}\n\n");
        page.push_str("| key | value | default | commands | meaning |\n|---|---|---|---|---|\n");
        for ((key, value, default, about), names) in rows {
            let _ = writeln!(page, "| `{key}` | {value} | {default} | {names} | {about} |");
        }
    }
    page.push_str("\n## hooks\n\nKeys of the table `hooks` ([Hooks](configuration.md#hooks)).\n\n");
    page.push_str("| key | value | meaning |\n|---|---|---|\n");
    for (key, value, _, about) in keys_of(&all["hooks"]) {
        let _ = writeln!(page, "| `{key}` | {value} | {about} |");
    }
    page
}

fn keys_of(table: &Value) -> impl Iterator<Item = Row> {
    let keys = table["properties"].as_object().expect("keys");
    keys.iter().map(|(key, about)| {
        let text = about["description"].as_str().unwrap_or_default();
        (key.clone(), value_of(about), String::new(), cell(&text.replace(" (repeatable)", "")))
    })
}

/// The defaults of a command: the lines `KEY = VALUE # default`.
fn defaults_of(name: &str) -> BTreeMap<String, String> {
    let (_, words) = LINES.iter().find(|(command, _)| *command == name).expect(name);
    let home = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(PLAIT);
    command.args(["config", "show", name]).args(words.split_whitespace());
    let output =
        command.env_clear().env("HOME", home.path()).env("PLAIT_CONFIG", "").output().expect("started");
    assert!(output.status.success(), "{name}: {output:?}");
    let shown = String::from_utf8(output.stdout).expect("text");
    let lines = shown.lines().filter_map(|line| line.strip_suffix("# default")?.split_once(" = "));
    lines.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

fn value_of(key: &Value) -> String {
    let words = |names: &Value| {
        let names = names.as_array().expect("names").iter().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    match (&key["enum"], &key["anyOf"], key["type"].as_str()) {
        (Value::Array(_), ..) => words(&key["enum"]),
        (_, Value::Array(kinds), _) => match &kinds[0]["items"]["enum"] {
            names @ Value::Array(_) => format!("list of {}", words(names)),
            _ => "list".to_owned(),
        },
        (.., Some("array")) => "list".to_owned(),
        (.., Some("boolean")) => "true, false".to_owned(),
        (.., Some("integer")) => "number".to_owned(),
        _ => "text or number".to_owned(),
    }
}

/// A text as it is, in a cell of a table in Markdown.
fn cell(text: &str) -> String {
    let mut is_code = false;
    let mut cell = String::new();
    for letter in text.chars() {
        is_code ^= letter == '`';
        match letter {
            '|' => cell.push_str("\\|"),
            '\n' => cell.push(' '),
            '*' | '_' | '<' | '[' if !is_code => cell.extend(['\\', letter]),
            _ => cell.push(letter),
        }
    }
    cell
}
