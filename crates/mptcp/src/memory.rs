//! What a connection keeps in memory, and how much of it the host has.
//!
//! The host has so much for all its connections ([`Host::memory_share`](crate::Host::memory_share) is what one of them may have of it). A
//! connection that has less than it would like offers smaller windows and takes less of its application. Nothing that was promised or
//! taken is given up for it.

use crate::Connection;

/// Memory of one connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// In use: both buffers, bytes that wait out of order on any subflow, and what is known of each segment under way.
    pub used: u64,
    /// What the peer may still send, by the window that was offered.
    pub promised: u64,
}

impl Memory {
    /// The memory of several, together.
    pub(crate) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |one, other| Self {
            used: one.used + other.used,
            promised: one.promised + other.promised,
        })
    }

    /// Both.
    pub const fn total(self) -> u64 {
        self.used + self.promised
    }
}

/// The part of a share that one direction may have.
const fn of_one_direction(share: u64) -> u64 {
    share / 2
}

impl Connection {
    /// What it has in memory.
    pub fn memory(&self) -> Memory {
        let of_subflows =
            self.subflows.iter().map(|subflow| subflow.tcp.memory() + subflow.state.waiting_bytes());
        let streams = self.outgoing.kept() + self.incoming.memory();
        Memory {
            used: streams as u64 + of_subflows.sum::<u64>(),
            promised: if self.closing.is_over() { 0 } else { self.promised() },
        }
    }

    /// Of a sealed connection the peer sends no more than MAX_DATA allows.
    fn promised(&self) -> u64 {
        match self.protection.announced() {
            Some(announced) => announced.saturating_sub(self.incoming.next()),
            None => self.incoming.promised(),
        }
    }

    /// The host has so much for it now.
    pub(crate) fn set_memory_share(&mut self, share: u64) {
        self.send_share = usize::try_from(of_one_direction(share)).unwrap_or(usize::MAX);
        self.incoming.limit(self.send_share);
    }
}
