//! Scope of an address: an announced address must mean the same host to us as to the peer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The hosts from which an address can be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reach {
    /// No host, or many hosts at once: unspecified, multicast, broadcast, IPv4 in an IPv6 address.
    Nowhere,
    /// The same host.
    Host,
    /// The same link.
    Link,
    /// The same site: private (RFC 1918), shared (RFC 6598), unique local (RFC 4193).
    Site,
    /// All hosts.
    World,
}

impl Reach {
    /// Returns the scope of `address`.
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        let is_shared = first == 100 && second & 0xc0 == 64;
        if first == 0 || address.is_multicast() || first >= 240 {
            Self::Nowhere
        } else if address.is_loopback() {
            Self::Host
        } else if address.is_link_local() {
            Self::Link
        } else if address.is_private() || is_shared {
            Self::Site
        } else {
            Self::World
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let first = address.segments()[0];
        if address.is_unspecified() || address.is_multicast() || address.to_ipv4_mapped().is_some() {
            Self::Nowhere
        } else if address.is_loopback() {
            Self::Host
        } else if first & 0xffc0 == 0xfe80 {
            Self::Link
        } else if first & 0xfe00 == 0xfc00 {
            Self::Site
        } else {
            Self::World
        }
    }
}

/// Whether `announced` can mean the same host to us as to a peer that we reach at `known`. A link-local address is meaningless without its
/// link, which no option names.
pub(crate) fn is_meaningful(announced: IpAddr, known: IpAddr) -> bool {
    match Reach::of(announced) {
        Reach::Nowhere | Reach::Link => false,
        reach @ (Reach::Host | Reach::Site | Reach::World) => reach >= Reach::of(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_public_peer_announces_no_private_addresses() {
        for private in ["10.1.2.3", "172.31.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "127.0.0.1", "::1"]
        {
            assert!(!is_meaningful(ip(private), ip("8.8.8.8")), "{private}");
            assert!(!is_meaningful(ip(private), ip("2a00::1")), "{private}");
        }
        assert!(is_meaningful(ip("172.32.0.1"), ip("8.8.8.8")));
        assert!(is_meaningful(ip("2a00::1"), ip("8.8.8.8")));
    }

    #[test]
    fn a_private_peer_announces_private_and_public_addresses() {
        for address in ["10.1.2.3", "fd00::1", "8.8.8.8", "2a00::1"] {
            assert!(is_meaningful(ip(address), ip("192.168.0.1")), "{address}");
            assert!(is_meaningful(ip(address), ip("fd12::1")), "{address}");
        }
    }

    #[test]
    fn an_address_of_no_single_host_is_not_announced() {
        for odd in [
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "169.254.1.1",
            "::",
            "ff02::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            for known in ["127.0.0.1", "169.254.3.3", "10.0.0.1", "8.8.8.8"] {
                assert!(!is_meaningful(ip(odd), ip(known)), "{odd}");
            }
        }
        assert!(is_meaningful(ip("127.0.0.2"), ip("127.0.0.1")), "both on this host");
    }
}
