//! The packets that the injector has put on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{AttackName, Direction};

/// Entries kept; beyond them only the counts go on.
const MAX_ENTRIES: usize = 10_000;

/// One packet of the injector: forged, changed, held back, or taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// When it left the path towards its receiver, or was taken away or held back, since the lab came up.
    pub at: Duration,
    /// By which attack.
    pub attack: AttackName,
    /// Its direction.
    pub direction: Direction,
    /// The TCP connection on this path, counted from 1.
    pub flow: u32,
    /// The action, for people: also the comment in the capture.
    pub what: String,
    /// Bytes of the packet on the wire; 0 for what was taken away or held back.
    pub bytes: u32,
}

/// The log of one path's injector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionLog {
    /// In the order in which they left; at most 10,000.
    pub entries: Vec<Injection>,
    /// All of them.
    pub total: u64,
}

impl InjectionLog {
    /// How many packets of an attack reached the wire, among the entries kept.
    pub fn count(&self, attack: AttackName) -> usize {
        self.entries.iter().filter(|entry| entry.attack == attack).count()
    }

    pub(crate) fn record(&mut self, injection: Injection) {
        self.total += 1;
        if self.entries.len() < MAX_ENTRIES {
            self.entries.push(injection);
        }
    }
}
