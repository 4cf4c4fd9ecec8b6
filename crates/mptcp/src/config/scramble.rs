//! What can be chosen about a scrambled connection.

use super::Fallback;
use crate::ScrambleStart;

/// Settings of scrambling. Both hosts choose the same start value, and nothing on the wire tells whether they
/// did: with different ones the connection works and each side reads noise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrambleSettings {
    /// What stands before the first byte of each direction.
    pub start: ScrambleStart,
    /// What may happen where the peer does not scramble: fail, or go on unscrambled (and then, where
    /// [`Config::fallback`](crate::Config::fallback) allows it, in plain TCP).
    pub unscrambled: Fallback,
    /// Bytes at the start of our direction that only trusted paths carry, the first time and every time. The
    /// block that the last of them lies in is kept to them as a whole; `u64::MAX` for all there ever are.
    pub trusted_bytes: u64,
    /// What happens when the last trusted path is gone.
    pub without_trusted: WithoutTrusted,
}

/// What happens to a scrambled connection while it has no trusted path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WithoutTrusted {
    /// Nothing is sent before there is one again.
    #[default]
    Stall,
    /// Untrusted paths carry everything, first data included; [`ScrambleStatus::degraded`](crate::ScrambleStatus::degraded) tells.
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

/// What a segment of any usual path holds: "the first segment", however small the application's first
/// writes are.
const FIRST_SEGMENT: u64 = 1460;
