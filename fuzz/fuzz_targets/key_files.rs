//! Keys, certificates, roots, fingerprints and lines of key files.

#![no_main]

#[path = "../../crates/core/handshake/tests/key_files/mod.rs"]
mod key_files;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    key_files::key_file(bytes);
});
