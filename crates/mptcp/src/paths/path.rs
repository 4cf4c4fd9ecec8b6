//! The paths of this host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use plait_base::PathId;

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
pub struct Paths(Vec<Path>);

impl Paths {
    /// The paths in order of preference.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter()
    }

    /// The path with this id.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.0.iter().find(|path| path.id == id)
    }

    /// Returns the path with `address` as our own.
    pub fn with_address(&self, address: IpAddr) -> Option<&Path> {
        self.0.iter().find(|path| path.local_for(address) == Some(address))
    }

    /// The other paths over the same device as `path`.
    pub(crate) fn twins(&self, path: &Path) -> impl Iterator<Item = &Path> {
        let is_twin = |other: &&Path| !path.name.is_empty() && other.name == path.name && other.id != path.id;
        self.0.iter().filter(is_twin)
    }

    /// Returns the first of the paths over the same device as this one, if it is known.
    pub(crate) fn device_of(&self, id: PathId) -> PathId {
        let Some(path) = self.get(id) else { return id };
        let first = self.0.iter().find(|other| !path.name.is_empty() && other.name == path.name);
        first.map_or(id, |first| first.id)
    }

    /// Whether two paths are one, or two over the same device.
    pub(crate) fn is_same_device(&self, one: PathId, other: PathId) -> bool {
        self.device_of(one) == self.device_of(other)
    }

    /// Whether `one` is preferred to `other`, and both exist.
    pub(crate) fn is_before(&self, one: PathId, other: PathId) -> bool {
        let place = |id| self.0.iter().position(|path| path.id == id);
        place(one).is_some_and(|before| place(other).is_some_and(|after| before < after))
    }

    /// Adds a path, or replaces the one with its id.
    pub fn insert(&mut self, path: Path) {
        match self.0.iter_mut().find(|old| old.id == path.id) {
            Some(old) => *old = path,
            None => self.0.push(path),
        }
    }

    /// Removes a path.
    pub fn remove(&mut self, id: PathId) -> Option<Path> {
        let at = self.0.iter().position(|path| path.id == id)?;
        Some(self.0.remove(at))
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
