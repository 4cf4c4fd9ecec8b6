//! Addresses of the stack on paths whose carrier has no network of its own for them.
//!
//! A carrier such as UDP has sockets at the device's addresses. The four-tuples of one device over two carriers must differ, so the stack
//! has an address of its own on each path. No packet has it. [`crate::sys::Network`] never chooses these networks for a TUN device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plait_base::PathId;
use plait_mptcp::Path;

/// The last /24 for benchmarks (RFC 2544).
pub(crate) const V4: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 0);
/// A /64 of the unique local prefix of TUN devices.
pub(crate) const V6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0x6c61, 0x6974, 0xffff, 0, 0, 0, 0);

/// The stack's IPv4 address on a path.
pub(crate) fn v4(path: PathId) -> Ipv4Addr {
    let [a, b, c, _] = V4.octets();
    Ipv4Addr::new(a, b, c, path.0)
}

/// The same for IPv6.
pub(crate) fn v6(path: PathId) -> Ipv6Addr {
    let [a, b, c, d, ..] = V6.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, path.0.into())
}

/// The address of the device of a path, of the family of `like`: other hosts know no address of the stack.
#[must_use]
pub fn device_address(path: &Path, like: IpAddr) -> Option<IpAddr> {
    match like {
        IpAddr::V4(_) => path.public_v4.map(IpAddr::V4),
        IpAddr::V6(_) => path.public_v6.map(IpAddr::V6),
    }
}

/// Whether an address is one of them: no packet from a network may have it.
pub(crate) fn is_one(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == V4.octets()[..3],
        IpAddr::V6(v6) => v6.segments()[..4] == V6.segments()[..4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_an_address_that_no_network_has() {
        for id in [0, 1, 255] {
            assert!(is_one(v4(PathId(id)).into()) && is_one(v6(PathId(id)).into()));
        }
        assert_ne!(v4(PathId(0)), v4(PathId(1)));
        for other in
            ["198.19.254.10", "198.18.255.128", "192.0.2.128", "fd70:6c61:6974:fffe::10", "2001:db8::80"]
        {
            assert!(!is_one(other.parse().expect("an address")), "{other}");
        }
    }
}
