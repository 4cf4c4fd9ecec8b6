//! pcapng and pcap files.

#![no_main]

#[path = "../../crates/lab/cryptanalysis/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::capture(bytes);
});
