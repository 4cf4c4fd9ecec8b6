//! Buffers for bytes that have several holders and therefore cannot be changed in place.
//!
//! Fresh memory costs more than scrambling does: the kernel has to find and clear the pages. A buffer is therefore reused after its last
//! byte is released. All buffers have one size, so that each of them fits.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a buffer: the longest packet or record.
const BUFFER: usize = 64 * 1024;
/// Shorter data owns its memory, so that at most three quarters of a buffer are waste.
const SHORT: usize = BUFFER / 4;
/// Free buffers kept beside those in use, per direction of a connection. A Data-ACK frees many buffers at once, and the next window needs
/// them again. An idle connection keeps this many.
const MAX_FREE: usize = 32;

/// A pool of reusable buffers.
#[derive(Clone, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Buffers>>);

#[derive(Default)]
struct Buffers {
    free: Vec<Box<[u8]>>,
    /// Number of buffers in use.
    pooled: usize,
}

/// A buffer in use.
struct PooledBuffer {
    bytes: Box<[u8]>,
    length: usize,
    home: BufferPool,
}

impl BufferPool {
    /// Returns what `change` makes of `data`. `change` gets the bytes and an output slice of the same length.
    pub(crate) fn changed(&self, data: &[u8], change: impl FnOnce(&[u8], &mut [u8])) -> Bytes {
        if !(SHORT..=BUFFER).contains(&data.len()) {
            let mut own = vec![0; data.len()];
            change(data, &mut own);
            return own.into();
        }
        let mut pooled = PooledBuffer { bytes: self.take(), length: data.len(), home: self.clone() };
        change(data, &mut pooled.bytes[..data.len()]);
        Bytes::from_owner(pooled)
    }

    /// Returns a buffer with arbitrary contents. It is the one used last, which is still in the cache.
    fn take(&self) -> Box<[u8]> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.pooled += 1;
        buffers.free.pop().unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut buffers = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.pooled -= 1;
        buffers.free.push(core::mem::take(&mut self.bytes));
        let most = buffers.pooled + MAX_FREE;
        buffers.free.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(free: &BufferPool) -> usize {
        free.0.lock().expect("no test panics with it").free.len()
    }

    fn copied(free: &BufferPool, length: usize) -> Bytes {
        free.changed(&vec![1; length], |old, new| new.copy_from_slice(old))
    }

    #[test]
    fn a_buffer_comes_back_with_its_last_byte_and_is_used_again() {
        let free = BufferPool::default();
        let add_1 =
            |old: &[u8], new: &mut [u8]| new.iter_mut().zip(old).for_each(|(new, old)| *new = old + 1);
        let changed = free.changed(&vec![1; 20_000], add_1);
        assert_eq!(changed, vec![2; 20_000]);
        let (place, last) = (changed.as_ptr(), changed.slice(19_999..));
        drop(changed);
        assert_eq!(kept(&free), 0, "a byte of it is still in use");
        drop(last);
        assert_eq!(kept(&free), 1);
        assert_eq!(copied(&free, BUFFER).as_ptr(), place, "whatever the length");
    }

    #[test]
    fn little_does_not_hold_much() {
        let free = BufferPool::default();
        drop(copied(&free, SHORT - 1));
        assert_eq!(kept(&free), 0, "it owned its memory");
        drop(copied(&free, SHORT));
        assert_eq!(kept(&free), 1);
        assert_eq!(copied(&free, BUFFER + 1), vec![1; BUFFER + 1], "more than any buffer has room for");
    }

    #[test]
    fn half_a_flight_comes_back_and_is_kept_and_a_connection_that_rests_keeps_little() {
        let free = BufferPool::default();
        let mut flight: Vec<_> = (0..6 * MAX_FREE).map(|_| copied(&free, SHORT)).collect();
        flight.truncate(3 * MAX_FREE);
        assert_eq!(kept(&free), 3 * MAX_FREE);
        drop(flight);
        assert_eq!(kept(&free), MAX_FREE);
    }
}
