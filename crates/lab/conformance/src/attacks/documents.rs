//! Checks that each test or attack named in the documents exists.

use std::fs;
use std::path::{Path, PathBuf};

use crate::attacks::case::all;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The commands in the code spans of a document, each as its words.
fn commands(document: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(document)).expect("a document");
    let spans = text.split('`').skip(1).step_by(2);
    let is_command = |span: &&str| span.contains("cargo test ") || span.contains("scripts/attacks ");
    let is_pattern = |span: &&str| span.split_whitespace().any(|word| word == "NAME");
    spans
        .filter(|span| is_command(span) && !is_pattern(span))
        .map(|span| span.split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn behind<'a>(words: &'a [String], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).map(String::as_str)
}

/// All Rust text of a file or a folder.
fn rust_text(path: &Path) -> String {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("readable").map(|entry| entry.expect("readable").path());
        return entries.map(|entry| rust_text(&entry)).collect();
    }
    if path.extension().is_some_and(|extension| extension == "rs") {
        fs::read_to_string(path).expect("readable")
    } else {
        String::new()
    }
}

/// The reason that a `cargo test` line names no existing test.
fn test_is_missing(words: &[String]) -> Option<&'static str> {
    let Some(package) = behind(words, "-p") else { return Some("no package") };
    let name = package.strip_prefix("plait-").unwrap_or(package);
    let mut crates = ["core", "edge", "lab", "sim"]
        .map(|folder| root().join("crates").join(folder).join(name))
        .into_iter();
    let Some(folder) = crates.find(|folder| folder.exists()) else { return Some("no such package") };
    let (text, named_by) = match behind(words, "--test") {
        Some(file) => {
            let tests = folder.join("tests");
            let text = rust_text(&tests.join(file))
                + &fs::read_to_string(tests.join(format!("{file}.rs"))).unwrap_or_default();
            (text, behind(words, file))
        }
        None => {
            let name =
                behind(words, "--lib").or_else(|| behind(words, "--bin").and_then(|bin| behind(words, bin)));
            (rust_text(&folder.join("src")), name)
        }
    };
    if text.is_empty() {
        return Some("no such tests");
    }
    let is_module = |name: &str| text.contains(&format!("\nmod {name};\n"));
    match named_by.filter(|name| !name.starts_with('-')) {
        Some(name) if is_module(name) => None,
        Some(name) if !text.contains(&format!("fn {name}(")) => Some("no such test"),
        Some(name) => {
            let before = text.split(&format!("fn {name}(")).next().unwrap_or_default();
            let is_ignored = before.rsplit("#[test]").next().is_some_and(|near| near.contains("#[ignore"));
            let is_asked_for = words.iter().any(|word| word == "--ignored");
            (is_ignored && !is_asked_for).then_some("it is left out unless --ignored is said")
        }
        None => None,
    }
}

/// The reason that a `scripts/attacks` line names no existing case.
fn attack_is_missing(words: &[String]) -> Option<&'static str> {
    let names: Vec<String> = all().into_iter().map(|case| case.name).collect();
    let is_there = |part: &str| names.iter().any(|name| name.contains(part));
    behind(words, "--only").is_some_and(|only| !is_there(only)).then_some("no such attack")
}

fn missing(document: &str) -> Vec<String> {
    let judge = |words: &Vec<String>| {
        let is_test = words.windows(2).any(|pair| pair == ["cargo", "test"]);
        let why = if is_test { test_is_missing(words) } else { attack_is_missing(words) }?;
        Some(format!("{document}: {}: {why}", words.join(" ")))
    };
    commands(document).iter().filter_map(judge).collect()
}

#[test]
fn every_test_and_attack_that_the_documents_name_exists() {
    let documents = ["docs/security.md", "docs/protocol.md", "README.md", "SECURITY.md", "CONTRIBUTING.md"];
    let missing: Vec<String> = documents.iter().flat_map(|document| missing(document)).collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(commands("docs/security.md").len() > 20, "they are found at all");
}

#[test]
fn a_name_that_does_not_exist_is_noticed() {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (line, expected) in [
        ("cargo test -p plait-mptcp --test never_plain", None),
        ("cargo test -p plait-mptcp --test never_plain nobody_has_written_this", Some("no such test")),
        ("cargo test -p plait-mptcp --test no_such_file", Some("no such tests")),
        ("cargo test -p plait-mptcp --lib nobody_has_written_this", Some("no such test")),
    ] {
        assert_eq!(test_is_missing(&words(line)), expected, "{line}");
    }
    assert_eq!(attack_is_missing(&words("sudo scripts/attacks --only one-path/flip")), None);
    assert_eq!(
        attack_is_missing(&words("sudo scripts/attacks --only one-path/nothing")),
        Some("no such attack")
    );
}
