//! The contents of a file of volumes.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// The file of volumes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Volumes {
    /// By the devices, as in the paths.
    pub(crate) devices: BTreeMap<String, Volume>,
    /// The counters that these volumes include, of this start of the machine: all plaits of a user see the same traffic, which counts once.
    #[serde(default)]
    pub(crate) counters: Counters,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The first day of the month that is counted.
    pub(crate) since: Date,
    pub(crate) bytes: u64,
}

/// Bytes of each device, both directions together, since the machine, or the network namespace, was started.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// The start of the machine, and the network namespace.
    pub(crate) of: String,
    pub(crate) bytes: BTreeMap<String, u64>,
}

/// Adds to the volumes of the file what was added to ours.
pub(crate) fn merge(
    all: &mut Volumes,
    (volumes, unwritten, counters): (&Volumes, &BTreeMap<String, (String, u64)>, &Counters),
) {
    if all.counters.of != counters.of {
        all.counters = Counters { of: counters.of.clone(), bytes: BTreeMap::new() };
    }
    for (device, (devices, unwritten)) in unwritten {
        let (Some(own), Some(counter)) = (volumes.devices.get(devices), counters.bytes.get(device)) else {
            continue;
        };
        // Another plait may have counted these bytes.
        let bytes = match all.counters.bytes.get(device) {
            Some(written) if written <= counter => counter - written,
            Some(_) | None => *unwritten,
        };
        let volume = all.devices.entry(devices.clone()).or_insert(Volume { since: own.since, bytes: 0 });
        if volume.since < own.since {
            *volume = Volume { since: own.since, bytes: 0 };
        }
        volume.bytes = volume.bytes.saturating_add(bytes);
        all.counters.bytes.insert(device.clone(), *counter);
    }
}
