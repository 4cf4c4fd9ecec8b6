//! The paths of this host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use plait_base::{NetworkId, PathId};
use std::collections::{BTreeMap, BTreeSet};

/// Trust in a path. It applies to first transmission, retransmission and reinjection alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PathClass {
    /// May carry anything.
    #[default]
    Trusted,
    /// May carry what the protection in use allows.
    Untrusted,
    /// Carries nothing.
    Never,
}

/// One path out of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its id, which never changes.
    pub id: PathId,
    /// The name of its device. Paths with the same name use the same device by different carriers. One subflow over any of them is enough,
    /// and the first of them is preferred.
    pub name: String,
    /// The network that it leaves by, if it shares one with paths of other devices. `None`: its device is a network of its own.
    pub network: Option<NetworkId>,
    /// Trust in it.
    pub class: PathClass,
    /// Used only when no other path works.
    pub backup: bool,
    /// The source address of our segments here, if the path has IPv4.
    pub v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub v6: Option<Ipv6Addr>,
    /// The public address, if a NAT translates our address; for ADD_ADDR.
    pub public_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub public_v6: Option<Ipv6Addr>,
    /// MTU, in bytes, IP header included.
    pub mtu: u16,
    /// Whether it can be used now (carrier, address).
    pub up: bool,
    /// Whether its carrier takes datagrams beside the segments of a subflow, as UDP does.
    pub datagrams: bool,
}

impl Path {
    /// Returns our address on it, of the same family as `remote`.
    pub fn local_for(&self, remote: IpAddr) -> Option<IpAddr> {
        match remote {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// All paths, in order of preference.
#[derive(Clone, Default, Debug)]
pub struct Paths {
    list: Vec<Known>,
    /// Number of renewals so far.
    renewals: u64,
}

/// A path of the list.
#[derive(Clone, Debug)]
struct Known {
    path: Path,
    renewal: Renewal,
}

/// The last event of a path after which its earlier failures no longer count: it is new, has come up, or has other addresses. No two
/// events of one list are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Renewal(u64);

impl Paths {
    /// The paths in order of preference.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter().map(|known| &known.path)
    }

    /// Returns the last renewal of the path with this id.
    pub(crate) fn renewal(&self, id: PathId) -> Option<Renewal> {
        self.list.iter().find(|known| known.path.id == id).map(|known| known.renewal)
    }

    /// The path with this id.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.iter().find(|path| path.id == id)
    }

    /// Returns the path with `address` as our own.
    pub fn with_address(&self, address: IpAddr) -> Option<&Path> {
        self.iter().find(|path| path.local_for(address) == Some(address))
    }

    /// The other paths over the same device as `path`.
    pub(crate) fn twins(&self, path: &Path) -> impl Iterator<Item = &Path> {
        let is_twin = |other: &&Path| !path.name.is_empty() && other.name == path.name && other.id != path.id;
        self.iter().filter(is_twin)
    }

    /// Returns the first of the paths over the same device as this one, if it is known.
    pub(crate) fn device_of(&self, id: PathId) -> PathId {
        let Some(path) = self.get(id) else { return id };
        let first = self.iter().find(|other| !path.name.is_empty() && other.name == path.name);
        first.map_or(id, |first| first.id)
    }

    /// Whether two paths are one, or two over the same device.
    pub(crate) fn is_same_device(&self, one: PathId, other: PathId) -> bool {
        self.device_of(one) == self.device_of(other)
    }

    /// Whether two paths lead over the same device or the same network, so that they count as one.
    pub(crate) fn is_same_network(&self, one: PathId, other: PathId) -> bool {
        let network = |id| self.get(id).and_then(|path| path.network);
        self.is_same_device(one, other) || network(one).is_some_and(|shared| network(other) == Some(shared))
    }

    /// The devices, each once, of paths that share a network with one of another device, with the number of the network.
    pub(crate) fn shared_networks(&self) -> BTreeMap<NetworkId, BTreeSet<&str>> {
        let mut shared: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (network, path) in self.list.iter().filter_map(|path| Some((path.path.network?, path))) {
            shared.entry(network).or_default().insert(path.path.name.as_str());
        }
        shared.retain(|_, devices| devices.len() > 1);
        shared
    }

    /// Whether `one` is preferred to `other`, and both exist.
    pub(crate) fn is_before(&self, one: PathId, other: PathId) -> bool {
        let place = |id| self.iter().position(|path| path.id == id);
        place(one).is_some_and(|before| place(other).is_some_and(|after| before < after))
    }

    /// Adds a path, or replaces the one with its id.
    pub fn insert(&mut self, path: Path) {
        match self.list.iter_mut().find(|old| old.path.id == path.id) {
            Some(old) => {
                let is_renewed = !old.path.up || (old.path.v4, old.path.v6) != (path.v4, path.v6);
                if path.up && is_renewed {
                    self.renewals += 1;
                    old.renewal = Renewal(self.renewals);
                }
                old.path = path;
            }
            None => {
                self.renewals += 1;
                self.list.push(Known { path, renewal: Renewal(self.renewals) });
            }
        }
    }

    /// Removes a path.
    pub fn remove(&mut self, id: PathId) -> Option<Path> {
        let at = self.list.iter().position(|known| known.path.id == id)?;
        Some(self.list.remove(at).path)
    }
}

/// The state of a connection's trusted paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TrustedPaths {
    /// A subflow over one of them works.
    Work,
    /// Subflows exist over them, but none makes progress or is open yet.
    Stalled,
    /// No subflow exists over any of them.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PathId = PathId(3);

    fn path(last: u8, up: bool) -> Path {
        Path {
            id: ID,
            name: "eth0".into(),
            network: None,
            class: PathClass::Trusted,
            backup: false,
            v4: Some(Ipv4Addr::new(192, 0, 2, last)),
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up,
            datagrams: false,
        }
    }

    #[test]
    fn a_path_is_renewed_when_it_comes_up_or_has_another_address_seen_or_not() {
        let mut paths = Paths::default();
        paths.insert(path(1, true));
        let first = paths.renewal(ID);
        paths.insert(Path { mtu: 1400, ..path(1, true) });
        paths.insert(path(1, false));
        assert_eq!(paths.renewal(ID), first, "a path that is down is not better than before");
        paths.insert(path(1, true));
        let second = paths.renewal(ID);
        assert_ne!(second, first, "it was down in between");
        paths.insert(path(2, true));
        let third = paths.renewal(ID);
        assert_ne!(third, second, "it has another address");
        paths.remove(ID);
        paths.insert(path(2, true));
        assert_ne!(paths.renewal(ID), third, "it was gone in between");
    }
}
