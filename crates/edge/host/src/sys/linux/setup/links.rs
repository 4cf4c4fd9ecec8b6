//! Devices, and the choice between the addresses of one.
//!
//! A device may have several addresses of a family. A path uses one of them for what begins: a preferred one rather than a deprecated one
//! (RFC 6724, section 5, rule 3), and then a stable one rather than a temporary one. Rule 7 of that section says the opposite for a client;
//! but a subflow of ours lives longer than a temporary address is preferred, a listener announces its address, and the peer knows us by our
//! key. What runs keeps its address, whatever its state, until the device no longer has it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use super::addresses::Prefix;
use crate::sys::{Candidate, Device};

/// A device as `ip -json address` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Link {
    #[serde(rename = "ifname", default)]
    pub(super) name: String,
    #[serde(rename = "ifindex", default)]
    pub(super) index: u32,
    #[serde(rename = "altnames", default)]
    other_names: Vec<String>,
    #[serde(rename = "address", default)]
    link_address: Option<String>,
    /// If it differs from the present one.
    #[serde(rename = "permaddr", default)]
    hardware_address: Option<String>,
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

impl Link {
    /// The facts about it for paths over UDP.
    pub(super) fn device(&self) -> Device {
        let valid = self.valid().filter_map(|address| address.local).collect();
        let (index, v4, v6) = (self.index, self.v4(), self.v6());
        Device { index, v4, v6, valid, mtu: self.mtu, is_up: self.is_up() }
    }

    /// The names and addresses by which rules select it.
    pub(super) fn candidate(&self) -> Candidate<'_> {
        let link_addresses = [&self.link_address, &self.hardware_address].into_iter().flatten();
        Candidate {
            name: &self.name,
            other_names: &self.other_names,
            link_addresses: link_addresses.map(String::as_str).collect(),
            addresses: self.addresses.iter().filter_map(|address| address.local).collect(),
            index: self.index,
            is_loopback: self.is_loopback(),
        }
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

    /// The IPv4 address of this device for other hosts.
    pub(super) fn v4(&self) -> Option<Ipv4Addr> {
        self.best(|address| match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
    }

    /// The IPv6 address of this device for other hosts.
    pub(super) fn v6(&self) -> Option<Ipv6Addr> {
        self.best(|address| match address {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        })
    }

    /// Those addresses, of both families.
    pub(super) fn own_addresses(&self) -> Vec<IpAddr> {
        self.v4().map(IpAddr::V4).into_iter().chain(self.v6().map(IpAddr::V6)).collect()
    }

    /// The IPv6 address of this device for other hosts, if it is deprecated: then all are.
    pub(super) fn deprecated_v6(&self) -> Option<Ipv6Addr> {
        let is_deprecated =
            |own: &Ipv6Addr| self.valid().any(|it| it.deprecated && it.local == Some(IpAddr::V6(*own)));
        self.v6().filter(is_deprecated)
    }

    /// The address of a family for what begins now; the first of equal ones.
    fn best<A>(&self, of_family: impl Fn(IpAddr) -> Option<A>) -> Option<A> {
        let addresses = self.valid().filter_map(|address| Some((address, of_family(address.local?)?)));
        let best = addresses.min_by_key(|(address, _)| (address.deprecated, address.temporary));
        best.map(|(_, address)| address)
    }

    /// Whether it has this address, for other hosts or not.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|known| known.local == Some(address))
    }

    /// The networks of all its addresses.
    pub(super) fn networks(&self) -> impl Iterator<Item = Prefix> {
        self.addresses.iter().filter_map(Address::network)
    }

    /// The subnets of its addresses for other hosts.
    pub(super) fn subnets(&self) -> impl Iterator<Item = Prefix> {
        self.valid().filter_map(Address::network)
    }

    /// The addresses for other hosts that may be the source of a packet: duplicate detection is over.
    fn valid(&self) -> impl Iterator<Item = &Address> {
        // The addresses of the loopback device are for this host alone, and so are addresses that use it.
        let scope = if self.is_loopback() { "host" } else { "global" };
        let global = move |address: &&Address| address.scope == scope;
        self.addresses.iter().filter(global).filter(|address| !address.tentative && !address.dad_failed)
    }
}

impl Address {
    fn network(&self) -> Option<Prefix> {
        Some(Prefix { address: self.local?, length: self.prefix_length.max(1) })
    }
}

#[cfg(test)]
impl Link {
    /// The same with these flags.
    pub(super) fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// The same with this address instead of each.
    pub(super) fn set_address(&mut self, address: IpAddr) {
        self.addresses.iter_mut().for_each(|own| own.local = Some(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with these addresses of IPv6, each with its flags.
    fn link(addresses: &[(&str, &[&str])]) -> Link {
        let address = |(local, flags): &(&str, &[&str])| {
            let flags: String = flags.iter().map(|flag| format!(",\"{flag}\":true")).collect();
            format!(r#"{{"local":"{local}","prefixlen":64,"scope":"global"{flags}}}"#)
        };
        let addresses: Vec<_> = addresses.iter().map(address).collect();
        let text = format!(r#"{{"ifname":"eth0","addr_info":[{}]}}"#, addresses.join(","));
        serde_json::from_str(&text).expect("as ip prints it")
    }

    #[test]
    fn what_begins_uses_a_preferred_address_and_then_a_stable_one() {
        let chosen = |addresses: &[(&str, &[&str])]| link(addresses).v6().map(|v6| v6.to_string());
        let old: (&str, &[&str]) = ("2001:db8::1", &["deprecated"]);
        let stable: (&str, &[&str]) = ("2001:db8::2", &[]);
        let temporary: (&str, &[&str]) = ("2001:db8::7", &["temporary"]);
        assert_eq!(chosen(&[old, temporary, stable]).as_deref(), Some("2001:db8::2"));
        assert_eq!(chosen(&[old, temporary]).as_deref(), Some("2001:db8::7"), "rule 3 before rule 7");
        assert_eq!(chosen(&[old]).as_deref(), Some("2001:db8::1"), "there is no other");
        assert_eq!(chosen(&[("2001:db8::3", &["tentative"])]), None, "another host may have it");
        assert_eq!(
            chosen(&[("2001:db8::3", &["tentative", "dadfailed"]), old]).as_deref(),
            Some("2001:db8::1")
        );
    }

    #[test]
    fn what_runs_may_keep_every_address_that_is_there() {
        let device =
            link(&[("2001:db8::1", &["deprecated"]), ("2001:db8::2", &[]), ("2001:db8::3", &["tentative"])]);
        let valid: Vec<_> = device.device().valid.iter().map(ToString::to_string).collect();
        assert_eq!(valid, ["2001:db8::1", "2001:db8::2"]);
    }
}
