//! A key stream that never changes, as in Kato 2019, Figure 17: one of 256 bytes, tried in turn.

use crate::language::Model;

/// The effect of XOR with one byte on the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConstantKey {
    /// The byte.
    pub key: u8,
    /// The text.
    pub plain: Vec<u8>,
}

/// The byte that makes the best text of all of `bytes`.
#[must_use]
pub fn constant_key(bytes: &[u8], model: &Model) -> ConstantKey {
    let with = |key: u8| ConstantKey { key, plain: bytes.iter().map(|byte| byte ^ key).collect() };
    // A sample is enough; the whole of a long capture is not needed 256 times.
    let sample = &bytes[..bytes.len().min(SAMPLE)];
    let bits = |key: &u8| {
        let plain: Vec<u8> = sample.iter().map(|byte| byte ^ key).collect();
        model.bits_per_byte(&plain)
    };
    let key = (0..=255).min_by(|one, other| bits(one).total_cmp(&bits(other))).unwrap_or(0);
    with(key)
}

/// Bytes looked at to find the key.
const SAMPLE: usize = 512;
