//! An attacker on the paths of a whole sealed connection.

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
    properties::meddling(bytes);
});
