//! Reused receive buffers.
//!
//! A packet is read into a buffer with room for the largest packet. A packet that fills a good part of it
//! keeps the buffer until its last byte is released. A small packet is copied out, because a hundred bytes
//! that wait for a reader must not hold 64 KiB.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Spare buffers of one size; clones share them.
///
/// ```
/// use plait_host::Pool;
/// use std::io::Read;
///
/// let pool = Pool::new(64 * 1024, 16);
/// let mut buffer = pool.take();
/// let len = (&b"some bytes"[..]).read(buffer.as_mut())?;
/// let (bytes, buffer) = buffer.split(len);
/// assert_eq!(&bytes[..], b"some bytes");
/// assert!(buffer.is_some(), "few bytes are copied, and the buffer is free again");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    spare: Arc<Mutex<Vec<Box<[u8]>>>>,
    buffer_len: usize,
    max_spare: usize,
}

/// One buffer, lent by a pool; dropping it gives it back.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    home: Pool,
}

/// A packet that fills less than this part of its buffer is copied: so at most three quarters are ever
/// wasted.
const KEEP_PART: usize = 4;

impl Pool {
    /// A pool of buffers of `buffer_len` bytes that keeps at most `max_spare` of them for later.
    #[must_use]
    pub fn new(buffer_len: usize, max_spare: usize) -> Self {
        Self { spare: Arc::default(), buffer_len, max_spare }
    }

    /// A buffer with anything in it: the one used last, which is still in the cache.
    #[must_use]
    pub fn take(&self) -> Buffer {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = spare.unwrap_or_else(|| vec![0; self.buffer_len].into_boxed_slice());
        Buffer { bytes, home: self.clone() }
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.max_spare {
            spare.push(bytes);
        }
    }

    #[cfg(test)]
    fn spare(&self) -> usize {
        self.spare.lock().expect("no test panics with it").len()
    }
}

impl Buffer {
    /// The first `len` bytes (or all there are), and the buffer if they do not need it.
    #[must_use]
    pub fn split(self, len: usize) -> (Bytes, Option<Self>) {
        let len = len.min(self.bytes.len());
        if len < self.bytes.len() / KEEP_PART {
            (Bytes::copy_from_slice(&self.bytes[..len]), Some(self))
        } else {
            (Bytes::from_owner(self).slice(..len), None)
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 65_536;
    const MAX_SPARE: usize = 8;

    #[test]
    fn a_large_packet_keeps_its_buffer_until_the_last_slice_is_gone() {
        let pool = Pool::new(LEN, MAX_SPARE);
        let mut buffer = pool.take();
        buffer.as_mut()[..3].copy_from_slice(b"abc");
        let (packet, rest) = buffer.split(LEN / KEEP_PART);
        assert!(rest.is_none());
        let slice = packet.slice(1..3);
        drop(packet);
        assert_eq!(pool.spare(), 0, "the slice still lives");
        assert_eq!(&slice[..], b"bc");
        drop(slice);
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    fn a_small_packet_gives_its_buffer_back_at_once() {
        let pool = Pool::new(LEN, MAX_SPARE);
        let mut buffer = pool.take();
        buffer.as_mut()[..2].copy_from_slice(b"hi");
        let (packet, rest) = buffer.split(2);
        let mut buffer = rest.expect("copied");
        buffer.as_mut()[0] = b'x';
        assert_eq!(&packet[..], b"hi", "and is not changed by the next packet");
        drop(buffer);
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    fn the_pool_does_not_grow_without_bound() {
        let pool = Pool::new(LEN, MAX_SPARE);
        let buffers: Vec<_> = (0..MAX_SPARE + 10).map(|_| pool.take()).collect();
        drop(buffers);
        assert_eq!(pool.spare(), MAX_SPARE);
    }

    #[test]
    fn a_length_beyond_the_buffer_is_cut() {
        let (packet, _) = Pool::new(LEN, MAX_SPARE).take().split(1 << 20);
        assert_eq!(packet.len(), LEN);
    }
}
