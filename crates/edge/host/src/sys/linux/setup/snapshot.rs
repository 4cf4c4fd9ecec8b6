//! The state of the kernel: devices, their addresses, the main routing table.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde_json::Value;
use tracing::debug;

use super::addresses::Prefix;
use super::command::ip_json;
use super::tunnels::Tunnels;
use crate::error::Error;
use crate::shared_networks::SharedNetworks;
use crate::sys::Device;

/// One read of the kernel's state; equal snapshots give the same paths.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Snapshot {
    links: Vec<Link>,
    routes_v4: Vec<Route>,
    routes_v6: Vec<Route>,
    tunnels: Tunnels,
    /// The networks that devices of paths share.
    networks: SharedNetworks,
}

/// A device as `ip -json address` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Link {
    #[serde(rename = "ifname", default)]
    pub(super) name: String,
    #[serde(rename = "ifindex", default)]
    pub(super) index: u32,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    pub(super) mtu: u32,
    #[serde(rename = "addr_info", default)]
    addresses: Vec<Address>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct Address {
    #[serde(default)]
    local: Option<IpAddr>,
    /// On point-to-point devices the prefix belongs to the other end.
    #[serde(default)]
    scope: String,
    #[serde(rename = "prefixlen", default)]
    prefix_length: u8,
    #[serde(default)]
    tentative: bool,
    #[serde(rename = "dadfailed", default)]
    dad_failed: bool,
    #[serde(default)]
    deprecated: bool,
    #[serde(default)]
    temporary: bool,
}

/// A route as `ip -json route` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Route {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    dst: String,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    via: Option<Via>,
    #[serde(default)]
    dev: Option<String>,
    #[serde(default)]
    metric: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

/// A gateway of another family than the route's.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct Via {
    family: String,
    host: IpAddr,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
struct NextHop {
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    dev: Option<String>,
}

impl Snapshot {
    /// Reads the kernel's state, by three short programs. Without the networks that devices share, which [`super::Uplinks`] finds.
    pub(crate) fn take() -> Result<Self, Error> {
        const DETAILS: &str = "-details address show";
        // The details of some devices are no JSON in some versions of `ip`. They are needed for tunnels only.
        let links: Vec<Value> = ip_json(DETAILS).or_else(|error| {
            debug!(%error, "tunnels are unknown");
            ip_json("address show")
        })?;
        let tunnels = Tunnels::of(&links);
        let links = links.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
        Ok(Self {
            links: links
                .map_err(|source| Error::Output { command: format!("ip -json {DETAILS}"), source })?,
            routes_v4: ip_json("-4 route show table main")?,
            routes_v6: ip_json("-6 route show table main")?,
            tunnels,
            networks: SharedNetworks::default(),
        })
    }

    /// Whether `other` has the same devices, addresses and routes.
    pub(super) fn has_routes_of(&self, other: &Self) -> bool {
        let Self { links, routes_v4, routes_v6, tunnels: _, networks: _ } = self;
        (links, routes_v4, routes_v6) == (&other.links, &other.routes_v4, &other.routes_v6)
    }

    /// The tunnels, with the other ends that paths over these devices may need.
    pub(super) fn tunnels_of<'a>(&self, devices: impl Iterator<Item = &'a str>) -> Tunnels {
        self.tunnels.for_paths(devices)
    }

    pub(super) fn set_shared_networks(&mut self, networks: SharedNetworks) {
        self.networks = networks;
    }

    /// The networks that devices of paths share.
    pub(crate) fn shared_networks(&self) -> &SharedNetworks {
        &self.networks
    }

    pub(super) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The facts about a device for paths over UDP.
    pub(crate) fn device(&self, name: &str) -> Device {
        self.link(name).map(Link::device).unwrap_or_default()
    }

    /// All devices.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    /// Names of all devices.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// All networks that this host has an address in or a route to.
    pub(super) fn networks(&self) -> Vec<Prefix> {
        let addresses = self.links.iter().flat_map(|link| &link.addresses);
        let addresses = addresses.filter_map(|address| {
            Some(Prefix { address: address.local?, length: address.prefix_length.max(1) })
        });
        let routes = self.routes_v4.iter().chain(&self.routes_v6);
        addresses.chain(routes.filter_map(|route| Prefix::parse(&route.dst))).collect()
    }

    /// The device that has this address.
    pub(super) fn device_with(&self, address: IpAddr) -> Option<&str> {
        let has = |link: &&Link| link.addresses.iter().any(|known| known.local == Some(address));
        self.links.iter().find(has).map(|link| link.name.as_str())
    }

    /// The device of the default route of lowest metric, of each family, each device once.
    pub(super) fn default_devices(&self) -> Vec<String> {
        let mut devices: Vec<String> = Vec::new();
        for routes in [&self.routes_v4, &self.routes_v6] {
            let mut defaults: Vec<&Route> = routes.iter().filter(|route| route.dst == "default").collect();
            defaults.sort_by_key(|route| route.metric.unwrap_or(0));
            let all = defaults.iter().flat_map(|route| {
                route.dev.iter().chain(route.nexthops.iter().filter_map(|hop| hop.dev.as_ref()))
            });
            for device in all {
                if !devices.contains(device) {
                    devices.push(device.clone());
                }
            }
        }
        devices
    }

    /// The gateways of the routes over `device`, each once.
    pub(super) fn gateways_over(&self, device: &str) -> BTreeSet<IpAddr> {
        let routes = self.routes_v4.iter().chain(&self.routes_v6);
        routes.filter_map(|route| route.gateway_over(device)).collect()
    }

    /// The device of the main table's best route to `address`, apart from the routes over `except`.
    pub(super) fn device_to(&self, address: IpAddr, except: &str) -> Option<&str> {
        let routes = if address.is_ipv4() { &self.routes_v4 } else { &self.routes_v6 };
        let leads = |route: &&Route| route.device().is_some_and(|device| device != except);
        let best = routes
            .iter()
            .filter(leads)
            .filter_map(|route| Some((route, route.match_of(address)?)))
            .max_by_key(|(route, length)| (*length, Reverse(route.metric.unwrap_or(0))));
        best.and_then(|(route, _)| route.device())
    }

    /// The devices of the best default routes of both families, apart from the routes over `except`.
    pub(super) fn default_devices_besides(&self, except: &str) -> impl Iterator<Item = &str> {
        let anywhere = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        anywhere.into_iter().filter_map(move |address| self.device_to(address, except))
    }

    /// The routes of the main table over `device`, as `ip route replace` takes them, connected ones first so
    /// that gateways can be reached.
    pub(super) fn routes_over(&self, device: &str, family: Family) -> Vec<String> {
        let routes = match family {
            Family::V4 => &self.routes_v4,
            Family::V6 => &self.routes_v6,
        };
        let mut routes: Vec<_> = routes.iter().filter_map(|route| route.over(device)).collect();
        routes.sort_by_key(|(has_gateway, _)| *has_gateway);
        routes.into_iter().map(|(_, words)| words).collect()
    }
}

/// Address family of a routing table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The option of `ip` that selects it.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }
}

impl Link {
    fn device(&self) -> Device {
        Device { v4: self.v4(), v6: self.v6(), mtu: self.mtu, is_up: self.is_up() }
    }

    /// Whether it is up and has a carrier.
    pub(super) fn is_up(&self) -> bool {
        let has = |flag: &str| self.flags.iter().any(|other| other == flag);
        has("UP") && has("LOWER_UP")
    }

    /// Whether the kernel can ask for link-layer addresses over it now.
    pub(super) fn can_ask(&self) -> bool {
        self.is_up() && !self.is_loopback() && !self.flags.iter().any(|flag| flag == "NOARP")
    }

    /// Whether packets sent over it return to this host.
    pub(super) fn is_loopback(&self) -> bool {
        self.flags.iter().any(|flag| flag == "LOOPBACK")
    }

    /// The address of this device for other hosts.
    pub(super) fn v4(&self) -> Option<Ipv4Addr> {
        self.usable().find_map(|address| match address.local {
            Some(IpAddr::V4(v4)) => Some(v4),
            Some(IpAddr::V6(_)) | None => None,
        })
    }

    /// The IPv6 address for other hosts: one that has passed duplicate detection and is permanent.
    pub(super) fn v6(&self) -> Option<Ipv6Addr> {
        let v6 = |address: &Address| match address.local {
            Some(IpAddr::V6(v6)) => Some(v6),
            Some(IpAddr::V4(_)) | None => None,
        };
        let lasting = self.usable().filter(|address| !address.temporary).find_map(v6);
        lasting.or_else(|| self.usable().find_map(v6))
    }

    /// The subnets of its addresses for other hosts.
    pub(super) fn subnets(&self) -> impl Iterator<Item = Prefix> {
        self.usable().filter_map(|address| {
            Some(Prefix { address: address.local?, length: address.prefix_length.max(1) })
        })
    }

    fn usable(&self) -> impl Iterator<Item = &Address> {
        // The addresses of the loopback device are for this host alone, and so are addresses that use it.
        let scope = if self.is_loopback() { "host" } else { "global" };
        let global = move |address: &&Address| address.scope == scope;
        self.addresses
            .iter()
            .filter(global)
            .filter(|address| !address.tentative && !address.dad_failed && !address.deprecated)
    }
}

impl Route {
    /// Its gateway, if it leads over `device`.
    fn gateway_over(&self, device: &str) -> Option<IpAddr> {
        if self.dev.as_deref() == Some(device) {
            return self.gateway.or(self.via.as_ref().map(|via| via.host));
        }
        self.nexthops.iter().find(|hop| hop.dev.as_deref() == Some(device))?.gateway
    }

    /// The device of its first next hop, if it is a route to other hosts.
    fn device(&self) -> Option<&str> {
        let is_unicast = self.kind.as_deref().is_none_or(|kind| kind == "unicast");
        let first = || self.nexthops.iter().find_map(|hop| hop.dev.as_deref());
        self.dev.as_deref().or_else(first).filter(|_| is_unicast)
    }

    /// The length of its prefix, if that has `address`.
    fn match_of(&self, address: IpAddr) -> Option<u8> {
        if self.dst == "default" {
            return Some(0);
        }
        let prefix = Prefix::parse(&self.dst)?;
        prefix.overlaps(Prefix::host(address)).then_some(prefix.length)
    }

    /// Whether it has a gateway, and the route in words, if it leads over `device`.
    fn over(&self, device: &str) -> Option<(bool, String)> {
        let is_unicast = self.kind.as_deref().is_none_or(|kind| kind == "unicast");
        if !is_unicast || self.flags.iter().any(|flag| flag == "dead") {
            return None;
        }
        let direct = (self.dev.as_deref() == Some(device)).then_some(self.gateway);
        let gateway = direct.or_else(|| {
            let hop = self.nexthops.iter().find(|hop| hop.dev.as_deref() == Some(device));
            hop.map(|hop| hop.gateway)
        })?;
        let mut words = self.dst.clone();
        if let Some(gateway) = gateway {
            words += &format!(" via {gateway}");
        } else if let Some(via) = &self.via {
            words += &format!(" via {} {}", via.family, via.host);
        }
        words += &format!(" dev {device}");
        if self.flags.iter().any(|flag| flag == "onlink") {
            words += " onlink";
        }
        if let Some(metric) = self.metric {
            words += &format!(" metric {metric}");
        }
        Some((gateway.is_some() || self.via.is_some(), words))
    }
}

#[cfg(test)]
impl Snapshot {
    /// The state that `ip -json` shows as these devices and routes of both families.
    pub(super) fn of(links: &str, v4: &str, v6: &str) -> Self {
        let routes = |text: &str| serde_json::from_str(text).expect("as ip prints it");
        Self {
            links: serde_json::from_str(links).expect("links"),
            routes_v4: routes(v4),
            routes_v6: routes(v6),
            tunnels: Tunnels::default(),
            networks: SharedNetworks::default(),
        }
    }

    /// The same with these flags of a device.
    pub(super) fn with_flags(mut self, device: &str, flags: &[&str]) -> Self {
        let of_device = self.links.iter_mut().filter(|link| link.name == device);
        of_device.for_each(|link| link.flags = flags.iter().map(|flag| (*flag).to_owned()).collect());
        self
    }

    /// The same without the routes over a device.
    pub(super) fn without_routes_over(mut self, device: &str) -> Self {
        let is_other = |route: &Route| route.dev.as_deref() != Some(device);
        self.routes_v4.retain(is_other);
        self.routes_v6.retain(is_other);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_networks::CommonPoint;

    fn snapshot() -> Snapshot {
        Snapshot::of(
            r#"[{},{"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1400,
                "addr_info":[{"family":"inet","local":"192.0.2.2","prefixlen":24,"scope":"global"},
                {"family":"inet6","local":"2001:db8::7","prefixlen":64,"scope":"global","temporary":true},
                {"family":"inet6","local":"2001:db8::2","prefixlen":64,"scope":"global"},
                {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]},
                {"ifname":"wlan0","flags":["NO-CARRIER","UP"],"mtu":1500,
                "addr_info":[{"family":"inet6","local":"2001:db8:1::2","prefixlen":64,"scope":"global","tentative":true}]}]"#,
            r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[],"metric":100},
                {"dst":"192.0.2.0/24","dev":"eth0","protocol":"kernel","scope":"link","prefsrc":"192.0.2.2","flags":[]},
                {"type":"blackhole","dst":"10.9.0.0/16","flags":[]},
                {"dst":"198.51.100.0/24","flags":[],"nexthops":[{"gateway":"192.0.2.9","dev":"eth0","weight":1,"flags":[]},
                {"gateway":"10.0.0.1","dev":"wlan0","weight":1,"flags":[]}]}]"#,
            r#"[{"dst":"default","gateway":"fe80::9","dev":"wlan0","protocol":"ra","metric":600,"flags":["linkdown"]}]"#,
        )
    }

    #[test]
    fn a_device_is_up_with_its_lasting_addresses() {
        let snapshot = snapshot();
        let eth0 = snapshot.link("eth0").expect("it exists");
        assert!(eth0.is_up());
        assert_eq!(eth0.v4(), Some(Ipv4Addr::new(192, 0, 2, 2)));
        assert_eq!(eth0.v6(), Some("2001:db8::2".parse().expect("an address")), "not the temporary one");
    }

    #[test]
    fn without_carrier_or_with_only_tentative_addresses_it_is_not() {
        let snapshot = snapshot();
        let wlan0 = snapshot.link("wlan0").expect("it exists");
        assert!(!wlan0.is_up());
        assert_eq!(wlan0.v6(), None);
    }

    #[test]
    fn routes_are_copied_for_their_device_only_connected_ones_first() {
        let routes = snapshot().routes_over("eth0", Family::V4);
        assert_eq!(
            routes,
            [
                "192.0.2.0/24 dev eth0",
                "default via 192.0.2.1 dev eth0 metric 100",
                "198.51.100.0/24 via 192.0.2.9 dev eth0"
            ]
        );
        assert_eq!(
            snapshot().routes_over("wlan0", Family::V6),
            ["default via fe80::9 dev wlan0 metric 600"],
            "linkdown is a passing state"
        );
    }

    #[test]
    fn the_default_devices_are_those_of_the_default_routes() {
        assert_eq!(snapshot().default_devices(), ["eth0", "wlan0"]);
    }

    #[test]
    fn a_change_of_shared_networks_alone_is_no_change_of_routes() {
        let (one, mut other) = (snapshot(), snapshot());
        let devices = ["eth0", "wlan0"].map(str::to_owned);
        let at = |_: &str, _: &str| Some(CommonPoint::Carrier("eth0".to_owned()));
        other.set_shared_networks(SharedNetworks::group(&devices, at));
        assert!(one != other && one.has_routes_of(&other));
        assert!(!one.has_routes_of(&snapshot().without_routes_over("eth0")));
        assert!(!one.has_routes_of(&snapshot().with_flags("eth0", &[])), "the kernel has removed its routes");
    }

    #[test]
    fn networks_come_from_addresses_and_routes() {
        let networks: Vec<_> = snapshot().networks().iter().map(ToString::to_string).collect();
        assert!(networks.contains(&"10.9.0.0/16".to_owned()), "{networks:?}");
        assert!(networks.contains(&"2001:db8::2/64".to_owned()), "{networks:?}");
    }
}
