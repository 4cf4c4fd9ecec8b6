//! An attacker in control of one of the two paths of a sealed connection.

#![no_main]

#[path = "../../crates/sim/sim/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::one_path_of_two(bytes);
});
