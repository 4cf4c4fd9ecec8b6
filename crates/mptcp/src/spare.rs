//! Buffers for bytes that others hold as well and that therefore cannot be changed where they are.
//!
//! Fresh memory costs more than scrambling does: the kernel has to find and clear the pages. So buffers come
//! back when the last of their bytes is done with. All have one size, so that any of them fits.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Room of a buffer: what a packet or a record holds at most.
const BUFFER: usize = 64 * 1024;
/// Less than this owns its memory: so at most three quarters of a buffer are ever waste.
const SHORT: usize = BUFFER / 4;
/// Buffers kept for the next time beside as many as are under way, per direction of a connection. A Data-ACK
/// sets many free at once, and the next window needs them again; a connection that rests keeps this many.
const MAX_SPARE: usize = 32;

/// Buffers that come back.
#[derive(Clone, Default)]
pub(crate) struct Spare(Arc<Mutex<Buffers>>);

#[derive(Default)]
struct Buffers {
    spare: Vec<Box<[u8]>>,
    /// How many are under way.
    lent: usize,
}

/// A buffer under way.
struct Lent {
    bytes: Box<[u8]>,
    length: usize,
    home: Spare,
}

impl Spare {
    /// What `change` makes of `data`: it is given the bytes and where to write as many.
    pub(crate) fn changed(&self, data: &[u8], change: impl FnOnce(&[u8], &mut [u8])) -> Bytes {
        if !(SHORT..=BUFFER).contains(&data.len()) {
            let mut own = vec![0; data.len()];
            change(data, &mut own);
            return own.into();
        }
        let mut lent = Lent { bytes: self.take(), length: data.len(), home: self.clone() };
        change(data, &mut lent.bytes[..data.len()]);
        Bytes::from_owner(lent)
    }

    /// A buffer with anything in it: the one used last, which is still in the cache.
    fn take(&self) -> Box<[u8]> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.lent += 1;
        buffers.spare.pop().unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffers = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.lent -= 1;
        buffers.spare.push(core::mem::take(&mut self.bytes));
        let most = buffers.lent + MAX_SPARE;
        buffers.spare.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spare: &Spare) -> usize {
        spare.0.lock().expect("no test panics with it").spare.len()
    }

    fn copied(spare: &Spare, length: usize) -> Bytes {
        spare.changed(&vec![1; length], |old, new| new.copy_from_slice(old))
    }

    #[test]
    fn a_buffer_comes_back_with_its_last_byte_and_is_used_again() {
        let spare = Spare::default();
        let add_1 =
            |old: &[u8], new: &mut [u8]| new.iter_mut().zip(old).for_each(|(new, old)| *new = old + 1);
        let changed = spare.changed(&vec![1; 20_000], add_1);
        assert_eq!(changed, vec![2; 20_000]);
        let (place, last) = (changed.as_ptr(), changed.slice(19_999..));
        drop(changed);
        assert_eq!(kept(&spare), 0, "a byte of it is still in use");
        drop(last);
        assert_eq!(kept(&spare), 1);
        assert_eq!(copied(&spare, BUFFER).as_ptr(), place, "whatever the length");
    }

    #[test]
    fn little_does_not_hold_much() {
        let spare = Spare::default();
        drop(copied(&spare, SHORT - 1));
        assert_eq!(kept(&spare), 0, "it owned its memory");
        drop(copied(&spare, SHORT));
        assert_eq!(kept(&spare), 1);
        assert_eq!(copied(&spare, BUFFER + 1), vec![1; BUFFER + 1], "more than any buffer has room for");
    }

    #[test]
    fn half_a_flight_comes_back_and_is_kept_and_a_connection_that_rests_keeps_little() {
        let spare = Spare::default();
        let mut flight: Vec<_> = (0..6 * MAX_SPARE).map(|_| copied(&spare, SHORT)).collect();
        flight.truncate(3 * MAX_SPARE);
        assert_eq!(kept(&spare), 3 * MAX_SPARE);
        drop(flight);
        assert_eq!(kept(&spare), MAX_SPARE);
    }
}
