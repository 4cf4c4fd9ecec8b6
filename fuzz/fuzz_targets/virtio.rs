//! Packets with the header of TUN devices.

#![no_main]

#[path = "../../crates/edge/tun/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::packet(bytes);
});
