//! Devices, and the choice between the addresses of one.
//!
//! A device may have several addresses of a family. A path uses one of them for what begins: a preferred one rather than a deprecated one
//! (RFC 6724, section 5, rule 3), and then a stable one rather than a temporary one. Rule 7 of that section says the opposite for a client;
//! but a subflow of ours lives longer than a temporary address is preferred, a listener announces its address, and the peer knows us by our
//! key. What runs keeps its address, whatever its state, until the device no longer has it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_bindings::rt_addr::{self, AddrAttrs, IfaFlags, IterableAddrAttrs};
use netlink_bindings::rt_link::{self, IfinfoFlags, IterableLinkAttrs, LinkAttrs, RtextFilter};
use netlink_bindings::utils::parse_ip;

use super::addresses::Prefix;
use super::domains::{Domains, Membership};
use super::netlink::Netlink;
use super::tunnels::{Carried, Tunnels};
use crate::error::Error;
use crate::sys::{Candidate, Device};

/// GRE over IPv6 (linux/if_arp.h).
const ARPHRD_IP6GRE: u16 = 823;

/// A device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) other_names: Vec<String>,
    pub(super) link_address: Option<String>,
    /// If it differs from the present one.
    pub(super) hardware_address: Option<String>,
    pub(super) flags: Flags,
    pub(super) mtu: u32,
    pub(super) addresses: Vec<Address>,
}

/// The flags of a device that matter.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flags {
    pub(super) is_up: bool,
    /// Whether it has a carrier.
    pub(super) is_lower_up: bool,
    pub(super) is_loopback: bool,
    /// Whether it has no link-layer addresses that can be asked for.
    pub(super) is_noarp: bool,
}

/// An address of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) local: Option<IpAddr>,
    pub(super) scope: Scope,
    /// On point-to-point devices the prefix belongs to the other end.
    pub(super) prefix_length: u8,
    pub(super) tentative: bool,
    pub(super) dad_failed: bool,
    pub(super) deprecated: bool,
    pub(super) temporary: bool,
}

/// The distance over which an address is valid (linux/rtnetlink.h, `rt_scope_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Global,
    /// This host.
    Host,
    /// The link, or a scope of the administrator.
    Other,
}

impl Scope {
    /// The scope of this number.
    fn of(number: u8) -> Self {
        match number {
            libc::RT_SCOPE_UNIVERSE => Self::Global,
            libc::RT_SCOPE_HOST => Self::Host,
            _ => Self::Other,
        }
    }
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
        self.flags.is_up && self.flags.is_lower_up
    }

    /// Whether the kernel can ask for link-layer addresses over it now.
    pub(super) fn can_ask(&self) -> bool {
        self.is_up() && !self.is_loopback() && !self.flags.is_noarp
    }

    /// Whether packets sent over it return to this host.
    pub(super) fn is_loopback(&self) -> bool {
        self.flags.is_loopback
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
        let scope = if self.is_loopback() { Scope::Host } else { Scope::Global };
        let global = move |address: &&Address| address.scope == scope;
        self.addresses.iter().filter(global).filter(|address| !address.tentative && !address.dad_failed)
    }
}

/// Reads the devices of the kernel, each with what makes it a tunnel, and with its domain.
pub(super) fn read(netlink: &mut Netlink) -> Result<(Vec<Link>, Tunnels, Domains), Error> {
    let mut question = rt_link::Request::new().op_getlink_dump(&rt_link::Ifinfomsg::new());
    question.encode().push_ext_mask(RtextFilter::SkipStats as u32);
    let read = netlink.ask(&question, |(header, facts)| {
        Some((Link::of(&header, facts), (Carried::of(facts), Membership::of(facts))))
    })?;
    let (mut links, others): (Vec<Link>, Vec<_>) = read.into_iter().unzip();
    let (carried, memberships): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    let (tunnels, domains) = (Tunnels::among(&links, carried), Domains::among(&links, &memberships));
    let question = rt_addr::Request::new().op_getaddr_dump(&rt_addr::Ifaddrmsg::new());
    let addresses =
        netlink.ask(&question, |(header, facts)| Some((header.ifa_index, Address::of(&header, facts))))?;
    let places: BTreeMap<u32, usize> =
        links.iter().enumerate().map(|(place, link)| (link.index, place)).collect();
    for (index, address) in addresses {
        // A device that has come since then is announced.
        if let Some(place) = places.get(&index) {
            links[*place].addresses.push(address);
        }
    }
    Ok((links, tunnels, domains))
}

impl Link {
    /// The device in an answer, without its addresses.
    fn of(header: &rt_link::Ifinfomsg, facts: IterableLinkAttrs<'_>) -> Self {
        let kind = header.ifi_type;
        let mut link = Self {
            index: header.ifi_index.cast_unsigned(),
            flags: Flags::of(header.ifi_flags),
            ..Self::default()
        };
        let mut hardware_address = None;
        for fact in facts.flatten() {
            match fact {
                LinkAttrs::Ifname(name) => link.name = name.to_string_lossy().into_owned(),
                LinkAttrs::Mtu(mtu) => link.mtu = mtu,
                LinkAttrs::Address(address) => link.link_address = Some(shown_link_address(kind, address)),
                LinkAttrs::PermAddress(address) => hardware_address = Some(shown_link_address(kind, address)),
                LinkAttrs::PropList(names) => {
                    let names = names.get_alt_ifname().map(|name| name.to_string_lossy().into_owned());
                    link.other_names.extend(names);
                }
                _ => {}
            }
        }
        link.hardware_address =
            hardware_address.filter(|address| Some(address) != link.link_address.as_ref());
        link
    }
}

/// A link-layer address in words: that of a tunnel over IP is an IP address.
fn shown_link_address(kind: u16, address: &[u8]) -> String {
    /// Types of devices whose link-layer addresses are IP addresses (linux/if_arp.h).
    const OVER_IP: [u16; 5] =
        [libc::ARPHRD_TUNNEL, libc::ARPHRD_TUNNEL6, libc::ARPHRD_SIT, libc::ARPHRD_IPGRE, ARPHRD_IP6GRE];
    let over_ip = parse_ip(address).filter(|_| OVER_IP.contains(&kind));
    over_ip.map_or_else(|| in_hex(address), |address| address.to_string())
}

/// A link-layer address of Ethernet and the like.
pub(super) fn in_hex(address: &[u8]) -> String {
    let digits: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":")
}

impl Flags {
    /// The flags in a message (linux/if.h).
    fn of(bits: u32) -> Self {
        let has = |flag: IfinfoFlags| bits & flag as u32 != 0;
        Self {
            is_up: has(IfinfoFlags::Up),
            is_lower_up: has(IfinfoFlags::LowerUp),
            is_loopback: has(IfinfoFlags::Loopback),
            is_noarp: has(IfinfoFlags::NoArp),
        }
    }
}

impl Address {
    /// The address in an answer.
    fn of(header: &rt_addr::Ifaddrmsg, facts: IterableAddrAttrs<'_>) -> Self {
        let (mut local, mut flags) = (None, u32::from(header.ifa_flags));
        for fact in facts.flatten() {
            match fact {
                AddrAttrs::Local(address) => local = Some(address),
                // The other end's on a point-to-point device, which has a local one, too.
                AddrAttrs::Address(address) => local = local.or(Some(address)),
                AddrAttrs::Flags(more) => flags = more,
                _ => {}
            }
        }
        let has = |flag: IfaFlags| flags & flag as u32 != 0;
        Self {
            local,
            scope: Scope::of(header.ifa_scope),
            prefix_length: header.ifa_prefixlen,
            tentative: has(IfaFlags::Tentative),
            dad_failed: has(IfaFlags::Dadfailed),
            deprecated: has(IfaFlags::Deprecated),
            // For IPv4 the flag means a further address of the subnet.
            temporary: has(IfaFlags::Secondary) && local.is_some_and(|local| local.is_ipv6()),
        }
    }

    fn network(&self) -> Option<Prefix> {
        Some(Prefix { address: self.local?, length: self.prefix_length.max(1) })
    }
}

#[cfg(test)]
impl Link {
    /// The same with these flags.
    pub(super) fn set_flags(&mut self, flags: &[&str]) {
        self.flags = Flags::named(flags);
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
        let address = |(local, flags): &(&str, &[&str])| Address {
            local: Some(local.parse().expect("an address")),
            scope: Scope::Global,
            prefix_length: 64,
            tentative: flags.contains(&"tentative"),
            dad_failed: flags.contains(&"dadfailed"),
            deprecated: flags.contains(&"deprecated"),
            temporary: flags.contains(&"temporary"),
        };
        Link {
            name: "eth0".to_owned(),
            addresses: addresses.iter().map(address).collect(),
            ..Link::default()
        }
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
