//! Settings of a scrambled connection.

use super::Fallback;
use crate::ScrambleStart;

/// Settings of scrambling. Both hosts choose the same start value, and nothing on the wire tells whether they did. With different values
/// the connection works and each side reads noise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleSettings {
    /// Start value before the first byte of each direction.
    pub start: ScrambleStart,
    /// What happens if the peer does not scramble: the connection fails, or continues unscrambled (and, if
    /// [`Config::fallback`](crate::Config::fallback) allows it, in plain TCP).
    pub unscrambled: Fallback,
    /// Bytes at the start of our direction that only trusted paths carry, in the first transmission and in each repetition. Trusted paths
    /// carry the block that contains the last of these bytes as a whole. `u64::MAX` stands for the whole stream.
    pub trusted_bytes: u64,
    /// What happens after the last trusted path is gone.
    pub without_trusted: WithoutTrusted,
}

/// What happens to a scrambled connection while it has no trusted path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WithoutTrusted {
    /// Nothing is sent until a trusted path is available again.
    #[default]
    Stall,
    /// Untrusted paths carry everything, including the first data. [`ScrambleStatus::degraded`](crate::ScrambleStatus::degraded) reports
    /// it.
    Degrade,
}

impl Default for ScrambleSettings {
    fn default() -> Self {
        Self {
            start: ScrambleStart::default(),
            unscrambled: Fallback::Refuse,
            trusted_bytes: FIRST_SEGMENT,
            without_trusted: WithoutTrusted::default(),
        }
    }
}

/// Payload of a segment on any usual path. It stands for "the first segment", even if the application's first writes are small.
const FIRST_SEGMENT: u64 = 1460;
