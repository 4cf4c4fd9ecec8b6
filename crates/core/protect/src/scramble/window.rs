//! The 64 plain bytes that the next byte is mixed with.

use hmac::{Hmac, Mac};
use sha1::Sha1;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Number of preceding plain bytes with which a byte is mixed. The papers' claim: up to 63 known bytes in a protocol's header do not reveal
/// the next one (Kato 2017, III-B).
pub const WINDOW: usize = 64;

/// The content of the window before the first byte of a direction. Both hosts are configured alike.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Variant {
    /// The sender's 8-byte MPTCP key in wire order (Kato 2018, Figure 14; Kato 2019, Figure 10).
    #[default]
    Key8,
    /// HMAC-SHA1 with the sender's MPTCP key over the empty message, 20 bytes (the text of Kato 2017, III-B).
    HmacSha1,
}

/// The last 64 plain bytes of one direction, oldest first.
///
/// It holds plain text, so it is wiped when dropped and has no `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Window(pub(super) [u8; WINDOW]);

impl Window {
    /// The window before the first byte of the direction whose sender announced `key` in MP_CAPABLE.
    #[must_use]
    pub fn new(variant: Variant, key: [u8; 8]) -> Self {
        match variant {
            Variant::Key8 => Self::from_newest(&key),
            Variant::HmacSha1 => {
                let mac = Hmac::<Sha1>::new_from_slice(&key).expect("HMAC takes keys of any length");
                Self::from_newest(&mac.finalize().into_bytes())
            }
        }
    }

    /// A window whose newest bytes are `bytes` (of more than 64, the last 64), with zeros before them.
    #[must_use]
    pub fn from_newest(bytes: &[u8]) -> Self {
        let mut window = Self([0; WINDOW]);
        window.push(bytes);
        window
    }

    /// Moves the window on over `plain`.
    pub(super) fn push(&mut self, plain: &[u8]) {
        self.0 = self.moved_over(plain);
    }

    /// Returns the content of the window after `plain`.
    pub(super) fn moved_over(&self, plain: &[u8]) -> [u8; WINDOW] {
        let mut moved = self.0;
        if let Some(newest) = plain.last_chunk() {
            moved = *newest;
        } else {
            moved.copy_within(plain.len().., 0);
            moved[WINDOW - plain.len()..].copy_from_slice(plain);
        }
        moved
    }

    /// XOR of all 64 bytes: what the next byte is mixed with.
    pub(super) fn xor(&self) -> u8 {
        self.0.iter().fold(0, |sum, byte| sum ^ byte)
    }
}
