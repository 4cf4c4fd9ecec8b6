//! The paths of a host, over all of its carriers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use plait_mptcp::Path;
use tracing::info;

use crate::carrier::CarrierPaths;
use crate::carriers::MAX_CARRIERS;
use crate::error::Error;
use crate::path::PathSpec;
use crate::shared_networks::SharedNetworks;
use crate::sys::{Snapshot, Uplinks};

/// The networks around the carriers of a host.
pub(crate) struct Networks {
    /// The paths, each once for all carriers, in order.
    specs: Vec<PathSpec>,
    uplinks: Uplinks,
    shared: SharedNetworks,
    /// Those of the preferred carriers first.
    carriers: ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>,
}

impl Networks {
    /// The paths of these devices.
    pub(crate) fn new(specs: &[PathSpec], carriers: ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>) -> Self {
        let (uplinks, shared) = (Uplinks::default(), SharedNetworks::default());
        Self { specs: specs.to_vec(), uplinks, shared, carriers }
    }

    /// The networks that several devices share, as of the last [`Networks::take`].
    pub(crate) fn shared(&self) -> &SharedNetworks {
        &self.shared
    }

    /// Reads the kernel's state and adds the changed paths to `changed`, whether it fails or not. Waits for the answers of gateways, some
    /// hundred milliseconds at most: a connection that needs several paths may begin right afterwards.
    pub(crate) fn settle(&mut self, changed: &mut Vec<Path>) -> Result<(), Error> {
        let snapshot = self.uplinks.settle(&self.specs)?;
        self.take(snapshot, changed)
    }

    /// Reads the kernel's state without waiting. [`Networks::look_again`] returns the time until the answers of gateways.
    pub(crate) fn read(&mut self) -> Result<Snapshot, Error> {
        self.uplinks.look(&self.specs)
    }

    /// Every carrier takes the state, whatever happens to the others, and adds its changed paths to `changed`. Returns the first error.
    pub(crate) fn take(&mut self, snapshot: Snapshot, changed: &mut Vec<Path>) -> Result<(), Error> {
        let snapshot = Arc::new(snapshot);
        self.shared.clone_from(snapshot.shared_networks());
        let results: Vec<_> =
            self.carriers.iter_mut().map(|paths| paths.refresh(&snapshot, changed)).collect();
        results.into_iter().collect()
    }

    /// The time until the next look at the networks, if one is needed without an announcement.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        self.uplinks.look_again()
    }

    /// Sets the class and use of the paths of a device; returns those that have been looked at, as they are then.
    pub(crate) fn use_path(&mut self, spec: &PathSpec) -> Result<Vec<Path>, Error> {
        let used: Vec<_> = self.carriers.iter_mut().map(|paths| paths.use_path(spec.clone())).collect();
        if used.iter().all(Result::is_err) {
            return used.into_iter().next().map_or(Ok(Vec::new()), |result| result.map(Vec::from_iter));
        }
        self.specs
            .iter_mut()
            .filter(|own| own.device() == spec.device())
            .for_each(|own| own.clone_from(spec));
        Ok(used.into_iter().flatten().flatten().collect())
    }

    /// Redirects connections to `port` of the paths' devices to the stack.
    pub(crate) fn open_port(&mut self, port: u16) -> Result<(), Error> {
        let Some((preferred, others)) = self.carriers.split_first_mut() else { return Ok(()) };
        preferred.open_port(port)?;
        for paths in others {
            // Another program may have the port of UDP, for example one for QUIC beside one for TCP.
            if let Err(error) = paths.open_port(port) {
                info!(%error, port, "a carrier does not listen on this port");
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::IpAddr;

    use plait_base::PathId;
    use plait_mptcp::PathClass;

    /// The paths of a carrier, whose refresh returns a changed path and then may fail.
    struct Changing {
        id: PathId,
        fails: bool,
    }

    impl CarrierPaths for Changing {
        fn refresh(&mut self, _snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
            changed.push(Path {
                id: self.id,
                name: "eth0".to_owned(),
                network: None,
                class: PathClass::Trusted,
                backup: false,
                v4: None,
                v6: None,
                public_v4: None,
                public_v6: None,
                mtu: 1500,
                up: false,
            });
            if self.fails { Err(Error::NoFreeRange) } else { Ok(()) }
        }

        fn use_path(&mut self, _spec: PathSpec) -> Result<Option<Path>, Error> {
            Ok(None)
        }

        fn open_port(&mut self, _port: u16) -> Result<(), Error> {
            Ok(())
        }

        fn close_port(&mut self, _port: u16) {}

        fn stack_addresses(&self) -> Vec<(PathSpec, [IpAddr; 2])> {
            Vec::new()
        }
    }

    #[test]
    fn a_carrier_that_fails_hides_no_lost_path_its_own_or_that_of_another() {
        let carriers = [0, 1, 2].map(|id| {
            let paths: Box<dyn CarrierPaths> = Box::new(Changing { id: PathId(id), fails: id == 1 });
            paths
        });
        let mut networks = Networks::new(&[], carriers.into());
        let mut changed = Vec::new();
        assert!(matches!(networks.take(Snapshot::default(), &mut changed), Err(Error::NoFreeRange)));
        let ids: Vec<_> = changed.iter().map(|path| path.id.0).collect();
        assert_eq!(ids, [0, 1, 2]);
    }
}
