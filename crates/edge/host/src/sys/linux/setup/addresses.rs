//! Networks of addresses.

use std::fmt;
use std::net::IpAddr;

/// An IP network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    pub(super) address: IpAddr,
    pub(super) length: u8,
}

impl Prefix {
    /// `address/length`, an address alone, or `default` (which is no network that anything overlaps with).
    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address.parse().ok()?, length.parse().ok()?),
            None => {
                let Self { address, length } = Self::host(text.parse().ok()?);
                (address, length)
            }
        };
        let longest = Self::host(address).length;
        (1..=longest).contains(&length).then_some(Self { address, length })
    }

    /// This address alone.
    pub(super) fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        let common = self.length.min(other.length);
        match (self.address, other.address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(32 - u32::from(common)).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(128 - u32::from(common)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).expect("a prefix")
    }

    #[test]
    fn prefixes_are_read_as_ip_prints_them() {
        assert_eq!(prefix("10.1.2.3"), prefix("10.1.2.3/32"));
        assert_eq!(Prefix::parse("default"), None);
        assert_eq!(Prefix::parse("0.0.0.0/0"), None);
        assert_eq!(Prefix::parse("10.0.0.0/33"), None);
        assert_eq!(Prefix::parse("fe80::/129"), None);
    }
}
