//! The paths of a host, over all of its carriers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use plait_base::{Instant, PathId};
use plait_mptcp::Path;

use crate::carrier::CarrierPaths;
use crate::carriers::{Carriers, MAX_CARRIERS, PathCarriers, path_id, slot_of};
use crate::error::Error;
use crate::handover::HandedSocket;
use crate::log::info;
use crate::path::{NumberedPath, PathSpec};
use crate::path_rule::PathRule;
use crate::selection::{Change, Selection, SlotState};
use crate::shared_networks::SharedNetworks;
use crate::sys::{Device, OwnDescriptor, Snapshot, Uplinks};

/// The networks around the carriers of a host.
pub(crate) struct Networks {
    selection: Selection,
    /// The slots whose paths the carriers do not have as they are.
    unset: BTreeSet<usize>,
    /// The paths that end with their device, although another one may have their slot now.
    ended: BTreeSet<PathId>,
    /// The device of each slot, as of the last [`Networks::take`].
    devices: BTreeMap<usize, Device>,
    /// The paths that have lost the address that their subflows began with.
    lost: BTreeMap<PathId, LostAddresses>,
    uplinks: Uplinks,
    shared: SharedNetworks,
    allowed: Carriers,
    /// Those of the preferred carriers first.
    carriers: ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>,
    kinds: PathCarriers,
}

/// The families of which a device has lost the address for what begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostAddresses {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl LostAddresses {
    fn between(before: &Device, now: &Device) -> Self {
        let is_lost = |own: IpAddr| before.index != now.index || !now.valid.contains(&own);
        Self {
            v4: before.v4.is_some_and(|own| is_lost(own.into())),
            v6: before.v6.is_some_and(|own| is_lost(own.into())),
        }
    }
}

/// A change of the rules of a host.
#[derive(Debug)]
pub(crate) enum RuleChange {
    Add(PathRule),
    Set(PathRule),
    Remove(PathRule),
}

impl Networks {
    /// The paths of the selected devices, over those of these carriers that are allowed over a device.
    pub(crate) fn new(
        selection: Selection,
        allowed: Carriers,
        (carriers, kinds): (ArrayVec<Box<dyn CarrierPaths>, MAX_CARRIERS>, PathCarriers),
    ) -> Self {
        let (uplinks, shared) = (Uplinks::default(), SharedNetworks::default());
        let (unset, ended) = (BTreeSet::new(), BTreeSet::new());
        let (devices, lost) = (BTreeMap::new(), BTreeMap::new());
        Self { selection, unset, ended, devices, lost, uplinks, shared, allowed, carriers, kinds }
    }

    /// The networks that several devices share, as of the last [`Networks::take`].
    pub(crate) fn shared(&self) -> &SharedNetworks {
        &self.shared
    }

    /// Reads the kernel's state and adds the changed paths to `changed`, whether it fails or not. Waits for the answers of gateways, some
    /// hundred milliseconds at most: a connection that needs several paths may begin right afterwards.
    pub(crate) fn settle(&mut self, now: Instant, changed: &mut Vec<Path>) -> Result<(), Error> {
        let Self { selection, unset, ended, uplinks, .. } = self;
        let rules = selection.rules().to_vec();
        let snapshot =
            uplinks.settle(Some(&rules), |snapshot| select(now, snapshot, selection, (unset, ended)))?;
        self.take(snapshot, changed)
    }

    /// Reads the kernel's state without waiting, and selects the devices. [`Networks::look_again`] returns the time until the answers of
    /// gateways.
    pub(crate) fn read(&mut self, now: Instant) -> Result<Snapshot, Error> {
        let Self { selection, unset, ended, uplinks, .. } = self;
        let rules = selection.rules().to_vec();
        uplinks.look(&rules, |snapshot| select(now, snapshot, selection, (unset, ended)))
    }

    /// Every carrier takes the state, whatever happens to the others, and adds its changed paths to `changed`. Returns the first error.
    pub(crate) fn take(&mut self, snapshot: Snapshot, changed: &mut Vec<Path>) -> Result<(), Error> {
        let snapshot = Arc::new(snapshot);
        self.shared.clone_from(snapshot.shared_networks());
        let mut result = self.set_paths();
        for paths in &mut self.carriers {
            let refreshed = paths.refresh(&snapshot, changed);
            result = result.and(refreshed);
        }
        self.note_lost_addresses(&snapshot);
        let slots = self.selection.slots();
        let is_kept =
            |path: &Path| slots.get(slot_of(path.id)).is_none_or(|slot| slot.state != SlotState::Removed);
        changed.retain(is_kept);
        result
    }

    /// Gives the carriers the paths that have changed. Those that a carrier cannot take are left for the next look.
    fn set_paths(&mut self) -> Result<(), Error> {
        let Self { selection, unset, allowed, carriers, kinds, .. } = self;
        let mut result = Ok(());
        unset.retain(|number| {
            let Some(slot) = selection.slots().get(*number) else { return false };
            let mut is_unset = false;
            for (position, paths) in carriers.iter_mut().enumerate() {
                let id = path_id(position, *number);
                let is_allowed = allowed.allow(kinds.of(id), slot.spec.device());
                let is_selected = is_allowed && slot.state == SlotState::Selected;
                let path = NumberedPath { id, spec: slot.spec.clone(), is_selected };
                if let Err(error) = paths.set_path(path) {
                    is_unset = true;
                    if result.is_ok() {
                        result = Err(error);
                    }
                }
            }
            is_unset
        });
        result
    }

    /// A path over TCP or UDP has the same address of the stack whatever the device has: it stays as it is if one look finds another address.
    fn note_lost_addresses(&mut self, snapshot: &Snapshot) {
        for (number, slot) in self.selection.slots().iter().enumerate() {
            let now = snapshot.device(slot.spec.device());
            let Some(before) = self.devices.insert(number, now.clone()) else { continue };
            let lost = LostAddresses::between(&before, &now);
            if lost.v4 || lost.v6 {
                let ids = (0..self.carriers.len()).map(|position| path_id(position, number));
                self.lost.extend(ids.map(|id| (id, lost)));
            }
        }
    }

    /// Returns the paths that have lost addresses since the last call, before the next states of the same ids count.
    pub(crate) fn take_lost(&mut self) -> BTreeMap<PathId, LostAddresses> {
        std::mem::take(&mut self.lost)
    }

    /// Returns the paths that have ended with their device since the last call, before the next states of the same ids count.
    pub(crate) fn take_ended(&mut self) -> BTreeSet<PathId> {
        std::mem::take(&mut self.ended)
    }

    /// Changes the rules. The next look follows them.
    ///
    /// # Errors
    /// The rules are not as the change assumes.
    pub(crate) fn change_rules(&mut self, change: RuleChange) -> Result<(), Error> {
        match change {
            RuleChange::Add(rule) => self.selection.add(rule),
            RuleChange::Set(rule) => self.selection.change(rule),
            RuleChange::Remove(rule) => self.selection.remove(&rule),
        }
    }

    /// The time until the next look at the networks, if one is needed without an announcement.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        self.uplinks.look_again()
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

    /// Prepares that another process takes over the open ports. After an error nothing has changed.
    pub(crate) fn hand_over(&mut self) -> Result<Vec<HandedSocket>, Error> {
        let mut sockets = Vec::new();
        for paths in &mut self.carriers {
            match paths.hand_over() {
                Ok(handed) => sockets.extend(handed),
                Err(error) => {
                    self.take_back();
                    return Err(error);
                }
            }
        }
        Ok(sockets)
    }

    /// Leaves new connections to the other process.
    pub(crate) fn leave_ports(&mut self) {
        self.carriers.iter_mut().for_each(|paths| paths.leave_ports());
    }

    /// Undoes [`Networks::hand_over`].
    pub(crate) fn take_back(&mut self) {
        self.carriers.iter_mut().for_each(|paths| paths.take_back());
    }

    /// Takes sockets of another process for the ports that are opened next. Returns the devices through which that process may send.
    pub(crate) fn take_over(&mut self, mut sockets: Vec<HandedSocket>) -> Result<Vec<OwnDescriptor>, Error> {
        let taken = self.carriers.iter_mut().map(|paths| paths.take_over(&mut sockets));
        Ok(taken.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
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

/// Applies the rules to the devices, notes what follows, and returns the paths.
fn select(
    now: Instant,
    snapshot: &Snapshot,
    selection: &mut Selection,
    (unset, ended): (&mut BTreeSet<usize>, &mut BTreeSet<PathId>),
) -> Vec<PathSpec> {
    for Change { slot, ends } in selection.follow(now, &snapshot.candidates(), &snapshot.default_devices()) {
        unset.insert(slot);
        if ends {
            ended.extend((0..MAX_CARRIERS).map(|position| path_id(position, slot)));
        }
    }
    selection.specs()
}

#[cfg(test)]
mod tests {
    use super::*;

    use plait_mptcp::PathClass;

    use crate::carriers::CarrierKind;

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
                datagrams: false,
            });
            if self.fails { Err(Error::NoFreeRange) } else { Ok(()) }
        }

        fn set_path(&mut self, _path: NumberedPath) -> Result<(), Error> {
            Ok(())
        }

        fn open_port(&mut self, _port: u16) -> Result<(), Error> {
            Ok(())
        }

        fn close_port(&mut self, _port: u16) {}
    }

    #[test]
    fn an_address_is_lost_if_its_device_has_it_no_more_or_is_another_one() {
        let device = |index, v4: &str, others: &[&str]| {
            let v4: std::net::Ipv4Addr = v4.parse().expect("an address");
            let valid = others.iter().map(|other| other.parse().expect("an address"));
            let valid = valid.chain([v4.into()]).collect();
            Device { index, v4: Some(v4), v6: None, valid, mtu: 1500, is_up: true }
        };
        let before = device(2, "192.0.2.7", &[]);
        for (now, v4) in [
            (device(2, "192.0.2.7", &["192.0.2.8"]), false),
            (device(2, "192.0.2.8", &["192.0.2.7"]), false),
            (device(2, "192.0.2.8", &[]), true),
            (device(3, "192.0.2.7", &[]), true),
        ] {
            assert_eq!(LostAddresses::between(&before, &now), LostAddresses { v4, v6: false }, "{now:?}");
        }
    }

    #[test]
    fn a_carrier_that_fails_hides_no_lost_path_its_own_or_that_of_another() {
        let carriers = [0, 1, 2].map(|id| {
            let paths: Box<dyn CarrierPaths> = Box::new(Changing { id: PathId(id), fails: id == 1 });
            paths
        });
        let selection = Selection::new(Vec::new()).expect("no rules");
        let kinds = PathCarriers::only(CarrierKind::Udp);
        let mut networks = Networks::new(selection, Carriers::Udp, (carriers.into(), kinds));
        let mut changed = Vec::new();
        assert!(matches!(networks.take(Snapshot::default(), &mut changed), Err(Error::NoFreeRange)));
        let ids: Vec<_> = changed.iter().map(|path| path.id.0).collect();
        assert_eq!(ids, [0, 1, 2]);
    }
}
