//! One direction of a connection: writes of any size in, the same number of bytes out.

use super::engine::Block;
use super::places::Across;
use super::{Engine, Variant, WINDOW, Window};

/// Scrambles one direction of a stream.
///
/// The state advances over every byte handed in. To advance only over what a send buffer accepts, hand in only
/// that much, or work on a clone and keep it when the bytes were taken:
///
/// ```
/// use plait_protect::scramble::{Descrambler, Scrambler, Variant};
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
pub struct Scrambler(Direction);

impl Scrambler {
    /// Starts in front of the first byte that the host with this MPTCP key sends.
    #[must_use]
    pub fn new(variant: Variant, key: [u8; 8]) -> Self {
        Self::with(Window::new(variant, key), Engine::best())
    }

    /// Starts behind `window`, with an engine of the caller's choice. For tests and benches.
    #[must_use]
    pub fn with(window: Window, engine: Engine) -> Self {
        Self(Direction { window, engine })
    }

    /// Replaces the next plain bytes of the stream with the scrambled ones.
    pub fn scramble(&mut self, bytes: &mut [u8]) {
        let next = self.0.window.moved_over(bytes);
        self.0.change(bytes, |engine, window, blocks, tail| engine.scramble(window, blocks, tail));
        self.0.window.0 = next;
    }

    /// Writes the next `plain` bytes of the stream into `scrambled`: cheaper than to copy them first.
    ///
    /// # Panics
    /// If the two are not of one length.
    pub fn scramble_into(&mut self, plain: &[u8], scrambled: &mut [u8]) {
        self.0.change_into(plain, scrambled, |engine, window, blocks, tail| {
            engine.scramble(window, blocks, tail);
        });
        self.0.window.push(plain);
    }
}

/// Takes the scrambling off one direction of a stream, fed in order.
#[derive(Clone)]
pub struct Descrambler(Direction);

impl Descrambler {
    /// Starts in front of the first byte that the host with this MPTCP key sends: the peer's key.
    #[must_use]
    pub fn new(variant: Variant, key: [u8; 8]) -> Self {
        Self::with(Window::new(variant, key), Engine::best())
    }

    /// Starts behind `window`, with an engine of the caller's choice. For tests and benches.
    #[must_use]
    pub fn with(window: Window, engine: Engine) -> Self {
        Self(Direction { window, engine })
    }

    /// Replaces the next scrambled bytes of the stream with the plain ones.
    pub fn descramble(&mut self, bytes: &mut [u8]) {
        self.0.change(bytes, |engine, window, blocks, tail| engine.descramble(window, blocks, tail));
        self.0.window.push(bytes);
    }

    /// Writes the next `scrambled` bytes into `plain`: cheaper than to copy them first.
    ///
    /// # Panics
    /// If the two are not of one length.
    pub fn descramble_into(&mut self, scrambled: &[u8], plain: &mut [u8]) {
        self.0.change_into(scrambled, plain, |engine, window, blocks, tail| {
            engine.descramble(window, blocks, tail);
        });
        self.0.window.push(plain);
    }
}

/// The position of a direction, and its engine.
#[derive(Clone)]
struct Direction {
    window: Window,
    engine: Engine,
}

impl Direction {
    /// Lets `work` change all whole blocks, and the rest as a padded block. XOR goes from old bytes to new ones only, so the padding
    /// changes nothing before it.
    fn change(
        &self,
        bytes: &mut [u8],
        work: fn(Engine, &Window, blocks: &mut [Block], tail: Option<&mut Block>),
    ) {
        let (blocks, tail) = bytes.as_chunks_mut();
        if tail.is_empty() {
            return work(self.engine, &self.window, blocks, None);
        }
        let mut block = [0; WINDOW];
        block[..tail.len()].copy_from_slice(tail);
        work(self.engine, &self.window, blocks, Some(&mut block));
        tail.copy_from_slice(&block[..tail.len()]);
    }

    /// The same on the way from `old` to `new`.
    fn change_into(
        &self,
        old: &[u8],
        new: &mut [u8],
        work: fn(Engine, &Window, Across<'_>, tail: Option<&mut Block>),
    ) {
        assert_eq!(old.len(), new.len(), "what goes in comes out");
        let ((old, tail), (new, new_tail)) = (old.as_chunks(), new.as_chunks_mut());
        if tail.is_empty() {
            return work(self.engine, &self.window, (old, new), None);
        }
        let mut block = [0; WINDOW];
        block[..tail.len()].copy_from_slice(tail);
        work(self.engine, &self.window, (old, new), Some(&mut block));
        new_tail.copy_from_slice(&block[..tail.len()]);
    }
}
