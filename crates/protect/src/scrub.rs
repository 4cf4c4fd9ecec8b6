//! What calls leave on the stack: rustls, ML-KEM and HMAC pass secrets about by value, and do not wipe where they have been.

use core::hint::black_box;

/// Bytes of stack that are overwritten: more than a step of a handshake takes, ML-KEM included.
const DEPTH: usize = 128 * 1024;

/// Does `work`, then overwrites the stack that it has used.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let result = deeper(work);
    overwrite();
    result
}

/// A call of its own, so that what it leaves lies where [`overwrite`] has its bytes.
#[inline(never)]
fn deeper<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Zeroes that somebody might look at, and change, have to be written to the stack; and all at once: byte by byte it would
/// take as long as the step.
#[inline(never)]
fn overwrite() {
    let mut stack = [0_u8; DEPTH];
    black_box(&mut stack);
}
