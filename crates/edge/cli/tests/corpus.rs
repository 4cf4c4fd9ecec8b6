//! Replays the corpora of configurations and files of state without a fuzzer. The program is no library: its parsers are compiled in from
//! their files.

#![allow(dead_code, reason = "only what parses is called")]

#[path = "../src/linux/accounts/book.rs"]
mod book;
#[path = "../src/configuration/clients.rs"]
mod clients;
#[path = "../src/configuration/document.rs"]
mod document;
mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
#[path = "../src/linux/usage/volumes.rs"]
mod volumes;

use replay::{Effort, replay};

/// As the program has it.
fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let alike = |word: &&str| strsim::jaro_winkler(unknown, word);
    let best = known.into_iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
    best.filter(|word| alike(word) > 0.8)
        .map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

#[test]
fn any_configuration_is_read_or_its_mistakes_have_places() {
    replay("configuration", 3, &Effort { bytes: 600, step: 5 }, properties::configuration);
}

#[test]
fn any_file_of_state_is_read_as_it_is_written() {
    replay("state", 3, &Effort { bytes: 600, step: 3 }, properties::state);
}
