//! Dependencies between modules: files of a module may use each other; modules use each other in one direction.

#![allow(clippy::disallowed_methods, reason = "the sources are read from files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules of the crate: each may use those before it, and none behind it.
const ORDER: [&str; 22] = [
    "log",
    "role",
    "event",
    "timers",
    "data_space",
    "buffer_pool",
    "paths",
    "scheduler",
    "config",
    "status",
    "host",
    "receive",
    "subflows",
    "send",
    "datagrams",
    "protection",
    "closing",
    "connection",
    "memory",
    "opening",
    // Nothing else: the root only names what others may use.
    "lib",
    "tests",
];

#[test]
fn modules_know_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = BTreeMap::new();
    read(&root, &root, &mut sources);
    assert!(sources.len() > 15, "the sources are there: {:?}", sources.keys());
    let exported = exported(&sources["lib"]);
    assert_eq!(backwards(&sources, &exported), Vec::<String>::new());
}

/// The twin that must fail: a use of what lies behind is seen, in whichever form it is written.
#[test]
fn a_use_of_what_lies_behind_is_found() {
    let exported = exported("pub use connection::Connection;\npub use opening::{ActiveOpen, Association};\n");
    for text in [
        "use crate::connection::receiving::Arrived;",
        "use crate::{\n    Config,\n    Connection,\n};",
        "let open = crate::Association::connect(now);",
    ] {
        let sources = BTreeMap::from([("protection".to_owned(), text.to_owned())]);
        assert_eq!(backwards(&sources, &exported).len(), 1, "{text}");
    }
    let sources = BTreeMap::from([("connection".to_owned(), "use crate::protection::Mode;".to_owned())]);
    assert_eq!(backwards(&sources, &exported), Vec::<String>::new());
}

/// All text of each module, without comments and without its tests.
fn read(root: &Path, directory: &Path, sources: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            read(root, &path, sources);
            continue;
        }
        let below = path.strip_prefix(root).expect("it lies below").with_extension("");
        let module = below.iter().next().expect("it has a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
        let all = sources.entry(module).or_default();
        lines.for_each(|line| *all += &format!("{line}\n"));
    }
}

/// Names that the root exports, and the modules that they come from.
fn exported(root: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in root.split(';').filter_map(|part| part.split_once("pub use ")) {
        let (module, rest) = statement.1.split_once("::").expect("a path");
        for name in words(rest) {
            names.insert(name.to_owned(), module.to_owned());
        }
    }
    names
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Uses of modules that lie behind the one that uses them.
fn backwards(sources: &BTreeMap<String, String>, exported: &BTreeMap<String, String>) -> Vec<String> {
    let place = |name: &str| ORDER.iter().position(|known| *known == name);
    let mut found = BTreeSet::new();
    for (user, text) in sources.iter().filter(|(user, _)| *user != "lib") {
        let own = place(user).unwrap_or_else(|| panic!("{user} has no place in the order"));
        for used in text.split("crate::").skip(1).flat_map(heads) {
            let module = exported.get(used).map_or(used, String::as_str);
            if place(module).is_some_and(|place| place > own) {
                found.insert(format!("{user} uses {module} ({used})"));
            }
        }
    }
    found.into_iter().collect()
}

/// The first name, or names, of a path that begins here.
fn heads(path: &str) -> Vec<&str> {
    match path.strip_prefix('{') {
        Some(group) => words(group.split('}').next().unwrap_or_default()).collect(),
        None => words(path).take(1).collect(),
    }
}
