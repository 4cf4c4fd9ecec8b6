//! Private addresses for the stack: on the subnet of the TUN device, but not assigned to the kernel, so that the kernel does not answer
//! segments sent to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::addresses::Prefix;
use crate::error::Error;
use crate::ranges::Ranges;
use crate::stack_address;

/// The subnets of one TUN device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subnets {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// Host part of the first path's address, behind which [`crate::ranges::MAX_PATHS`] fit; below lie the kernel's own and room for people to try things.
const FIRST_HOST: u8 = 10;

impl Subnets {
    pub(super) const V4_LENGTH: u8 = 24;
    pub(super) const V6_LENGTH: u8 = 64;

    /// The first subnets for device `number` that overlap with nothing in `used`.
    pub(super) fn choose(ranges: &Ranges, number: u8, used: &[Prefix]) -> Result<Self, Error> {
        let reserved = [
            Prefix { address: stack_address::V4.into(), length: Self::V4_LENGTH },
            Prefix { address: stack_address::V6.into(), length: Self::V6_LENGTH },
        ];
        let free = |address: IpAddr, length| {
            let candidate = Prefix { address, length };
            !used.iter().chain(&reserved).any(|prefix| prefix.overlaps(candidate))
        };
        let v4 = ranges.v4.iter().map(|range| {
            let [a, b, _, _] = range.octets();
            Ipv4Addr::new(a, b, number, 0)
        });
        let v6 = ranges.v6.iter().map(|range| {
            let [a, b, c, ..] = range.segments();
            Ipv6Addr::new(a, b, c, u16::from(number), 0, 0, 0, 0)
        });
        let v4 = v4.into_iter().find(|network| free((*network).into(), Self::V4_LENGTH));
        let v6 = v6.into_iter().find(|network| free((*network).into(), Self::V6_LENGTH));
        v4.zip(v6).map(|(v4, v6)| Self { v4, v6 }).ok_or(Error::NoFreeRange)
    }

    pub(super) fn v4(&self) -> Prefix {
        Prefix { address: self.v4.into(), length: Self::V4_LENGTH }
    }

    pub(super) fn v6(&self) -> Prefix {
        Prefix { address: self.v6.into(), length: Self::V6_LENGTH }
    }

    /// The kernel's own address on the device: ICMP errors come from it.
    pub(super) fn kernel_v4(&self) -> Ipv4Addr {
        self.v4_host(1)
    }

    /// The same for IPv6.
    pub(super) fn kernel_v6(&self) -> Ipv6Addr {
        self.v6_host(1)
    }

    /// The stack's address on path number `path`.
    pub(super) fn stack_v4(&self, path: u8) -> Ipv4Addr {
        self.v4_host(FIRST_HOST + path)
    }

    /// The same for IPv6.
    pub(super) fn stack_v6(&self, path: u8) -> Ipv6Addr {
        self.v6_host(FIRST_HOST + path)
    }

    fn v4_host(&self, host: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.v4.octets();
        Ipv4Addr::new(a, b, c, host)
    }

    fn v6_host(&self, host: u8) -> Ipv6Addr {
        let mut octets = self.v6.octets();
        octets[15] = host;
        octets.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).expect("a prefix")
    }

    #[test]
    fn each_device_has_its_own_subnets_and_each_path_its_own_addresses() {
        let subnets = Subnets::choose(&Ranges::default(), 3, &[]).expect("nothing is used");
        assert_eq!(subnets.v4().to_string(), "198.18.3.0/24");
        assert_eq!(subnets.v6().to_string(), "fd70:6c61:6974:3::/64");
        assert_eq!(subnets.stack_v4(1), Ipv4Addr::new(198, 18, 3, 11));
        assert_eq!(subnets.stack_v6(1).to_string(), "fd70:6c61:6974:3::b");
        assert_eq!(subnets.kernel_v4(), Ipv4Addr::new(198, 18, 3, 1));
    }

    #[test]
    fn a_range_that_the_host_uses_is_passed_over() {
        let used = [prefix("198.18.0.0/15"), prefix("fd70:6c61:6974::/48")];
        let subnets = Subnets::choose(&Ranges::default(), 0, &used).expect("others are free");
        assert_eq!(subnets.v4().to_string(), "100.127.0.0/24");
        assert_eq!(subnets.v6().to_string(), "fdb3:91d4:5e0c::/64");
    }

    #[test]
    fn ranges_that_are_given_replace_the_defaults_of_their_family_only() {
        let ranges = Ranges::of(&[Ipv4Addr::new(172, 29, 0, 0).into()]);
        let subnets = Subnets::choose(&ranges, 1, &[]).expect("free");
        assert_eq!(subnets.v4().to_string(), "172.29.1.0/24");
        assert_eq!(subnets.v6().to_string(), "fd70:6c61:6974:1::/64");
        assert!(Subnets::choose(&ranges, 1, &[prefix("172.16.0.0/12")]).is_err(), "no other is tried");
    }

    #[test]
    fn the_addresses_of_paths_without_a_network_are_never_those_of_a_device() {
        let used = [prefix("198.18.0.0/16")];
        let subnets = Subnets::choose(&Ranges::default(), 255, &used).expect("others are free");
        assert_eq!(subnets.v4().to_string(), "100.127.255.0/24");
        assert_eq!(subnets.v6().to_string(), "fd70:6c61:6974:ff::/64");
    }

    #[test]
    fn another_subnet_of_the_same_range_is_no_collision() {
        let subnets = Subnets::choose(&Ranges::default(), 1, &[prefix("198.18.0.0/24")]);
        assert_eq!(subnets.expect("free").v4().to_string(), "198.18.1.0/24");
    }

    #[test]
    fn if_everything_is_used_there_is_an_error() {
        let used = ["198.18.0.0/15", "100.64.0.0/10", "10.0.0.0/8"].map(prefix);
        let error = Subnets::choose(&Ranges::default(), 0, &used).expect_err("nothing left");
        assert!(matches!(error, Error::NoFreeRange));
    }
}
