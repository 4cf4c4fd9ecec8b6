//! The ranges of the stack's private addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most paths of a host: each has addresses of its own on the subnets of its TUN device.
pub(crate) const MAX_PATHS: usize = 64;

/// The ranges of the subnets of the TUN devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// /16 networks, tried in this order; device number N uses the N-th /24 in one of them.
    pub v4: Vec<Ipv4Addr>,
    /// /48 networks, tried in this order; device number N uses the N-th /64 in one of them.
    pub v6: Vec<Ipv6Addr>,
}

impl Default for Ranges {
    /// The networks for benchmarks (RFC 2544) first: they are on no real network. Then corners of the shared
    /// address space (RFC 6598) and of network 10. For IPv6 unique local prefixes (RFC 4193).
    fn default() -> Self {
        Self {
            v4: vec![
                Ipv4Addr::new(198, 18, 0, 0),
                Ipv4Addr::new(198, 19, 0, 0),
                Ipv4Addr::new(100, 127, 0, 0),
                Ipv4Addr::new(10, 213, 0, 0),
            ],
            v6: vec![
                Ipv6Addr::new(0xfd70, 0x6c61, 0x6974, 0, 0, 0, 0, 0),
                Ipv6Addr::new(0xfdb3, 0x91d4, 0x5e0c, 0, 0, 0, 0, 0),
            ],
        }
    }
}

impl Ranges {
    /// These networks, /16 of IPv4 and /48 of IPv6 by their first addresses; the default ones for a family that
    /// none of them is of.
    #[must_use]
    pub fn of(networks: &[IpAddr]) -> Self {
        let mut ranges = Self::default();
        let v4: Vec<_> = networks
            .iter()
            .filter_map(|network| match network {
                IpAddr::V4(v4) => Some(*v4),
                IpAddr::V6(_) => None,
            })
            .collect();
        let v6: Vec<_> = networks
            .iter()
            .filter_map(|network| match network {
                IpAddr::V6(v6) => Some(*v6),
                IpAddr::V4(_) => None,
            })
            .collect();
        if !v4.is_empty() {
            ranges.v4 = v4;
        }
        if !v6.is_empty() {
            ranges.v6 = v6;
        }
        ranges
    }
}
