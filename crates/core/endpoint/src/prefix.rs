//! Sources that are counted together: a host with one address of a network can usually send from all of them.
//!
//! An IPv4 network is a /24. An IPv6 subscriber gets between a /64, one network, and a /48, 65,536 of them (RFC 6177). An IPv6 source is
//! therefore counted as both: as its network and as its site.

use core::net::IpAddr;

/// The limit of a site, as a multiple of the limit of a network.
pub(crate) const NETWORKS_PER_SITE: usize = 4;

/// Addresses that are counted together.
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
    /// Returns the network of an address.
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

    /// Whether it includes an address.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let network = Self::of(address);
        network == self || network.widest() == self
    }

    /// Returns the widest prefix that one subscriber may have: a network of IPv4, a site of IPv6.
    pub(crate) fn widest(self) -> Self {
        match self {
            Self::V6([a, b, c, d, e, f, _, _]) => Self::Site([a, b, c, d, e, f]),
            Self::V4(_) | Self::Site(_) => self,
        }
    }

    /// Returns the prefixes for which a source of this network counts, each with its multiple of a network's limit.
    pub(crate) fn levels(self) -> impl Iterator<Item = (Self, usize)> {
        let site = Some(self.widest()).filter(|site| *site != self);
        core::iter::once((self, 1)).chain(site.map(|site| (site, NETWORKS_PER_SITE)))
    }

    /// Returns the bytes for a hash; distinct for distinct prefixes.
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
