//! Cleaning of the stack: rustls, ML-KEM and HMAC pass secrets by value, and do not wipe their frames.

use core::hint::black_box;

/// Bytes of stack that are overwritten: more than a step of a handshake uses, ML-KEM included.
const DEPTH: usize = 128 * 1024;

/// Runs `work`, then overwrites the stack that it has used.
pub fn scrubbed<T>(work: impl FnOnce() -> T) -> T {
    let result = deeper(work);
    overwrite();
    result
}

/// A call of its own, so that its frames lie where [`overwrite`] has its bytes.
#[inline(never)]
fn deeper<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Overwrites the stack. The compiler must assume that the zeroes are read and changed, so that it writes them. It writes them all at once:
/// byte by byte would take as long as the step.
#[inline(never)]
fn overwrite() {
    let mut stack = [0_u8; DEPTH];
    black_box(&mut stack);
}
