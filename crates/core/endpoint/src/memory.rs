//! Memory of all connections together: a limit, and the share of one connection.
//!
//! Half of the limit is divided equally: each connection has [`SMALLEST_SHARE`] of it, whatever the others do. The other half is for
//! connections that want more. Each may take an eighth of what is left of it, so that all shares, and windows, shrink as it fills (dynamic
//! thresholds; Choudhury and Hahne, 1998). Stored bytes and offered windows both count, so that the limit holds even if all peers send all
//! that they may.

use plait_mptcp::{Memory, SMALLEST_SHARE};

/// One connection may have one part in this many of what is left of the second half.
const PARTS: u64 = 8;

/// The memory of all connections, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPool {
    cap: u64,
    /// Memory in use.
    used: u64,
    /// Memory in use or offered, and at least the smallest share for each connection.
    set_aside: u64,
    /// The part of that beyond the smallest shares.
    elastic: u64,
}

impl MemoryPool {
    pub(crate) fn new(cap: u64) -> Self {
        Self { cap, used: 0, set_aside: 0, elastic: 0 }
    }

    /// Replaces the memory of a connection, `before` by `now`; `None` if there is none.
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

    /// Returns the present share of one connection, in bytes.
    pub(crate) fn share(&self) -> u64 {
        SMALLEST_SHARE + (self.cap / 2).saturating_sub(self.elastic) / PARTS
    }

    /// Whether there is room for this many more connections.
    pub(crate) fn takes_connections(&self, more: usize) -> bool {
        self.set_aside.saturating_add(SMALLEST_SHARE * more as u64) <= self.cap
    }

    /// Whether nothing more can be stored: more than the offered bytes has arrived, or the overhead exceeds the bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.cap
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the bytes in use or offered.
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
    fn connections_with_all_they_may_have_leave_room_for_the_smallest_share_of_many_more() {
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
