//! The networks that devices share, and what counts as one path.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ::plait_host::{Path, PathClass, PathObstacle};

use crate::check::WayReport;
use crate::error::Error;

/// Devices that lead into one network, so that their paths count as one: they have the same gateway, or one is a tunnel over another.
///
/// Its text is a line for people, with the devices and the common point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedNetwork(::plait_host::SharedNetwork);

/// Devices whose packets reach a server from the same public address: they leave by the same NAT, and so by one network. Only the server
/// sees that.
///
/// Its text is a line for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedAddress {
    devices: Vec<String>,
    address: IpAddr,
}

/// The devices of the paths of a host, each once, and the networks that they share.
#[derive(Clone, Debug)]
pub(crate) struct Devices {
    names: BTreeSet<String>,
    shared: Vec<SharedNetwork>,
}

/// Returns the networks that these devices share, according to the routes, neighbours and tunnels of this machine now. Takes up to some
/// hundred milliseconds. On systems other than Linux nothing is known.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn shared_networks(devices: &[String]) -> Result<Vec<SharedNetwork>, Error> {
    Ok(::plait_host::shared_networks(devices)?.into_iter().map(SharedNetwork).collect())
}

/// Returns the obstacles on this machine of packets over these devices to `towards`; with `None`, beyond their default routes. Takes some
/// milliseconds. On systems other than Linux nothing is known.
///
/// # Errors
/// The kernel does not answer questions about its devices and routes.
pub fn path_obstacles(devices: &[String], towards: Option<IpAddr>) -> Result<Vec<PathObstacle>, Error> {
    Ok(::plait_host::path_obstacles(devices, towards)?)
}

/// Removes what hosts over TCP that were killed have left in this network namespace: rules, routes, and changed kernel settings. Those of running
/// hosts stay. The next host does the same. Returns what was removed, a few words each.
///
/// # Errors
/// The programs `ip` and `nft` cannot be run, or the kernel does not answer questions about its devices and routes.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub fn remove_leftovers() -> Result<Vec<String>, Error> {
    Ok(::plait_host::remove_leftovers()?)
}

impl SharedNetwork {
    pub(crate) fn of(network: ::plait_host::SharedNetwork) -> Self {
        Self(network)
    }

    /// The devices, at least two.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        &self.0.devices
    }
}

impl fmt::Display for SharedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl SharedAddress {
    /// Returns the public addresses that several devices share, according to the server in these reports. Addresses of IPv6 are the same if
    /// they are of one network of 64 bits.
    #[must_use]
    pub fn among(ways: &[WayReport]) -> Vec<Self> {
        let seen = |way: &WayReport| Some((way.device.clone(), way.measured.as_ref()?.seen_from?.ip()));
        Self::of(ways.iter().filter_map(seen))
    }

    fn of(seen: impl Iterator<Item = (String, IpAddr)>) -> Vec<Self> {
        let mut by_address: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (device, address) in seen {
            let devices = by_address.entry(network_of(address.to_canonical())).or_default();
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let shared = by_address.into_iter().filter(|(_, devices)| devices.len() > 1);
        shared.map(|(address, devices)| Self { devices, address }).collect()
    }

    /// The devices, at least two.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The public address; of IPv6 the first address of the network.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

/// The address, or the first of its network of 64 bits: a host has any number of addresses of IPv6 there.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// `wlan0 and eth0 leave by the same public address 203.0.113.7: count them as one network`.
impl fmt::Display for SharedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.join(" and ");
        match self.address {
            IpAddr::V4(address) => write!(f, "{devices} leave by the same public address {address}")?,
            IpAddr::V6(network) => write!(f, "{devices} leave by the same public network {network}/64")?,
        }
        f.write_str(": count them as one network")
    }
}

impl Devices {
    /// The devices of these paths, without paths that must carry nothing.
    pub(crate) fn in_use(paths: &[Path], shared: Vec<SharedNetwork>) -> Self {
        let used = paths.iter().filter(|path| match path.class {
            PathClass::Trusted | PathClass::Untrusted => true,
            PathClass::Never => false,
        });
        let names: BTreeSet<String> = used.map(|path| path.name.clone()).collect();
        let is_shared = |network: &SharedNetwork| {
            network.devices().iter().filter(|device| names.contains(*device)).count() > 1
        };
        let shared = shared.into_iter().filter(is_shared).collect();
        Self { names, shared }
    }

    /// The devices of the default routes, each a network of its own.
    ///
    /// # Errors
    /// The kernel does not answer questions about its devices and routes.
    pub(crate) fn with_default_routes() -> Result<Self, Error> {
        let names = ::plait_host::default_devices(None)?.into_iter().collect();
        Ok(Self { names, shared: Vec::new() })
    }

    /// The devices, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// The device that stands for the network of `device`.
    pub(crate) fn network_of<'a>(&'a self, device: &'a str) -> &'a str {
        let shared = self.shared.iter().find(|shared| shared.devices().iter().any(|member| member == device));
        shared.and_then(|shared| shared.devices().first()).map_or(device, String::as_str)
    }

    /// The number of disjoint paths.
    pub(crate) fn paths(&self) -> usize {
        self.names.iter().map(|name| self.network_of(name)).collect::<BTreeSet<_>>().len()
    }

    /// The shared networks, a line each with a line break in front.
    pub(crate) fn remarks(&self) -> String {
        self.shared.iter().map(|shared| format!("\n  {shared}")).collect()
    }
}

#[cfg(test)]
impl Devices {
    /// Devices of which the first two have one gateway.
    pub(crate) fn behind_one_gateway(names: &[&str]) -> Self {
        use ::plait_host::{CommonPoint, Junction, NetworkId, SharedNetwork as Shared};
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let at = CommonPoint::Gateway {
            address: IpAddr::from([192, 168, 1, 1]),
            link_address: Some("02:00:00:00:00:01".to_owned()),
        };
        let devices = [names[0].clone(), names[1].clone()];
        let junctions = vec![Junction { devices: devices.clone(), at }];
        let shared = Shared { id: NetworkId(0), devices: devices.to_vec(), junctions };
        Self { names: names.into_iter().collect(), shared: vec![SharedNetwork(shared)] }
    }

    /// Devices of which each is a network of its own.
    pub(crate) fn apart(names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), shared: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_network_are_one_path() {
        let devices = Devices::behind_one_gateway(&["eth0", "wlan0", "wwan0"]);
        assert_eq!((devices.paths(), devices.names().count()), (2, 3));
        assert_eq!(devices.network_of("wlan0"), devices.network_of("eth0"));
        assert!(devices.remarks().contains("eth0 and wlan0 count as one path"), "{}", devices.remarks());
        assert_eq!(Devices::apart(&["eth0", "wlan0"]).paths(), 2);
        assert_eq!(Devices::apart(&[]).paths(), 0);
    }

    #[test]
    fn a_path_that_must_carry_nothing_is_not_asked_and_does_not_count() {
        let path = |id, name: &str, class| Path {
            id: ::plait_host::PathId(id),
            name: name.to_owned(),
            network: None,
            class,
            backup: false,
            v4: None,
            v6: None,
            public_v4: None,
            public_v6: None,
            mtu: 1500,
            up: true,
            datagrams: false,
        };
        let Devices { shared, .. } = Devices::behind_one_gateway(&["eth0", "wlan0"]);
        let in_use = |class| {
            let eth0 = path(0, "eth0", PathClass::Trusted);
            let others = [path(1, "wlan0", class), path(2, "wwan0", PathClass::Untrusted)];
            let devices = Devices::in_use(&[&[eth0], &others[..]].concat(), shared.clone());
            let names: Vec<_> = devices.names().cloned().collect();
            (names.join(" "), devices.paths(), devices.remarks().lines().count())
        };
        assert_eq!(in_use(PathClass::Never), ("eth0 wwan0".to_owned(), 2, 0));
        assert_eq!(in_use(PathClass::Untrusted), ("eth0 wlan0 wwan0".to_owned(), 2, 2));
    }

    #[test]
    fn devices_that_the_server_sees_behind_one_address_are_named_with_it() {
        let seen = |seen: &[(&str, &str)]| {
            let seen =
                seen.iter().map(|(device, ip)| ((*device).to_owned(), ip.parse().expect("an address")));
            let shared = SharedAddress::of(seen.collect::<Vec<_>>().into_iter());
            shared.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let one = "wlan0 and eth0 leave by the same public address 203.0.113.7: count them as one network";
        let both_carriers = [("wlan0", "203.0.113.7"), ("wlan0", "203.0.113.7"), ("eth0", "203.0.113.7")];
        assert_eq!(seen(&both_carriers), [one]);
        assert_eq!(
            seen(&[("wlan0", "203.0.113.7"), ("wlan0", "203.0.113.7"), ("eth0", "203.0.113.8")]),
            [""; 0]
        );
        let v6 = seen(&[("wlan0", "2001:db8:1::a"), ("eth0", "2001:db8:1::b"), ("wwan0", "2001:db8:2::b")]);
        assert_eq!(
            v6,
            ["wlan0 and eth0 leave by the same public network 2001:db8:1::/64: count them as one network"]
        );
    }
}
