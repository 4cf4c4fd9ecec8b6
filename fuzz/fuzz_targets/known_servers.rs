//! Files of known servers.

#![no_main]

#[path = "../../crates/edge/keys/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::known_servers(bytes);
});
