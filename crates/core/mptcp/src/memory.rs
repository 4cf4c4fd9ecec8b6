//! Memory accounting of a connection.
//!
//! The host has a limit for all its connections. [`Host::memory_share`](crate::Host::memory_share) returns the share of one connection. A
//! connection with less than it wants offers smaller windows and takes fewer bytes of its application. Offered windows and accepted bytes
//! are never taken back.

use crate::Connection;

/// Memory of one connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Memory in use: both buffers, bytes that wait out of order on any subflow, and the state of each segment in flight.
    pub used: u64,
    /// Bytes that the peer may still send by the window offered.
    pub promised: u64,
}

impl Memory {
    /// Returns the sum of several.
    pub(crate) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |one, other| Self {
            used: one.used + other.used,
            promised: one.promised + other.promised,
        })
    }

    /// Returns the sum of both.
    pub const fn total(self) -> u64 {
        self.used + self.promised
    }
}

/// Returns the part of a share that one direction may use.
const fn of_one_direction(share: u64) -> u64 {
    share / 2
}

impl Connection {
    /// Returns the memory of the connection.
    pub fn memory(&self) -> Memory {
        let of_subflows =
            self.subflows.iter().map(|subflow| subflow.tcp.memory() + subflow.state.waiting_bytes());
        let datagrams = self.datagrams.as_ref().map_or(0, |datagrams| datagrams.memory());
        let streams = self.outgoing.kept() + self.incoming.memory() + datagrams;
        Memory {
            used: streams as u64 + of_subflows.sum::<u64>(),
            promised: if self.closing.is_over() { 0 } else { self.promised() },
        }
    }

    /// The peer of a sealed connection sends no more than MAX_DATA allows.
    fn promised(&self) -> u64 {
        match self.protection.announced() {
            Some(announced) => announced.saturating_sub(self.incoming.next()),
            None => self.incoming.promised(),
        }
    }

    /// Sets the share of memory that the host grants now.
    pub(crate) fn set_memory_share(&mut self, share: u64) {
        self.send_share = usize::try_from(of_one_direction(share)).unwrap_or(usize::MAX);
        self.incoming.limit(self.send_share);
    }
}
