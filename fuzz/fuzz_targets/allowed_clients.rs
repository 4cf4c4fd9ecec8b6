//! Lines of allowed clients. Their parsers are compiled in from their files, as those of requests are.

#![no_main]
#![allow(
    dead_code,
    unfulfilled_lint_expectations,
    reason = "only what parses is called, and nothing is public here"
)]

#[path = "../../crates/edge/proxy/tests/properties/clients.rs"]
mod clients;
#[path = "../../crates/edge/proxy/src/convert.rs"]
mod convert;
#[path = "../../crates/edge/proxy/src/clients/entry.rs"]
mod entry;
#[path = "../../crates/edge/proxy/src/rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    clients::allowed_client(bytes);
});
