//! The state of the kernel: devices, their addresses, their routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::addresses::Prefix;
use super::domains::Domains;
use super::links::{self, Link};
use super::netlink::Netlink;
use super::routing_tables::{Names, Route, RoutingTables};
use super::tunnels::Tunnels;
use crate::error::Error;
use crate::path_rule::PathRule;
use crate::shared_networks::SharedNetworks;
use crate::sys::linux::NAME_PREFIX;
use crate::sys::{Candidate, Device};

/// Largest number of devices whose routes are listed one device after the other. For each list, the kernel walks through all routes, which
/// takes an eighth of the time in which it lists them.
const MAX_LISTS: usize = 4;

/// One read of the kernel's state; equal snapshots give the same paths.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Snapshot {
    links: Vec<Link>,
    /// By family.
    tables: [RoutingTables; 2],
    tunnels: Tunnels,
    domains: Domains,
    /// The networks that devices of paths share.
    networks: SharedNetworks,
    /// The devices that have come up, and whose networks are not known yet.
    coming: BTreeSet<String>,
}

impl Snapshot {
    /// Reads the kernel's state. Without the networks that devices share, which [`super::Uplinks`] finds.
    pub(crate) fn take() -> Result<Self, Error> {
        Self::read(|_, _| None)
    }

    /// The same for paths by these rules. The routes over other devices, which may be a million, are left out where no path needs them.
    pub(crate) fn take_for(rules: &[PathRule]) -> Result<Self, Error> {
        Self::read(|links, tunnels| {
            let ours = |link: &&Link| !link.name.starts_with(NAME_PREFIX);
            let is_wanted = |link: &&Link| rules.iter().any(|rule| rule.may_select(&link.candidate()));
            let wanted: Vec<&Link> =
                links.iter().filter(ours).filter(is_wanted).take(MAX_LISTS + 1).collect();
            // A tunnel leaves by the devices of the routes to its other ends.
            let has_tunnel = wanted.iter().any(|link| tunnels.of_device(&link.name).is_some());
            let needs_all = has_tunnel || wanted.len() > MAX_LISTS;
            (!needs_all).then(|| wanted.into_iter().map(|link| link.index).collect())
        })
    }

    /// Reads the state with the routes over the devices with the numbers that `choose` returns, or over all.
    fn read(choose: impl FnOnce(&[Link], &Tunnels) -> Option<Vec<u32>>) -> Result<Self, Error> {
        Self::read_from(&mut Netlink::open()?, choose)
    }

    /// The same over this socket.
    pub(super) fn read_from(
        netlink: &mut Netlink,
        choose: impl FnOnce(&[Link], &Tunnels) -> Option<Vec<u32>>,
    ) -> Result<Self, Error> {
        let (links, tunnels, domains) = links::read(netlink)?;
        let names: Names = links.iter().map(|link| (link.index, link.name.as_str().into())).collect();
        let over = choose(&links, &tunnels);
        let read = |family| RoutingTables::read(netlink, family, over.as_deref(), &names);
        let [v4, v6] = Family::BOTH.map(read);
        Ok(Self { domains, ..Self::with(links, [v4?, v6?], tunnels) })
    }

    /// The state with these devices, routes and tunnels.
    pub(super) fn with(links: Vec<Link>, tables: [RoutingTables; 2], tunnels: Tunnels) -> Self {
        Self { links, tables, tunnels, ..Self::default() }
    }

    /// Whether `other` has the same devices, addresses and routes.
    pub(super) fn has_routes_of(&self, other: &Self) -> bool {
        let Self { links, tables, domains, tunnels: _, networks: _, coming: _ } = self;
        (links, tables, domains) == (&other.links, &other.tables, &other.domains)
    }

    /// The tunnels, with the other ends that paths over these devices may need.
    pub(super) fn tunnels_of<'a>(&self, devices: impl Iterator<Item = &'a str>) -> Tunnels {
        self.tunnels.for_paths(devices)
    }

    pub(super) fn set_shared_networks(&mut self, networks: SharedNetworks) {
        self.networks = networks;
    }

    pub(super) fn set_coming(&mut self, coming: BTreeSet<String>) {
        self.coming = coming;
    }

    /// Whether the path over a device that is up must be reported as down: its network is not known yet.
    pub(super) fn is_coming(&self, name: &str) -> bool {
        self.coming.contains(name)
    }

    /// The routing domain (VRF) that a device is in.
    pub(super) fn domain_of(&self, name: &str) -> Option<&str> {
        self.domains.domain_of(name)
    }

    /// Whether a path over TCP can use this device now: its network is known, and answers that arrive on it reach the TUN device.
    pub(super) fn takes_tcp(&self, name: &str) -> bool {
        let is_up = self.link(name).is_some_and(Link::is_up);
        is_up && !self.is_coming(name) && self.domain_of(name).is_none()
    }

    /// The networks that devices of paths share.
    pub(crate) fn shared_networks(&self) -> &SharedNetworks {
        &self.networks
    }

    pub(super) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// All devices, by their names and addresses, but those of hosts of ours.
    pub(crate) fn candidates(&self) -> Vec<Candidate<'_>> {
        let others = self.links.iter().filter(|link| !link.name.starts_with(NAME_PREFIX));
        others.map(Link::candidate).collect()
    }

    /// The facts about a device for paths over UDP. One that is coming is not up.
    pub(crate) fn device(&self, name: &str) -> Device {
        let mut device = self.link(name).map(Link::device).unwrap_or_default();
        device.is_up &= !self.is_coming(name);
        device
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
        let addresses = self.links.iter().flat_map(Link::networks);
        addresses.chain(self.routes().filter_map(Route::network)).collect()
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        self.tables.iter().flat_map(RoutingTables::iter)
    }

    fn tables(&self, family: Family) -> &RoutingTables {
        let [v4, v6] = &self.tables;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// The device that has this address.
    pub(super) fn device_with(&self, address: IpAddr) -> Option<&str> {
        self.links.iter().find(|link| link.has(address)).map(|link| link.name.as_str())
    }

    /// The device of the default route of lowest metric, of each family, each device once.
    pub(crate) fn default_devices(&self) -> Vec<String> {
        let mut devices: Vec<String> = Vec::new();
        for device in self.tables.iter().flat_map(RoutingTables::default_devices) {
            if !devices.iter().any(|known| known == device) {
                devices.push(device.to_owned());
            }
        }
        devices
    }

    /// The gateways of the routes over `device`, each once.
    pub(super) fn gateways_over(&self, device: &str) -> BTreeSet<IpAddr> {
        self.routes().filter_map(|route| route.gateway_over(device)).collect()
    }

    /// The device of the main table's best route to `address`, apart from the routes over `except`.
    pub(super) fn device_to(&self, address: IpAddr, except: &str) -> Option<&str> {
        self.tables(Family::of(address)).device_to(address, except)
    }

    /// Whether a route of any table leads over `device` to `address`.
    pub(super) fn reaches(&self, device: &str, address: IpAddr) -> bool {
        self.tables(Family::of(address)).reach(device, address)
    }

    /// Whether a route of any table for IPv4 leads over `device` to everywhere, or to a gateway. While a device gets its address, none does
    /// yet.
    pub(crate) fn leads_out(&self, device: &str) -> bool {
        let has_gateway = || self.gateways_over(device).iter().any(IpAddr::is_ipv4);
        self.reaches(device, Ipv4Addr::UNSPECIFIED.into()) || has_gateway()
    }

    /// The devices of the best default routes of both families, apart from the routes over `except`.
    pub(super) fn default_devices_besides(&self, except: &str) -> impl Iterator<Item = &str> {
        let anywhere = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        anywhere.into_iter().filter_map(move |address| self.device_to(address, except))
    }

    /// The routes over `device`, as `ip route replace` takes them, connected ones first so that gateways can be reached.
    pub(super) fn routes_over(&self, device: &str, family: Family) -> Vec<String> {
        let addresses: Vec<_> = self.link(device).into_iter().flat_map(Link::subnets).collect();
        self.tables(family).over(device, &addresses, self.domains.table_of(device))
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

    /// The family of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Its number in messages of netlink.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V4 => libc::AF_INET as u8,
            Self::V6 => libc::AF_INET6 as u8,
        }
    }

    /// The address of nothing.
    pub(super) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The option of `ip` that selects it.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }
}

#[cfg(test)]
impl Snapshot {
    /// The same with these flags of a device.
    pub(super) fn with_flags(mut self, device: &str, flags: &[&str]) -> Self {
        let of_device = self.links.iter_mut().filter(|link| link.name == device);
        of_device.for_each(|link| link.set_flags(flags));
        self
    }

    /// The same with this address of a device instead of its own.
    pub(super) fn with_address(mut self, device: &str, address: &str) -> Self {
        let of_device = self.links.iter_mut().filter(|link| link.name == device);
        of_device.for_each(|link| link.set_address(address.parse().expect("an address")));
        self
    }

    /// The same without the routes over a device.
    pub(super) fn without_routes_over(mut self, device: &str) -> Self {
        self.tables.iter_mut().for_each(|tables| tables.drop_routes_over(device));
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
    fn a_device_whose_network_is_not_known_yet_is_not_up_and_has_its_addresses_and_routes() {
        let (known, mut coming) = (snapshot(), snapshot());
        coming.set_coming(["eth0".to_owned()].into());
        assert!(known.device("eth0").is_up && !coming.device("eth0").is_up);
        assert_eq!(coming.device("eth0").v4, known.device("eth0").v4);
        assert!(coming != known && coming.has_routes_of(&known), "both are taken");
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
