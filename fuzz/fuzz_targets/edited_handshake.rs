//! A handshake with an attacker on the path.

#![no_main]

#[path = "../../crates/core/handshake/tests/properties/mod.rs"]
#[allow(dead_code, reason = "each target calls one of the properties")]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::on_the_path(bytes);
});
