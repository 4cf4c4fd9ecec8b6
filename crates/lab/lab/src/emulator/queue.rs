//! Packets on their way, in the order of their arrival.

use std::collections::BTreeMap;

use plait_base::Instant;

use crate::injector::Outgoing;

/// Bytes on their way in one direction at most: 10 Gbit/s for 400 ms.
const MAX_BYTES: usize = 512 << 20;

/// One direction's packets.
#[derive(Default)]
pub(super) struct Queue {
    packets: BTreeMap<(Instant, u64), Outgoing>,
    bytes: usize,
    serial: u64,
}

impl Queue {
    /// Takes a packet that arrives at `at`; gives it back if there is no room.
    pub(super) fn push(&mut self, at: Instant, packet: Outgoing) -> Result<(), Outgoing> {
        let length = packet.frame.bytes().len();
        if self.bytes + length > MAX_BYTES {
            return Err(packet);
        }
        self.bytes += length;
        self.serial += 1;
        self.packets.insert((at, self.serial), packet);
        Ok(())
    }

    /// The next packet that has arrived by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Outgoing> {
        let entry = self.packets.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let packet = entry.remove();
        self.bytes -= packet.frame.bytes().len();
        Some(packet)
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.packets.keys().next().map(|(at, _)| *at)
    }

    /// Loses everything, and says how many.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.packets.len() as u64;
        self.packets.clear();
        self.bytes = 0;
        count
    }
}
