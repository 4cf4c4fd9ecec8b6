//! The memory of all connections together: a cap, and what one connection may have of it.
//!
//! Half of the cap is for everybody alike: each connection has [`SMALLEST_SHARE`] of it, whatever the others do. The other half is for
//! those that want more; of what is left of it each may take an eighth, so that the share of all becomes smaller as it fills
//! (dynamic thresholds; Choudhury and Hahne, 1998), and windows with it. Counted is what is kept and what was promised by windows, so that
//! the cap holds though all peers send what they may.

use plait_mptcp::{Memory, SMALLEST_SHARE};

/// Of what is left for those that want more, one connection may take one part in so many.
const PARTS: u64 = 8;

/// All memory of connections, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPool {
    cap: u64,
    /// In use.
    used: u64,
    /// Set aside: what is in use or promised, and for each connection no less than the smallest share.
    set_aside: u64,
    /// Of that, beyond the smallest shares.
    elastic: u64,
}

impl MemoryPool {
    pub(crate) fn new(cap: u64) -> Self {
        Self { cap, used: 0, set_aside: 0, elastic: 0 }
    }

    /// A connection that had `before` has `now`; `None` where there is none.
    pub(crate) fn change(&mut self, before: Option<Memory>, now: Option<Memory>) {
        if let Some(memory) = before {
            self.used -= memory.used;
            self.set_aside -= memory.total().max(SMALLEST_SHARE);
            self.elastic -= memory.total().saturating_sub(SMALLEST_SHARE);
        }
        if let Some(memory) = now {
            self.used += memory.used;
            self.set_aside += memory.total().max(SMALLEST_SHARE);
            self.elastic += memory.total().saturating_sub(SMALLEST_SHARE);
        }
    }

    /// What one connection may have now, in bytes.
    pub(crate) fn share(&self) -> u64 {
        SMALLEST_SHARE + (self.cap / 2).saturating_sub(self.elastic) / PARTS
    }

    /// Whether there is room for so many connections more.
    pub(crate) fn takes_connections(&self, more: usize) -> bool {
        self.set_aside.saturating_add(SMALLEST_SHARE * more as u64) <= self.cap
    }

    /// Whether nothing more can be kept: more than was promised has come, or what it costs is more than its bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.cap
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in use or promised.
    pub(crate) fn set_aside(&self) -> u64 {
        self.set_aside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 1 << 30;

    fn memory(used: u64, promised: u64) -> Option<Memory> {
        Some(Memory { used, promised })
    }

    #[test]
    fn those_who_take_all_they_may_leave_room_for_the_smallest_share_of_many_more() {
        let mut pool = MemoryPool::new(CAP);
        let mut greedy = 0;
        while pool.takes_connections(1) {
            let share = pool.share();
            assert!(share >= SMALLEST_SHARE);
            pool.change(None, memory(share / 2, share - share / 2));
            assert!(pool.set_aside() <= CAP && !pool.is_full());
            greedy += 1;
        }
        assert!(greedy >= CAP / 2 / SMALLEST_SHARE, "{greedy}");
    }

    #[test]
    fn what_is_given_back_is_there_for_others() {
        let mut pool = MemoryPool::new(CAP);
        let whole = pool.share();
        pool.change(None, memory(whole, 0));
        assert!(pool.share() < whole);
        pool.change(memory(whole, 0), memory(10, 0));
        assert_eq!((pool.share(), pool.used(), pool.set_aside()), (whole, 10, SMALLEST_SHARE));
        pool.change(memory(10, 0), None);
        assert_eq!((pool.used(), pool.set_aside(), pool.elastic), (0, 0, 0));
    }
}
