//! Buffers for bytes that others hold as well and that therefore cannot be changed where they are.
//!
//! Fresh memory costs more than scrambling does: the kernel has to find and clear the pages. So buffers come
//! back when the last of their bytes is done with.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept for the next time, per direction of a connection.
const MAX_SPARE: usize = 32;
/// Pieces that are copied and then worked on: they fit the first-level cache with room.
const HOT: usize = 8 * 1024;
/// A buffer is used again for what fills at least this part of it.
const KEEP_PART: usize = 4;

/// Buffers that come back.
#[derive(Clone, Default)]
pub(crate) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer under way.
struct Lent {
    bytes: Vec<u8>,
    home: Spare,
}

impl Spare {
    /// A copy of `data` after `change`, which sees it piece by piece in order.
    pub(crate) fn changed(&self, data: &[u8], mut change: impl FnMut(&mut [u8])) -> Bytes {
        let mut bytes = self.take(data.len());
        for piece in data.chunks(HOT) {
            let start = bytes.len();
            bytes.extend_from_slice(piece);
            change(&mut bytes[start..]);
        }
        Bytes::from_owner(Lent { bytes, home: self.clone() })
    }

    /// An empty buffer with room for `length` bytes.
    fn take(&self, length: usize) -> Vec<u8> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= length && buffer.capacity() / KEEP_PART <= length;
        let mut buffer = known.filter(fits).unwrap_or_else(|| Vec::with_capacity(length));
        buffer.clear();
        buffer
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(core::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spare: &Spare) -> usize {
        spare.0.lock().expect("no test panics with it").len()
    }

    #[test]
    fn a_buffer_comes_back_with_its_last_byte_and_is_used_again() {
        let spare = Spare::default();
        let data = vec![1; 20_000];
        let changed = spare.changed(&data, |piece| piece.iter_mut().for_each(|byte| *byte += 1));
        assert_eq!(changed, vec![2; 20_000]);
        let (place, last) = (changed.as_ptr(), changed.slice(19_999..));
        drop(changed);
        assert_eq!(kept(&spare), 0, "a byte of it is still in use");
        drop(last);
        assert_eq!(kept(&spare), 1);
        assert_eq!(spare.changed(&data, |_| ()).as_ptr(), place);
    }

    #[test]
    fn little_does_not_hold_much_and_not_everything_is_kept() {
        let spare = Spare::default();
        drop(spare.changed(&[0; 40_000], |_| ()));
        let small = spare.changed(&[0; 10], |_| ());
        drop(small);
        let room =
            |spare: &Spare| spare.0.lock().expect("no test panics with it").iter().map(Vec::capacity).max();
        assert!(room(&spare).is_some_and(|room| room < 40_000));
        drop((0..2 * MAX_SPARE).map(|_| spare.changed(&[0; 100], |_| ())).collect::<Vec<_>>());
        assert_eq!(kept(&spare), MAX_SPARE);
    }
}
