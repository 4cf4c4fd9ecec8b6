//! The two implementations of the papers, byte by byte.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{WINDOW, Window};

/// The straightforward implementation: shift the whole window and add all of it up for each byte
/// (Kato 2017, section IV). Slow and obviously right, so it is the oracle of the tests.
///
/// One value serves one direction on one side: it either scrambles or descrambles.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Straightforward {
    /// Oldest first.
    window: [u8; WINDOW],
}

impl Straightforward {
    /// Starts in front of the first byte.
    #[must_use]
    pub fn new(window: &Window) -> Self {
        Self { window: window.0 }
    }

    /// Replaces the next plain bytes of the stream with the scrambled ones.
    pub fn scramble(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            let plain = *byte;
            *byte ^= self.xor_of_all();
            self.shift_in(plain);
        }
    }

    /// Replaces the next scrambled bytes of the stream with the plain ones.
    pub fn descramble(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte ^= self.xor_of_all();
            self.shift_in(*byte);
        }
    }

    fn xor_of_all(&self) -> u8 {
        self.window.iter().fold(0, |sum, byte| sum ^ byte)
    }

    fn shift_in(&mut self, plain: u8) {
        self.window.copy_within(1.., 0);
        self.window[WINDOW - 1] = plain;
    }
}

/// The revised implementation: a ring in place of the shift, a running XOR in place of the sum
/// (Kato 2017, section IV; the code is Figure 14 of Kato 2018).
///
/// One value serves one direction on one side: it either scrambles or descrambles.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Revised {
    /// `sScrBuf`: the last 64 plain bytes; the newest stands at `index`.
    ring: [u8; WINDOW],
    /// `sXor`: XOR of the whole ring.
    xor: u8,
    /// `sIndex`.
    index: usize,
}

impl Revised {
    /// Starts in front of the first byte.
    #[must_use]
    pub fn new(window: &Window) -> Self {
        Self { ring: window.0, xor: window.xor(), index: WINDOW - 1 }
    }

    /// Replaces the next plain bytes of the stream with the scrambled ones.
    pub fn scramble(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            let plain = *byte;
            *byte ^= self.xor;
            self.remember(plain);
        }
    }

    /// Replaces the next scrambled bytes of the stream with the plain ones.
    pub fn descramble(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte ^= self.xor;
            self.remember(*byte);
        }
    }

    fn remember(&mut self, plain: u8) {
        self.index = (self.index + 1) % WINDOW;
        // The slot holds the oldest byte until the running XOR has let it go; the other order cancels the new
        // byte against itself and leaves a constant key stream.
        self.xor ^= self.ring[self.index] ^ plain;
        self.ring[self.index] = plain;
    }
}
