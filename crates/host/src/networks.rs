//! The paths of a host, over all of its carriers.

use std::collections::BTreeSet;

use plait_mptcp::Path;
use tracing::info;

use crate::carrier::CarrierPaths;
use crate::carriers::MAX_CARRIERS;
use crate::error::Error;
use crate::path::PathSpec;
use crate::shared_networks::SharedNetworks;
use crate::sys::Snapshot;
use arrayvec::ArrayVec;

/// The networks around the carriers of a host.
pub(crate) struct Networks {
    /// The devices of the paths, in order.
    devices: Vec<String>,
    shared: SharedNetworks,
    /// Those of the preferred carriers first.
    carriers: ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>,
}

impl Networks {
    /// The paths of these devices.
    pub(crate) fn new(specs: &[PathSpec], carriers: ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>) -> Self {
        let devices = specs.iter().map(|spec| spec.device().to_owned()).collect();
        Self { devices, shared: SharedNetworks::default(), carriers }
    }

    /// The networks that several devices share, as of the last [`Networks::refresh`].
    pub(crate) fn shared(&self) -> &SharedNetworks {
        &self.shared
    }

    /// Reads the kernel's state again and returns the changed paths.
    pub(crate) fn refresh(&mut self) -> Result<Vec<Path>, Error> {
        let snapshot = Snapshot::take_around(&self.devices)?;
        self.shared.clone_from(snapshot.shared_networks());
        let mut changed = Vec::new();
        for paths in &mut self.carriers {
            changed.extend(paths.refresh(&snapshot)?);
        }
        Ok(changed)
    }

    /// Sets the class and use of the paths of a device; returns those that have been looked at, as they are then.
    pub(crate) fn use_path(&mut self, spec: &PathSpec) -> Result<Vec<Path>, Error> {
        let used: Vec<_> = self.carriers.iter_mut().map(|paths| paths.use_path(spec.clone())).collect();
        if used.iter().all(Result::is_err) {
            return used.into_iter().next().map_or(Ok(Vec::new()), |result| result.map(Vec::from_iter));
        }
        Ok(used.into_iter().flatten().flatten().collect())
    }

    /// Redirects connections to `port` of the paths' devices to the stack.
    pub(crate) fn open_port(&mut self, port: u16) -> Result<(), Error> {
        let Some((preferred, others)) = self.carriers.split_first_mut() else { return Ok(()) };
        preferred.open_port(port)?;
        for paths in others {
            // Another program may have the port of UDP, for example one for QUIC beside one for TCP.
            if let Err(error) = paths.open_port(port) {
                info!(%error, port, "not listened on over every carrier");
            }
        }
        Ok(())
    }

    /// Undoes [`Networks::open_port`].
    pub(crate) fn close_port(&mut self, port: u16) {
        self.carriers.iter_mut().for_each(|paths| paths.close_port(port));
    }

    /// Whether a carrier has rules in the system's packet filter.
    pub(crate) fn has_rules(&self) -> bool {
        self.carriers.iter().any(|paths| paths.has_rules())
    }

    /// Restores our rules if another program has removed or changed them; returns whether that was so. `opened` returns
    /// the ports that connections of the stack were opened from.
    pub(crate) fn mend_rules(&mut self, mut opened: impl FnMut() -> BTreeSet<u16>) -> Result<bool, Error> {
        let mut is_mended = false;
        for paths in &mut self.carriers {
            is_mended |= paths.mend_rules(&mut opened)?;
        }
        Ok(is_mended)
    }
}
