//! The messages that the book explains.

use std::fs;
use std::path::Path;

use super::chapter::page;

/// The heading of a message: `### plait prints: \`…\`` would be longer.
const HEADING: &str = "### `";

#[test]
fn each_message_that_the_book_explains_is_in_the_code() {
    let mut code = String::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for folder in ["core", "edge"] {
        collect(&root.join(folder), &mut code);
    }
    let code = joined(&code);
    let page = page("book/troubleshooting.md");
    let messages: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix(HEADING)?.strip_suffix('`')).collect();
    assert!(messages.len() >= 25, "{} messages", messages.len());
    let missing: Vec<_> = messages.iter().filter(|message| !contains(&code, message)).collect();
    assert!(missing.is_empty(), "no program prints {missing:#?}");
    // Each has a fix.
    let sections = page.split(HEADING).skip(1);
    let without: Vec<_> = sections.filter(|section| !section.contains("\n**Fix.** ")).collect();
    assert!(without.is_empty(), "no fix: {without:#?}");
}

#[test]
fn the_book_has_each_exit_status_of_the_help() {
    let page = page("book/troubleshooting.md");
    for status in ["0", "1", "2", "4", "5", "6", "7", "8", "125", "128+N"] {
        assert!(page.contains(&format!("\n| {status} | ")), "{status}");
    }
}

#[test]
fn the_code_in_the_book_is_a_part_of_the_documentation_that_is_compiled() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plait");
    let documented = fs::read_to_string(library.join("src/lib.rs")).expect("text");
    let compiled: Vec<_> = documented.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let page = page("book/programmers.md");
    let blocks: Vec<_> =
        page.split("```rust\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
    assert!(!blocks.is_empty());
    for line in blocks.iter().flat_map(|block| block.lines()).filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "{line}");
    }
    for cell in page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | ")) {
        let names = cell
            .0
            .split('`')
            .filter(|name| name.chars().all(|letter| letter == '_' || letter.is_ascii_lowercase()));
        for name in names.filter(|name| !name.is_empty()) {
            assert!(library.join(format!("examples/{name}.rs")).is_file(), "{name}");
        }
    }
}

/// All code below a folder, except tests.
fn collect(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !["tests", "benches", "examples"].iter().any(|other| name == **other) {
            collect(&path, code);
        } else if path.extension().is_some_and(|kind| kind == "rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("text");
            code.push_str(text.split("#[cfg(test)]\nmod tests").next().expect("the first part"));
        }
    }
}

/// The code with each string literal in one line.
fn joined(code: &str) -> String {
    let mut parts = code.split("\\\n");
    let first = parts.next().expect("the first part").to_owned();
    parts.fold(first, |joined, part| joined + part.trim_start())
}

/// Whether a literal has this text, with a part in braces for each `…`.
fn contains(code: &str, message: &str) -> bool {
    let mut parts = message.split('…');
    let first = parts.next().expect("the first part");
    let rest: Vec<_> = parts.collect();
    let begins = |at: usize| {
        let mut left = &code[at + first.len()..];
        rest.iter().all(|part| {
            let after = left.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            match after.and_then(|(_, after)| after.strip_prefix(part)) {
                Some(after) => {
                    left = after;
                    true
                }
                None => false,
            }
        })
    };
    code.match_indices(first).any(|(at, _)| begins(at))
}

#[test]
fn a_message_matches_the_literal_that_makes_it() {
    let code = joined("bail!(\"no plait runs as process {pid}\\\n    , see {}\")");
    assert!(contains(&code, "no plait runs as process …, see …"), "{code}");
    assert!(contains(&code, "no plait runs as process"));
    assert!(!contains(&code, "no plait runs as process 7"));
    assert!(!contains(&code, "no plait runs as … pid"));
}
