//! Receive buffers that come back.
//!
//! A packet is read into a buffer with room for the largest super-segment. A large packet keeps the buffer
//! until its last byte is read by the application; a small one is copied out, because a hundred bytes that
//! wait for a reader must not hold 64 KiB.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Room for any packet: an IP packet is at most 65,535 bytes, or 40 more for IPv6.
pub(crate) const BUFFER_LEN: usize = 65_536 + 64;

/// From this length on a packet keeps its buffer: at most three quarters of it are then waste. What is
/// shorter is copied in a microsecond or less.
const KEEP_FROM: usize = 16 * 1024;

/// Spare buffers that are kept, 4 MiB in all: enough for what arrives between two looks of the driver.
const MAX_SPARE: usize = 64;

/// The spare buffers; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Box<[u8]>>>>);

/// One buffer, lent by a pool; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    home: Pool,
}

impl Pool {
    /// A buffer of [`BUFFER_LEN`] bytes with anything in it: the one used last, which is still in the cache.
    pub(crate) fn take(&self) -> Buffer {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = spare.unwrap_or_else(|| vec![0; BUFFER_LEN].into_boxed_slice());
        Buffer { bytes, home: self.clone() }
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE && bytes.len() == BUFFER_LEN {
            spare.push(bytes);
        }
    }

    #[cfg(test)]
    fn spare(&self) -> usize {
        self.0.lock().expect("no test panics with it").len()
    }
}

impl Buffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The first `len` bytes as a packet, and the buffer if the packet does not need it.
    pub(crate) fn into_packet(self, len: usize) -> (Bytes, Option<Self>) {
        let len = len.min(self.bytes.len());
        if len < KEEP_FROM {
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

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_packet_keeps_its_buffer_until_the_last_slice_is_gone() {
        let pool = Pool::default();
        let mut buffer = pool.take();
        buffer.as_mut()[..3].copy_from_slice(b"abc");
        let (packet, rest) = buffer.into_packet(KEEP_FROM);
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
        let pool = Pool::default();
        let mut buffer = pool.take();
        buffer.as_mut()[..2].copy_from_slice(b"hi");
        let (packet, rest) = buffer.into_packet(2);
        let mut buffer = rest.expect("copied");
        buffer.as_mut()[0] = b'x';
        assert_eq!(&packet[..], b"hi", "and is not changed by the next packet");
        drop(buffer);
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    fn the_pool_does_not_grow_without_bound() {
        let pool = Pool::default();
        let buffers: Vec<_> = (0..MAX_SPARE + 10).map(|_| pool.take()).collect();
        drop(buffers);
        assert_eq!(pool.spare(), MAX_SPARE);
    }

    #[test]
    fn a_length_beyond_the_buffer_is_cut() {
        let (packet, _) = Pool::default().take().into_packet(1 << 20);
        assert_eq!(packet.len(), BUFFER_LEN);
    }
}
