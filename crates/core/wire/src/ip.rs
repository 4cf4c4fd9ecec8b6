//! IPv4 and IPv6 headers (RFC 791, 8200).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use crate::{Checksum, Malformed, checksum_of};

/// The version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// The family of `address`.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bytes of the header that plait sends: no IPv4 options, no extension headers.
    pub const fn header_len(self) -> usize {
        match self {
            Self::V4 => V4_HEADER,
            Self::V6 => V6_HEADER,
        }
    }
}

/// Upper protocols we look at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// 6.
    Tcp,
    /// 1.
    Icmp,
    /// 58.
    Icmpv6,
}

impl Protocol {
    /// The number in the Protocol or Next Header field.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Icmp => 1,
            Self::Icmpv6 => 58,
        }
    }
}

/// The fields of an IP header that the upper layers need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IpHeader {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Number of the upper protocol.
    pub(crate) protocol: u8,
    /// The two ECN bits.
    pub(crate) ecn: u8,
    /// The flow label of IPv6; 0 in IPv4.
    pub(crate) flow_label: u32,
    /// Where the upper layer lies in the packet.
    pub(crate) payload: Range<usize>,
}

/// Whether all of a packet has to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// Arrived as a packet: lengths and header checksum are verified.
    Whole,
    /// Quoted by an ICMP error: routers cut it off, and translators leave wrong checksums in it.
    Quoted,
}

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// Don't Fragment, in the 16 bits of flags and fragment offset.
const V4_DONT_FRAGMENT: u16 = 0x4000;
/// More Fragments and the offset: both zero in a packet that is not a fragment.
const V4_FRAGMENT: u16 = 0x3fff;
/// The offset alone.
const V4_OFFSET: u16 = 0x1fff;

/// Extension headers of IPv6 that are skipped.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Extension headers in one packet: RFC 8200 names five, and more are not seen.
const MAX_EXTENSIONS: usize = 8;

/// TTL or hop limit of what plait sends: the recommended default (RFC 1700).
const HOP_LIMIT: u8 = 64;

/// DSCP zero, no traffic class beyond the ECN bits.
const ECN_MASK: u8 = 0x03;

/// The flow label has 20 bits (RFC 8200, section 3).
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// Fields of our headers in addition to addresses, protocol and length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The two ECN bits.
    pub(crate) ecn: u8,
    /// Identification of IPv4.
    pub(crate) identification: u16,
    /// Flow label of IPv6.
    pub(crate) flow_label: u32,
}

impl IpHeader {
    /// Takes the IP header off `packet`.
    pub(crate) fn parse(packet: &[u8], extent: Extent) -> Result<Self, Malformed> {
        match packet.first().ok_or(Malformed::Truncated)? >> 4 {
            4 => Self::parse_v4(packet, extent),
            6 => Self::parse_v6(packet, extent),
            _ => Err(Malformed::IpVersion),
        }
    }

    fn parse_v4(packet: &[u8], extent: Extent) -> Result<Self, Malformed> {
        let (fixed, _) = packet.split_first_chunk::<V4_HEADER>().ok_or(Malformed::Truncated)?;
        let header = usize::from(fixed[0] & 0x0f) * 4;
        if header < V4_HEADER {
            return Err(Malformed::HeaderLength);
        }
        let with_options = packet.get(..header).ok_or(Malformed::Truncated)?;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let end = match extent {
            Extent::Whole => {
                if total < header {
                    return Err(Malformed::HeaderLength);
                }
                if total > packet.len() {
                    return Err(Malformed::Truncated);
                }
                if checksum_of(with_options) != 0 {
                    return Err(Malformed::Checksum);
                }
                if fragment & V4_FRAGMENT != 0 {
                    return Err(Malformed::Fragment);
                }
                total
            }
            Extent::Quoted => {
                if fragment & V4_OFFSET != 0 {
                    return Err(Malformed::Fragment);
                }
                packet.len()
            }
        };
        Ok(Self {
            source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]).into(),
            destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]).into(),
            protocol: fixed[9],
            ecn: fixed[1] & ECN_MASK,
            flow_label: 0,
            payload: header..end,
        })
    }

    fn parse_v6(packet: &[u8], extent: Extent) -> Result<Self, Malformed> {
        let (fixed, rest) = packet.split_first_chunk::<8>().ok_or(Malformed::Truncated)?;
        let (source, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Truncated)?;
        let (destination, behind) = rest.split_first_chunk::<16>().ok_or(Malformed::Truncated)?;
        let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let behind = match extent {
            Extent::Whole => behind.get(..length).ok_or(Malformed::Truncated)?,
            Extent::Quoted => behind,
        };
        let (protocol, skipped) = skip_extensions(fixed[6], behind)?;
        Ok(Self {
            source: Ipv6Addr::from(*source).into(),
            destination: Ipv6Addr::from(*destination).into(),
            protocol,
            ecn: (fixed[1] >> 4) & ECN_MASK,
            flow_label: u32::from_be_bytes([0, fixed[1], fixed[2], fixed[3]]) & FLOW_LABEL_MASK,
            payload: V6_HEADER + skipped..V6_HEADER + behind.len(),
        })
    }

    /// Refuses addresses that no packet for us can have: a source that cannot be answered, and a
    /// destination that is not one host (RFC 9293, section 3.9.2.3, MUST-57 and MUST-63).
    pub(crate) fn check_addresses(&self) -> Result<(), Malformed> {
        if is_one_host(&self.source) && is_one_host(&self.destination) {
            Ok(())
        } else {
            Err(Malformed::Address)
        }
    }
}

/// Whether `address` can be that of one host. An IPv4-mapped address has no place in an IPv6 header
/// (RFC 4291, section 2.5.5.2) and would alias a peer of the other family.
#[must_use]
pub fn is_one_host(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && v6.to_ipv4_mapped().is_none(),
    }
}

/// Walks over the extension headers of IPv6, from the Next Header field of the fixed one. Returns the
/// upper protocol, and the bytes of `behind` to skip.
fn skip_extensions(first: u8, behind: &[u8]) -> Result<(u8, usize), Malformed> {
    let (mut next, mut skipped) = (first, 0);
    for _ in 0..MAX_EXTENSIONS {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let rest = behind.get(skipped..).ok_or(Malformed::Truncated)?;
                let header = rest.first_chunk::<4>().ok_or(Malformed::Truncated)?;
                // Segments Left: the packet has not reached the last of its destinations.
                if next == ROUTING && header[3] != 0 {
                    return Err(Malformed::Protocol);
                }
                let length = (usize::from(header[1]) + 1) * 8;
                if length > rest.len() {
                    return Err(Malformed::Truncated);
                }
                next = header[0];
                skipped += length;
            }
            FRAGMENT => return Err(Malformed::Fragment),
            upper => return Ok((upper, skipped)),
        }
    }
    Err(Malformed::HeaderLength)
}

/// Appends an IP header for `length` bytes of upper layer.
///
/// `length` and the header together must fit the 16 bits of the length field; the callers bound them.
pub(crate) fn emit_header(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    marks: Marks,
    length: usize,
    head: &mut Vec<u8>,
) {
    let Marks { ecn, identification, flow_label } = marks;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let start = head.len();
            head.extend([0x45, ecn & ECN_MASK]);
            head.extend(length_field(V4_HEADER + length).to_be_bytes());
            head.extend(identification.to_be_bytes());
            head.extend(V4_DONT_FRAGMENT.to_be_bytes());
            head.extend([HOP_LIMIT, protocol.number(), 0, 0]);
            head.extend(source.octets());
            head.extend(destination.octets());
            let checksum = checksum_of(&head[start..]);
            head[start + V4_CHECKSUM.start..start + V4_CHECKSUM.end].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(_), _) | (_, IpAddr::V6(_)) => {
            let [_, label_high, label_middle, label_low] = (flow_label & FLOW_LABEL_MASK).to_be_bytes();
            head.extend([0x60, (ecn & ECN_MASK) << 4 | label_high, label_middle, label_low]);
            head.extend(length_field(length).to_be_bytes());
            head.extend([protocol.number(), HOP_LIMIT]);
            head.extend(v6_octets(source));
            head.extend(v6_octets(destination));
        }
    }
}

/// Where the header checksum lies.
const V4_CHECKSUM: Range<usize> = 10..12;

/// Both ends have one family; should they not, the mapped form keeps the header well-formed.
fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn length_field(length: usize) -> u16 {
    debug_assert!(length <= usize::from(u16::MAX), "no IP packet holds {length} bytes");
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// The sum of the pseudo-header in front of `length` bytes of `protocol` (RFC 9293, section 3.1; RFC 8200,
/// section 8.1).
pub(crate) fn pseudo_header(
    source: &IpAddr,
    destination: &IpAddr,
    protocol: Protocol,
    length: usize,
) -> Checksum {
    let mut sum = Checksum::default();
    for address in [source, destination] {
        match address {
            IpAddr::V4(v4) => sum.add(&v4.octets()),
            IpAddr::V6(v6) => sum.add(&v6.octets()),
        }
    }
    sum.add_number(length as u64);
    sum.add_number(u64::from(protocol.number()));
    sum
}
