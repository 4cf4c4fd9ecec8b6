//! Files of state: volumes and accounts. Their parsers are compiled in from their files.

#![no_main]
#![allow(dead_code, reason = "only what parses is called")]

#[path = "../../crates/edge/cli/src/linux/accounts/book.rs"]
mod book;
#[path = "../../crates/edge/cli/src/configuration/clients.rs"]
mod clients;
#[path = "../../crates/edge/cli/src/configuration/document.rs"]
mod document;
#[path = "../../crates/edge/cli/tests/properties/mod.rs"]
mod properties;
#[path = "../../crates/edge/cli/src/linux/usage/volumes.rs"]
mod volumes;

/// Mistakes are found without it.
fn suggestion<'a>(_unknown: &str, _known: impl IntoIterator<Item = &'a str>) -> String {
    String::new()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::state(bytes);
});
