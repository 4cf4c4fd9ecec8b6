//! Limits of the use of one generation of keys.

use plait_base::Duration;

use super::suite::Suite;

/// Limits after which a sender begins the next generation of keys. The limit reached first applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLimits {
    /// Plain bytes sealed under one key.
    pub bytes: u64,
    /// Blocks sealed under one key.
    pub calls: u64,
    /// Time since the first use of the key.
    pub age: Duration,
}

impl KeyLimits {
    /// The limits of the wire format.
    ///
    /// GCM loses security with the number of AES blocks (2^33 of 16 bytes) and with the number of calls (2^23,
    /// which keeps forgery and distinguishing advantages far below 2^-57 with 64 KiB blocks). ChaCha20-Poly1305
    /// has no such bound in practice; 2^48 bytes are years at any rate we reach. One hour bounds what a stolen
    /// key gives away.
    pub const fn of(suite: Suite) -> Self {
        let age = Duration::from_secs(3600);
        match suite {
            Suite::Aes128Gcm | Suite::Aes256Gcm => Self { bytes: 16 << 33, calls: 1 << 23, age },
            Suite::ChaCha20Poly1305 => Self { bytes: 1 << 48, calls: u64::MAX / HARD_FACTOR, age },
        }
    }

    /// Whether the hard limit is reached. A peer that acknowledges nothing can delay a key update, but not forever. No block is sealed
    /// beyond it.
    pub(super) const fn is_used_up(&self, bytes: u64, calls: u64) -> bool {
        bytes >= self.bytes.saturating_mul(HARD_FACTOR) || calls >= self.calls.saturating_mul(HARD_FACTOR)
    }
}

/// Sealing stops at this multiple of the limits at which an update is due: the margins of the AEADs leave
/// room for it, and no window is large enough to get there before the update is acknowledged.
const HARD_FACTOR: u64 = 2;
