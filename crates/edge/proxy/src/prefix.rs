//! Networks: an address and the length of its prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, with zeros behind its prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The network of this address; `None` if the prefix is longer than the address.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let shift = 32_u32.checked_sub(bits.into())?;
                let network = v4.to_bits().checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
                IpAddr::from(Ipv4Addr::from_bits(network))
            }
            IpAddr::V6(v6) => {
                let shift = 128_u32.checked_sub(bits.into())?;
                let network = v6.to_bits().checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
                IpAddr::from(Ipv6Addr::from_bits(network))
            }
        };
        Some(Self { address, bits })
    }

    /// Whether it is a network of IPv6.
    pub fn is_v6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Whether it has no bits: it is everything.
    pub fn is_default(&self) -> bool {
        self.bits == 0
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let width = if address.is_ipv4() { 32 } else { 128 };
        Self::new(address, width).is_some_and(|host| self.covers(&host))
    }

    /// Whether the other network is a part of this one, or this one itself.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_v6() == other.is_v6()
            && self.bits <= other.bits
            && Self::new(other.address, self.bits) == Some(*self)
    }
}

/// The networks without those that are parts of others: sets of nftables take no overlaps.
pub fn merged(networks: &[Prefix]) -> Vec<Prefix> {
    let mut sorted = networks.to_vec();
    // A network comes right before those that it covers: two networks never overlap in part.
    sorted.sort();
    let mut kept: Vec<Prefix> = Vec::new();
    for network in sorted {
        if !kept.last().is_some_and(|last| last.covers(&network)) {
            kept.push(network);
        }
    }
    kept
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "not an address, as in 10.0.0.0/8")?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| "not a prefix length, as in 10.0.0.0/8")?;
        Self::new(address, bits).ok_or("the prefix is longer than the address")
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn a_network_is_written_without_the_bits_of_a_host() {
        let shown = |text: &str| text.parse::<Prefix>().map(|prefix| prefix.to_string());
        assert_eq!(shown("10.1.2.3/8").expect("one"), "10.0.0.0/8");
        assert_eq!(shown("0.0.0.0/0").expect("one"), "0.0.0.0/0");
        assert_eq!(shown("::/0").expect("one"), "::/0");
        assert_eq!(shown("192.0.2.7").expect("one"), "192.0.2.7/32");
        assert_eq!(shown("fe80::1/10").expect("one"), "fe80::/10");
        assert!(shown("10.0.0.0/33").is_err() && shown("x").is_err() && shown("10.0.0.0/x").is_err());
    }

    #[test]
    fn networks_in_others_are_left_out() {
        let all =
            prefixes(&["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "192.0.2.0/24", "fe80::/64", "fe80::/10"]);
        assert_eq!(merged(&all), prefixes(&["10.0.0.0/8", "192.0.2.0/24", "fe80::/10"]));
        assert_eq!(merged(&prefixes(&["::/0", "0.0.0.0/0", "10.0.0.0/8"])), prefixes(&["0.0.0.0/0", "::/0"]));
    }

    #[test]
    fn prefixes_hold_their_addresses_and_no_others() {
        let contains = |prefix: &str, ip: &str| {
            prefix.parse::<Prefix>().expect("a prefix").contains(ip.parse().expect("an address"))
        };
        assert!(contains("10.0.0.0/8", "10.255.255.255") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
    }
}
