//! Requests of unknown clients to a proxy. Its parsers are compiled in from their files: they need nothing of the runtime around
//! them.

#![no_main]
#![allow(
    dead_code,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "only what parses is called, and nothing is public here"
)]

#[path = "../../crates/edge/proxy/src/convert.rs"]
mod convert;
#[path = "../../crates/edge/proxy/tests/properties/mod.rs"]
mod properties;
#[path = "../../crates/edge/proxy/src/socks.rs"]
mod socks;
#[path = "../../crates/edge/proxy/src/url.rs"]
mod url;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::request(bytes);
});
