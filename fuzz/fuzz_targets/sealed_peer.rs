//! A peer that has the keys of a sealed connection and breaks the rules.

#![no_main]
#![allow(dead_code, reason = "each target calls one of the properties")]

#[path = "../../crates/mptcp/tests/properties/mod.rs"]
mod properties;
#[path = "../../crates/mptcp/tests/sealing/mod.rs"]
mod sealing;
#[path = "../../crates/mptcp/tests/stranger/mod.rs"]
mod stranger;
#[path = "../../crates/mptcp/tests/visit/mod.rs"]
mod visit;
#[path = "../../crates/mptcp/tests/world/mod.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::peer_with_keys(bytes);
});
