//! The way of a device into its network, and the point that two ways cross.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::addresses::Prefix;
use super::super::links::Link;
use super::super::neighbours::Neighbours;
use super::super::snapshot::Snapshot;
use super::super::tunnels::Tunnels;
use crate::shared_networks::CommonPoint;

/// Largest number of tunnels inside each other.
const MAX_NESTED: usize = 4;

/// The way of a path's device into its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Uplink {
    pub(super) device: String,
    /// The devices that its packets leave by: itself, or for a tunnel those that carry it.
    carriers: BTreeSet<String>,
    pub(super) gateways: Vec<Gateway>,
}

/// A next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Gateway {
    pub(super) address: IpAddr,
    pub(super) carrier: String,
    pub(super) link_address: Option<String>,
    /// Whether it was asked for its link-layer address a moment ago, and the answer may still come.
    pub(super) is_asked: bool,
    /// The subnets of the carrier.
    subnets: Vec<Prefix>,
}

impl Uplink {
    /// Returns the way of `device` that the tables of the kernel show.
    pub(super) fn of(device: &str, snapshot: &Snapshot, tunnels: &Tunnels, neighbours: &Neighbours) -> Self {
        let carriers = carriers(snapshot, tunnels, device, MAX_NESTED);
        let gateways = carriers.iter().flat_map(|carrier| {
            let subnets: Vec<_> = snapshot.link(carrier).into_iter().flat_map(Link::subnets).collect();
            snapshot.gateways_over(carrier).into_iter().map(move |address| Gateway {
                address,
                carrier: carrier.clone(),
                link_address: neighbours.link_address(carrier, address).map(str::to_owned),
                is_asked: false,
                subnets: subnets.clone(),
            })
        });
        Self { device: device.to_owned(), gateways: gateways.collect(), carriers: carriers.clone() }
    }

    /// Whether it leads to another device or to a gateway.
    pub(super) fn is_known(&self) -> bool {
        !self.gateways.is_empty() || self.carriers.iter().any(|carrier| *carrier != self.device)
    }

    /// Whether the answer of a gateway that is being asked decides if both ways meet. A way that is asked itself is decided with all.
    pub(super) fn is_decided_with(&self, other: &Self) -> bool {
        self.gateways.iter().any(|ours| {
            ours.is_asked || other.gateways.iter().any(|theirs| theirs.is_asked && ours.may_be(theirs))
        })
    }

    /// The same way, from the time when no gateway was being asked.
    pub(super) fn as_settled(&self) -> Self {
        let mut settled = self.clone();
        settled.gateways.iter_mut().for_each(|gateway| gateway.is_asked = false);
        settled
    }

    /// The point that both ways cross.
    pub(super) fn meets(&self, other: &Self) -> Option<CommonPoint> {
        if let Some(carrier) = self.carriers.intersection(&other.carriers).next() {
            return Some(CommonPoint::Carrier(carrier.clone()));
        }
        let mut pairs =
            self.gateways.iter().flat_map(|ours| other.gateways.iter().map(move |theirs| (ours, theirs)));
        let (ours, theirs) = pairs.find(|(ours, theirs)| ours.is_same(theirs))?;
        let link_address = ours.link_address.clone().filter(|_| theirs.link_address.is_some());
        Some(CommonPoint::Gateway { address: ours.address, link_address })
    }
}

/// The devices that packets to `device` leave by.
fn carriers(snapshot: &Snapshot, tunnels: &Tunnels, device: &str, nested: usize) -> BTreeSet<String> {
    let outer: BTreeSet<&str> = match tunnels.of_device(device) {
        Some(tunnel) if nested > 0 => match &tunnel.bound_to {
            Some(bound_to) => [bound_to.as_str()].into(),
            None if tunnel.remotes.is_empty() => snapshot.default_devices_besides(device).collect(),
            None => tunnel.remotes.iter().filter_map(|remote| snapshot.device_to(*remote, device)).collect(),
        },
        Some(_) | None => BTreeSet::new(),
    };
    if outer.is_empty() {
        return [device.to_owned()].into();
    }
    outer.into_iter().flat_map(|outer| carriers(snapshot, tunnels, outer, nested - 1)).collect()
}

impl Gateway {
    /// The device and the address, which name it.
    pub(super) fn key(&self) -> (String, IpAddr) {
        (self.carrier.clone(), self.address)
    }

    /// Whether both are one gateway, as far as the link-layer addresses tell. Both count as one while an answer is awaited, and if none
    /// comes, as long as the devices are in one subnet.
    fn is_same(&self, other: &Self) -> bool {
        self.may_be(other)
            && match (&self.link_address, &other.link_address) {
                (Some(ours), Some(theirs)) => ours == theirs,
                (Some(_) | None, None) | (None, Some(_)) => {
                    self.is_asked || other.is_asked || self.shares_subnet(other)
                }
            }
    }

    /// Whether the link-layer addresses decide if both are one gateway.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        self.address == other.address && self.carrier != other.carrier && !self.has_an_address_of(other)
    }

    /// Whether both carriers have an address in common, which no network gives twice.
    fn has_an_address_of(&self, other: &Self) -> bool {
        self.subnets.iter().any(|ours| other.subnets.iter().any(|theirs| ours.address == theirs.address))
    }

    fn shares_subnet(&self, other: &Self) -> bool {
        self.subnets.iter().any(|ours| {
            let is_of_family = ours.address.is_ipv4() == self.address.is_ipv4();
            is_of_family && other.subnets.iter().any(|theirs| ours.overlaps(*theirs))
        })
    }
}
