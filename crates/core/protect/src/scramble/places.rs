//! Places of blocks: changed in place, or on the way into another buffer.
//!
//! Bytes that are copied in any case are changed on the way, which saves a second pass over the memory.

use super::engine::Block;

/// One block: read it, then write it.
pub(super) trait Place {
    /// Returns the content before the write.
    fn read(&self) -> &Block;
    /// Returns the place to write to.
    fn write(&mut self) -> &mut Block;
}

/// Consecutive blocks.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only the engines of that processor look at several blocks at once")
)]
pub(super) trait Places: Sized {
    fn count(&self) -> usize;
    /// The block at this index, not written yet.
    fn read(&self, at: usize) -> &Block;
    fn split(self, at: usize) -> (Self, Self);
    fn each(self) -> impl Iterator<Item: Place>;
}

impl Place for &mut Block {
    #[inline(always)]
    fn read(&self) -> &Block {
        self
    }

    #[inline(always)]
    fn write(&mut self) -> &mut Block {
        self
    }
}

impl Place for (&Block, &mut Block) {
    #[inline(always)]
    fn read(&self) -> &Block {
        self.0
    }

    #[inline(always)]
    fn write(&mut self) -> &mut Block {
        self.1
    }
}

impl Places for &mut [Block] {
    fn count(&self) -> usize {
        self.len()
    }

    fn read(&self, at: usize) -> &Block {
        &self[at]
    }

    fn split(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }

    #[inline(always)]
    fn each(self) -> impl Iterator<Item: Place> {
        self.iter_mut()
    }
}

/// From the first into the second, which are of one length.
pub(super) type Across<'a> = (&'a [Block], &'a mut [Block]);

impl Places for Across<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn read(&self, at: usize) -> &Block {
        &self.0[at]
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (from, into) = (self.0.split_at(at), self.1.split_at_mut(at));
        ((from.0, into.0), (from.1, into.1))
    }

    #[inline(always)]
    fn each(self) -> impl Iterator<Item: Place> {
        self.0.iter().zip(self.1)
    }
}
