//! Sources taken together: whoever has one address of a network can usually send from all of them.
//!
//! An IPv4 network is a /24. Of IPv6 a subscriber is given between a /64, one network, and a /48, 65,536 of them (RFC 6177), so
//! that a source is counted as both: as its network and as its site.

use core::net::IpAddr;

/// Of what one network may have, a whole site has so many times as much.
pub(crate) const NETWORKS_PER_SITE: usize = 4;

/// Addresses that are taken together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Prefix {
    /// The first 24 bits of an IPv4 address.
    V4([u8; 3]),
    /// The first 64 bits of an IPv6 address.
    V6([u8; 8]),
    /// The first 48 bits of an IPv6 address.
    Site([u8; 6]),
}

impl Prefix {
    /// The network of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }

    /// Whether an address is one of it.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let network = Self::of(address);
        network == self || network.widest() == self
    }

    /// The widest that somebody may have to himself: a network of IPv4, a site of IPv6.
    pub(crate) fn widest(self) -> Self {
        match self {
            Self::V6([a, b, c, d, e, f, _, _]) => Self::Site([a, b, c, d, e, f]),
            Self::V4(_) | Self::Site(_) => self,
        }
    }

    /// What a source of this network counts as, and how many times the limit of a network holds for each.
    pub(crate) fn levels(self) -> impl Iterator<Item = (Self, usize)> {
        let site = Some(self.widest()).filter(|site| *site != self);
        core::iter::once((self, 1)).chain(site.map(|site| (site, NETWORKS_PER_SITE)))
    }

    /// As bytes, for a hash; never the same for two prefixes.
    pub(crate) fn bytes(self) -> [u8; 9] {
        match self {
            Self::V4([a, b, c]) => [4, a, b, c, 0, 0, 0, 0, 0],
            Self::V6([a, b, c, d, e, f, g, h]) => [6, a, b, c, d, e, f, g, h],
            Self::Site([a, b, c, d, e, f]) => [48, a, b, c, d, e, f, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Prefix {
        Prefix::of(address.parse().expect("an address"))
    }

    #[test]
    fn neighbours_share_a_prefix_and_others_do_not() {
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1:2300::1"), of("2001:db8:1:2300:ffff::2"));
        assert_ne!(of("2001:db8:1:2300::1"), of("2001:db8:1:2301::1"));
        assert_ne!(of("32.1.13.0").bytes(), of("2001:d00::").bytes());
    }

    #[test]
    fn networks_of_ipv6_share_a_site_and_networks_of_ipv4_are_their_own() {
        assert_eq!(of("2001:db8:1:2300::1").widest(), of("2001:db8:1:ffff::1").widest());
        assert_ne!(of("2001:db8:1::1").widest(), of("2001:db8:2::1").widest());
        assert_ne!(of("2001:db8:1::1").widest().bytes(), of("2001:db8:1::1").bytes());
        assert_eq!(of("192.0.2.1").levels().count(), 1);
        assert_eq!(of("2001:db8::1").levels().last(), Some((of("2001:db8::1").widest(), NETWORKS_PER_SITE)));
    }
}
