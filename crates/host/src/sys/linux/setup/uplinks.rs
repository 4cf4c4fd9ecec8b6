//! The networks behind devices, as the routing table, the neighbour table and the tunnels of this host show them.
//!
//! Two devices lead into one network if they have the same gateway: the same address, and the same link-layer address. An address alone
//! proves nothing, because 192.168.1.1 is the gateway of many networks. If a link-layer address is unknown, devices with the same gateway
//! count as one if they have addresses in one subnet. Devices with the same address of their own are in different networks, whatever their
//! gateways look like: USB modems of one type share all three. A tunnel leads into the network of the device that carries it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use tracing::debug;

use super::addresses::Prefix;
use super::neighbours::Neighbours;
use super::snapshot::{Link, Snapshot};
use super::tunnels::Tunnels;
use crate::shared_networks::{CommonPoint, SharedNetworks};
use crate::sys::linux::datagrams::connected;

/// Time limit for the answers of gateways to the question for their link-layer addresses, and the time between two looks.
const ANSWER: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(30);

/// Port for discarded datagrams (RFC 863): the kernel asks for the link-layer address of a gateway before it sends one there.
const DISCARD: u16 = 9;

/// Largest number of tunnels inside each other.
const MAX_NESTED: usize = 4;

/// The way of a path's device into its network.
#[derive(PartialEq, Eq, Debug)]
struct Uplink {
    device: String,
    /// The devices that its packets leave by: itself, or for a tunnel those that carry it.
    carriers: BTreeSet<String>,
    gateways: Vec<Gateway>,
}

/// A next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gateway {
    address: IpAddr,
    carrier: String,
    link_address: Option<String>,
    /// The subnets of the carrier.
    subnets: Vec<Prefix>,
}

/// Returns the networks that these devices share.
pub(super) fn shared_networks(snapshot: &Snapshot, devices: &[String]) -> SharedNetworks {
    if devices.len() < 2 {
        return SharedNetworks::default();
    }
    let tunnels = Tunnels::read();
    let look = || uplinks(snapshot, devices, &tunnels, &Neighbours::read());
    let mut found = look();
    let asked = unresolved(&found);
    asked.iter().for_each(|gateway| ask(snapshot, gateway));
    let until = Instant::now() + ANSWER;
    while !asked.is_empty() && !unresolved(&found).is_empty() && Instant::now() < until {
        std::thread::sleep(LOOK);
        found = look();
    }
    group(devices, &found)
}

fn group(devices: &[String], uplinks: &[Uplink]) -> SharedNetworks {
    let of = |device: &str| uplinks.iter().find(|uplink| uplink.device == device);
    SharedNetworks::group(devices, |one, other| of(one)?.meets(of(other)?))
}

fn uplinks(
    snapshot: &Snapshot,
    devices: &[String],
    tunnels: &Tunnels,
    neighbours: &Neighbours,
) -> Vec<Uplink> {
    let uplink = |device: &String| {
        let carriers = carriers(snapshot, tunnels, device, MAX_NESTED);
        let gateways = carriers.iter().flat_map(|carrier| {
            let subnets: Vec<_> = snapshot.link(carrier).into_iter().flat_map(Link::subnets).collect();
            snapshot.gateways_over(carrier).into_iter().map(move |address| Gateway {
                address,
                carrier: carrier.clone(),
                link_address: neighbours.link_address(carrier, address).map(str::to_owned),
                subnets: subnets.clone(),
            })
        });
        Uplink { device: device.clone(), gateways: gateways.collect(), carriers: carriers.clone() }
    };
    devices.iter().map(uplink).collect()
}

/// The devices that packets to `device` leave by.
fn carriers(snapshot: &Snapshot, tunnels: &Tunnels, device: &str, nested: usize) -> BTreeSet<String> {
    let outer: BTreeSet<&str> = match tunnels.of_device(device) {
        Some(tunnel) if nested > 0 => match &tunnel.bound_to {
            Some(bound_to) => [bound_to.as_str()].into(),
            None => tunnel.remotes.iter().filter_map(|remote| snapshot.device_to(*remote, device)).collect(),
        },
        Some(_) | None => BTreeSet::new(),
    };
    if outer.is_empty() {
        return [device.to_owned()].into();
    }
    outer.into_iter().flat_map(|outer| carriers(snapshot, tunnels, outer, nested - 1)).collect()
}

impl Uplink {
    /// The point that both ways cross.
    fn meets(&self, other: &Self) -> Option<CommonPoint> {
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

impl Gateway {
    fn is_same(&self, other: &Self) -> bool {
        self.address == other.address
            && !self.has_an_address_of(other)
            && match (&self.link_address, &other.link_address) {
                (Some(ours), Some(theirs)) => ours == theirs,
                (Some(_) | None, None) | (None, Some(_)) => self.shares_subnet(other),
            }
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

/// The gateways without a known link-layer address that decides whether two devices share a network.
fn unresolved(uplinks: &[Uplink]) -> Vec<Gateway> {
    let of_others = |uplink: &Uplink| {
        let others = uplinks.iter().filter(|other| other.device != uplink.device);
        others.flat_map(|other| other.gateways.clone()).collect::<Vec<_>>()
    };
    let doubtful = uplinks.iter().flat_map(|uplink| {
        let others = of_others(uplink);
        let is_doubtful = move |gateway: &&Gateway| {
            let meets = |other: &Gateway| gateway.carrier != other.carrier && gateway.is_same(other);
            gateway.link_address.is_none() && others.iter().any(meets)
        };
        uplink.gateways.iter().filter(is_doubtful)
    });
    doubtful.cloned().collect()
}

/// Makes the kernel ask for the link-layer address of a gateway.
fn ask(snapshot: &Snapshot, gateway: &Gateway) {
    let Some(link) = snapshot.link(&gateway.carrier) else { return };
    let (own, to) = match gateway.address {
        IpAddr::V4(_) => (link.v4().map(IpAddr::V4), SocketAddr::new(gateway.address, DISCARD)),
        IpAddr::V6(v6) => (link.v6().map(IpAddr::V6), SocketAddrV6::new(v6, DISCARD, 0, link.index).into()),
    };
    let Some(own) = own else { return };
    let asked = connected(&gateway.carrier, own, to).and_then(|socket| socket.send(&[]));
    if let Err(error) = asked {
        debug!(%error, device = gateway.carrier, "the gateway is not asked for its link-layer address");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";

    /// eth0 and wlan0 with addresses in one subnet, wwan0 with another; each has a default route, by these gateways.
    fn snapshot(gateways: [&str; 3]) -> Snapshot {
        let link = |name: &str, address: &str| {
            format!(
                r#"{{"ifname":"{name}","flags":["UP","LOWER_UP"],
                "addr_info":[{{"local":"{address}","prefixlen":24,"scope":"global"}}]}}"#
            )
        };
        let links = [("eth0", "192.168.1.2"), ("wlan0", "192.168.1.3"), ("wwan0", "10.0.0.2")];
        let devices = links.map(|(name, _)| name);
        let links = links.map(|(name, address)| link(name, address)).join(",");
        let route = |(device, gateway): (&str, &str)| {
            format!(r#"{{"dst":"default","gateway":"{gateway}","dev":"{device}","metric":{}}}"#, device.len())
        };
        let routes = devices.into_iter().zip(gateways).map(route).collect::<Vec<_>>().join(",");
        Snapshot::of(&format!("[{links}]"), &format!("[{routes}]"), "[]")
    }

    fn neighbours(known: &[(&str, &str, &str)]) -> Neighbours {
        let of = |(device, address, link): &(&str, &str, &str)| {
            format!(r#"{{"dst":"{address}","dev":"{device}","lladdr":"{link}","state":["STALE"]}}"#)
        };
        Neighbours::of(&format!("[{}]", known.iter().map(of).collect::<Vec<_>>().join(",")))
    }

    fn names(devices: &[&str]) -> Vec<String> {
        devices.iter().map(|device| (*device).to_owned()).collect()
    }

    /// The shared networks in words.
    fn shared(
        snapshot: &Snapshot,
        devices: &[&str],
        tunnels: &Tunnels,
        neighbours: &Neighbours,
    ) -> Vec<String> {
        let devices = names(devices);
        let found = group(&devices, &uplinks(snapshot, &devices, tunnels, neighbours));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_gateway_with_the_same_link_address_is_one_network() {
        let snapshot = snapshot(["192.168.1.1", "192.168.1.1", "10.0.0.1"]);
        let known =
            neighbours(&[("eth0", "192.168.1.1", A), ("wlan0", "192.168.1.1", A), ("wwan0", "10.0.0.1", A)]);
        let shared = shared(&snapshot, &["eth0", "wlan0", "wwan0"], &Tunnels::default(), &known);
        let why =
            format!("eth0 and wlan0 count as one path: eth0 and wlan0 have the gateway 192.168.1.1 ({A})");
        assert_eq!(shared, [why]);
    }

    #[test]
    fn the_same_private_address_with_another_link_address_is_another_network() {
        // A router at home, and a mobile one: both are 192.168.1.1.
        let snapshot = snapshot(["192.168.1.1", "192.168.1.1", "10.0.0.1"]);
        let known = neighbours(&[("eth0", "192.168.1.1", A), ("wlan0", "192.168.1.1", B)]);
        assert_eq!(shared(&snapshot, &["eth0", "wlan0"], &Tunnels::default(), &known), [""; 0]);
    }

    #[test]
    fn modems_of_one_type_that_give_the_same_address_are_two_networks() {
        let modem = |name: &str| {
            format!(
                r#"{{"ifname":"{name}","flags":["UP","LOWER_UP"],
                "addr_info":[{{"local":"192.168.8.100","prefixlen":24,"scope":"global"}}]}}"#
            )
        };
        let links = format!("[{},{}]", modem("usb0"), modem("usb1"));
        let route = |device: &str| format!(r#"{{"dst":"default","gateway":"192.168.8.1","dev":"{device}"}}"#);
        let routes = format!("[{},{}]", route("usb0"), route("usb1"));
        let snapshot = Snapshot::of(&links, &routes, "[]");
        let known = neighbours(&[("usb0", "192.168.8.1", A), ("usb1", "192.168.8.1", A)]);
        assert_eq!(shared(&snapshot, &["usb0", "usb1"], &Tunnels::default(), &known), [""; 0]);
    }

    #[test]
    fn an_unknown_link_address_is_asked_for_and_in_one_subnet_the_devices_count_as_one_until_then() {
        let devices = names(&["eth0", "wlan0", "wwan0"]);
        let doubtful = |gateways, known: &[(&str, &str, &str)]| {
            let snapshot = snapshot(gateways);
            let found = uplinks(&snapshot, &devices, &Tunnels::default(), &neighbours(known));
            let asked: Vec<_> = unresolved(&found).into_iter().map(|gateway| gateway.carrier).collect();
            (asked, group(&devices, &found).iter().count())
        };
        let same = ["192.168.1.1", "192.168.1.1", "192.168.1.1"];
        let of_eth0 = ("eth0", "192.168.1.1", A);
        assert_eq!(
            doubtful(same, &[of_eth0]),
            (names(&["wlan0"]), 1),
            "not wwan0, which is in another subnet"
        );
        assert_eq!(doubtful(same, &[]), (names(&["eth0", "wlan0"]), 1));
        assert_eq!(doubtful(same, &[of_eth0, ("wlan0", "192.168.1.1", B)]), (names(&[]), 0));
        let zeros = ("wlan0", "192.168.1.1", "00:00:00:00:00:00");
        assert_eq!(doubtful(same, &[of_eth0, zeros]), (names(&["wlan0"]), 1), "that is no address");
        assert_eq!(doubtful(["192.168.1.1", "192.168.1.9", "10.0.0.1"], &[]), (names(&[]), 0));
    }

    #[test]
    fn a_tunnel_is_in_the_network_of_the_device_that_carries_it() {
        let snapshot = snapshot(["192.168.1.1", "192.168.1.9", "10.0.0.1"]);
        let links = r#"[
            {"ifname":"gre1","link":null,"linkinfo":{"info_kind":"gre","info_data":{"remote":"203.0.113.1"}}},
            {"ifname":"gre2","link":"wwan0","linkinfo":{"info_kind":"gre","info_data":{"remote":"203.0.113.1"}}},
            {"ifname":"wg0","linkinfo":{"info_kind":"wireguard"}}]"#;
        let links: Vec<serde_json::Value> = serde_json::from_str(links).expect("JSON");
        let tunnels = Tunnels::of(&links, "wg0\tAAAA=\t10.0.0.77:51820\n");
        let shared = |devices: &[&str]| shared(&snapshot, devices, &tunnels, &Neighbours::default());
        assert_eq!(
            shared(&["gre1", "eth0"]),
            ["gre1 and eth0 count as one path: gre1 is a tunnel over eth0"]
        );
        assert_eq!(shared(&["gre1", "wlan0"]), [""; 0], "the route of lowest metric leads over eth0");
        assert_eq!(shared(&["gre2", "gre1"]), [""; 0]);
        assert_eq!(
            shared(&["gre2", "wwan0"]),
            ["gre2 and wwan0 count as one path: gre2 is a tunnel over wwan0"]
        );
        assert_eq!(shared(&["wg0", "eth0"]).len(), 1, "by the default route");
    }
}
