//! Sources taken together: whoever has one address of a network can usually send from all of them.

use core::net::IpAddr;

/// The network of an address: the first 24 bits of an IPv4 address, the first 56 bits of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Prefix {
    V4([u8; 3]),
    V6([u8; 7]),
}

impl Prefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g])
            }
        }
    }

    /// As bytes, for a hash; never the same for two prefixes.
    pub(crate) fn bytes(self) -> [u8; 8] {
        match self {
            Self::V4([a, b, c]) => [4, a, b, c, 0, 0, 0, 0],
            Self::V6([a, b, c, d, e, f, g]) => [6, a, b, c, d, e, f, g],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_prefix_and_others_do_not() {
        let of = |address: &str| Prefix::of(address.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1:2300::1"), of("2001:db8:1:23ff::2"));
        assert_ne!(of("2001:db8:1:2300::1"), of("2001:db8:1:2400::1"));
        assert_ne!(of("32.1.13.0").bytes(), of("2001:d00::").bytes());
    }
}
