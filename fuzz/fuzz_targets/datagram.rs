//! A datagram beside the stream.

#![no_main]

#[path = "../../crates/core/protect/tests/properties/mod.rs"]
#[allow(dead_code, reason = "each target calls one of the properties")]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::datagram(bytes);
});
