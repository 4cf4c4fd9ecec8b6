//! A peer that has the keys of a sealed connection and breaks the rules.

#![no_main]
#![allow(dead_code, reason = "each target calls one of the properties")]

#[path = "../../crates/core/mptcp/tests/properties/mod.rs"]
mod properties;
#[path = "../../crates/core/mptcp/tests/sealing/mod.rs"]
mod sealing;
#[path = "../../crates/core/mptcp/tests/raw_peer/mod.rs"]
mod raw_peer;
#[path = "../../crates/core/mptcp/tests/listener/mod.rs"]
mod listener;
#[path = "../../crates/core/mptcp/tests/world/mod.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::peer_with_keys(bytes);
});
