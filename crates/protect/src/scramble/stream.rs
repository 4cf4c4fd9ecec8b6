//! One direction of a connection: writes of any size in, the same number of bytes out.

use super::{Engine, Variant, WINDOW, Window};

/// Scrambles one direction of a stream.
///
/// The state advances over every byte handed in. To advance only over what a send buffer accepts, hand in only
/// that much, or work on a clone and keep it when the bytes were taken:
///
/// ```
/// use protect::scramble::{Descrambler, Scrambler, Variant};
///
/// let key = *b"8 bytes!";
/// let mut scrambler = Scrambler::new(Variant::Key8, key);
/// let mut descrambler = Descrambler::new(Variant::Key8, key);
///
/// let mut wire = b"one write, ".to_vec();
/// scrambler.scramble(&mut wire);
/// let mut tried = scrambler.clone();
/// let mut refused = b"bytes that the buffer had no room for".to_vec();
/// tried.scramble(&mut refused);
/// wire.extend_from_slice(b"another write");
/// scrambler.scramble(&mut wire[11..]);
///
/// descrambler.descramble(&mut wire);
/// assert_eq!(wire, b"one write, another write");
/// ```
#[derive(Clone)]
pub struct Scrambler {
    window: Window,
    engine: Engine,
}

impl Scrambler {
    /// Starts in front of the first byte that the host with this MPTCP key sends.
    #[must_use]
    pub fn new(variant: Variant, key: [u8; 8]) -> Self {
        Self::with(Window::new(variant, key), Engine::best())
    }

    /// Starts behind `window`, with an engine of the caller's choice. For tests and benches.
    #[must_use]
    pub fn with(window: Window, engine: Engine) -> Self {
        Self { window, engine }
    }

    /// Replaces the next plain bytes of the stream with the scrambled ones.
    pub fn scramble(&mut self, bytes: &mut [u8]) {
        let next = self.window.moved_over(bytes);
        let (blocks, tail) = bytes.as_chunks_mut();
        if tail.is_empty() {
            self.engine.scramble(&self.window, blocks, None);
        } else {
            let mut block = padded(tail);
            self.engine.scramble(&self.window, blocks, Some(&mut block));
            tail.copy_from_slice(&block[..tail.len()]);
        }
        self.window.0 = next;
    }

    /// As [`scramble`](Self::scramble), from one place to another, so that taking the bytes over and scrambling
    /// them is one step.
    ///
    /// # Panics
    ///
    /// If the two lengths differ.
    pub fn scramble_into(&mut self, plain: &[u8], wire: &mut [u8]) {
        assert_eq!(plain.len(), wire.len(), "scrambling keeps the length");
        for (plain, wire) in plain.chunks(HOT).zip(wire.chunks_mut(HOT)) {
            wire.copy_from_slice(plain);
            self.scramble(wire);
        }
    }
}

/// Takes the scrambling off one direction of a stream, fed in order.
#[derive(Clone)]
pub struct Descrambler {
    window: Window,
    engine: Engine,
}

impl Descrambler {
    /// Starts in front of the first byte that the host with this MPTCP key sends: the peer's key.
    #[must_use]
    pub fn new(variant: Variant, key: [u8; 8]) -> Self {
        Self::with(Window::new(variant, key), Engine::best())
    }

    /// Starts behind `window`, with an engine of the caller's choice. For tests and benches.
    #[must_use]
    pub fn with(window: Window, engine: Engine) -> Self {
        Self { window, engine }
    }

    /// Replaces the next scrambled bytes of the stream with the plain ones.
    pub fn descramble(&mut self, bytes: &mut [u8]) {
        let (blocks, tail) = bytes.as_chunks_mut();
        if tail.is_empty() {
            self.engine.descramble(&self.window, blocks, None);
        } else {
            let mut block = padded(tail);
            self.engine.descramble(&self.window, blocks, Some(&mut block));
            tail.copy_from_slice(&block[..tail.len()]);
        }
        self.window.push(bytes);
    }

    /// As [`descramble`](Self::descramble), from one place to another.
    ///
    /// # Panics
    ///
    /// If the two lengths differ.
    pub fn descramble_into(&mut self, wire: &[u8], plain: &mut [u8]) {
        assert_eq!(wire.len(), plain.len(), "scrambling keeps the length");
        for (wire, plain) in wire.chunks(HOT).zip(plain.chunks_mut(HOT)) {
            plain.copy_from_slice(wire);
            self.descramble(plain);
        }
    }
}

/// Pieces in which bytes are copied and then worked on in place: they fit the first-level cache with room.
const HOT: usize = 8 * 1024;

/// What is left behind the last whole block, filled up. XOR runs from old bytes to new ones only, so the
/// filling changes nothing before it.
fn padded(tail: &[u8]) -> [u8; WINDOW] {
    let mut block = [0; WINDOW];
    block[..tail.len()].copy_from_slice(tail);
    block
}
