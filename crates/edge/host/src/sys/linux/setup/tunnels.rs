//! The tunnels of this host, and the addresses of their other ends.

use std::net::{IpAddr, SocketAddr};

use netlink_bindings::rt_link::{IterableLinkAttrs, LinkAttrs};
use netlink_bindings::utils::{find_attr, parse_ip};

use super::command::run;
use super::links::Link;
use crate::log::debug;

/// The facts of one kind of device (linux/if_link.h).
const IFLA_INFO_DATA: u16 = 2;

/// The tunnels of this host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Tunnels(pub(super) Vec<Tunnel>);

/// A tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tunnel {
    pub(super) device: String,
    /// The device that its packets are bound to.
    pub(super) bound_to: Option<String>,
    /// The other ends: of WireGuard, one for each peer, none if they cannot be read.
    pub(super) remotes: Vec<IpAddr>,
    pub(super) is_wireguard: bool,
}

/// What a device says of the packets that carry its own.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Carried {
    /// The kind of device, as in `ip link add type`.
    pub(super) kind: Option<String>,
    /// The number of the device below it in this network namespace.
    below: Option<u32>,
    remotes: Vec<IpAddr>,
}

impl Carried {
    /// What a device says in an answer.
    pub(super) fn of(facts: IterableLinkAttrs<'_>) -> Self {
        let (mut carried, mut is_here) = (Self::default(), true);
        for fact in facts.flatten() {
            match fact {
                LinkAttrs::Link(index) => carried.below = Some(index).filter(|index| *index != 0),
                LinkAttrs::LinkNetnsid(_) => is_here = false,
                LinkAttrs::Linkinfo(facts) => {
                    let kind = facts.get_kind().map(|kind| kind.to_string_lossy().into_owned());
                    carried.kind = kind.ok();
                    let kind = carried.kind.as_deref().unwrap_or_default();
                    carried.remotes =
                        remotes(kind, find_attr(facts.get_buf(), IFLA_INFO_DATA).unwrap_or_default());
                }
                _ => {}
            }
        }
        carried.below = carried.below.filter(|_| is_here);
        carried
    }
}

/// The other ends of a tunnel in the facts of a device of this kind: each kind has numbers of its own (linux/if_tunnel.h, linux/if_link.h).
fn remotes(kind: &str, facts: &[u8]) -> Vec<IpAddr> {
    let attributes: &[u16] = match kind {
        "gre" | "gretap" | "erspan" | "ip6gre" | "ip6gretap" | "ip6erspan" => &[7],
        "ipip" | "sit" | "ip6tnl" => &[3],
        "vti" | "vti6" => &[5],
        "vxlan" => &[2, 16],
        "geneve" => &[2, 7],
        _ => &[],
    };
    let remotes = attributes.iter().filter_map(|attribute| parse_ip(find_attr(facts, *attribute)?));
    remotes.filter(|remote| !remote.is_unspecified() && !remote.is_multicast()).collect()
}

impl Tunnels {
    /// The tunnels among `links`: GRE, IP in IP and the like. Those of WireGuard have no other end yet.
    pub(super) fn among(links: &[Link], carried: Vec<Carried>) -> Self {
        let name = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let tunnels = links.iter().zip(carried).filter_map(|(link, carried)| {
            let device = link.name.clone();
            if carried.kind.as_deref() == Some("wireguard") {
                return Some(Tunnel { device, bound_to: None, remotes: Vec::new(), is_wireguard: true });
            }
            // A device that is no tunnel has another kind of lower device: the other end of a veth, for example.
            let remotes = Some(carried.remotes).filter(|remotes| !remotes.is_empty())?;
            Some(Tunnel { device, bound_to: carried.below.and_then(name), remotes, is_wireguard: false })
        });
        Self(tunnels.collect())
    }

    /// Returns the tunnels with the other ends that `wg` knows, for paths over these devices. `wg` runs only if one of the devices is a
    /// tunnel: others are not carried by WireGuard.
    pub(super) fn for_paths<'a>(&self, mut devices: impl Iterator<Item = &'a str>) -> Self {
        let has_wireguard = self.0.iter().any(|tunnel| tunnel.is_wireguard);
        if !has_wireguard || !devices.any(|device| self.of_device(device).is_some()) {
            return self.clone();
        }
        let endpoints = run("wg", "show all endpoints").unwrap_or_else(|error| {
            debug!(%error, "the other ends of WireGuard are unknown");
            String::new()
        });
        self.with_endpoints(&endpoints)
    }

    /// The same with these other ends of WireGuard, as `wg` shows them.
    pub(super) fn with_endpoints(&self, endpoints: &str) -> Self {
        let mut tunnels = self.clone();
        for tunnel in tunnels.0.iter_mut().filter(|tunnel| tunnel.is_wireguard) {
            tunnel.remotes = endpoints.lines().filter_map(|line| endpoint_of(&tunnel.device, line)).collect();
        }
        tunnels
    }

    /// Whether this device is a tunnel whose other end cannot be read: `wg` is missing, plait is not root, or no peer has an endpoint.
    pub(super) fn is_unreadable(&self, device: &str) -> bool {
        self.of_device(device).is_some_and(|tunnel| tunnel.remotes.is_empty())
    }

    /// The tunnel of this device.
    pub(super) fn of_device(&self, device: &str) -> Option<&Tunnel> {
        self.0.iter().find(|tunnel| tunnel.device == device)
    }
}

/// The address in a line of `wg show all endpoints`, device, key and endpoint, if it is of this device.
fn endpoint_of(device: &str, line: &str) -> Option<IpAddr> {
    let mut fields = line.split('\t');
    let (name, _key) = (fields.next()?, fields.next()?);
    let endpoint: SocketAddr = fields.next()?.trim().parse().ok()?;
    (name == device).then_some(endpoint.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_have_the_other_ends_that_ip_and_wg_show() {
        let links: Vec<serde_json::Value> = serde_json::from_str(
            r#"[{"ifname":"eth0"},
                {"ifname":"veth0","link":"eth0","linkinfo":{"info_kind":"veth"}},
                {"ifname":"gre1","link":null,"linkinfo":{"info_kind":"gre","info_data":{"remote":"192.0.2.9","local":"any"}}},
                {"ifname":"ipip1","link":"eth0","linkinfo":{"info_kind":"ipip","info_data":{"remote":"192.0.2.8"}}},
                {"ifname":"gre0","link":null,"linkinfo":{"info_kind":"gre","info_data":{"remote":"any","local":"any"}}},
                {"ifname":"vx","linkinfo":{"info_kind":"vxlan","info_data":{"id":3,"remote6":"2001:db8::9"}}},
                {"ifname":"br0","linkinfo":{"info_kind":"bridge","info_data":{"hello_timer":0.00}}},
                {"ifname":"wg0","linkinfo":{"info_kind":"wireguard"}}]"#,
        )
        .expect("JSON");
        let endpoints = "wg0\tAAAA=\t198.51.100.1:51820\nwg0\tBBBB=\t(none)\nwg1\tCCCC=\t198.51.100.2:1\n\
                         wg0\tDDDD=\t[2001:db8::1]:51820\n";
        let tunnels = Tunnels::of(&links).with_endpoints(endpoints);
        let remotes = |device: &str| {
            let remotes = tunnels.of_device(device).map(|tunnel| &tunnel.remotes)?;
            Some(remotes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(remotes("gre1").as_deref(), Some("192.0.2.9"));
        assert_eq!(tunnels.of_device("ipip1").and_then(|tunnel| tunnel.bound_to.as_deref()), Some("eth0"));
        assert_eq!(remotes("vx").as_deref(), Some("2001:db8::9"));
        assert_eq!(remotes("wg0").as_deref(), Some("198.51.100.1 2001:db8::1"));
        for device in ["eth0", "veth0", "gre0", "br0"] {
            assert_eq!(remotes(device), None, "{device}");
        }
        assert!(!tunnels.is_unreadable("wg0") && !tunnels.is_unreadable("eth0"));
        assert!(tunnels.with_endpoints("wg0\tBBBB=\t(none)\n").is_unreadable("wg0"));
    }
}
