//! A whole IP packet: taken apart once, put together once.

use bytes::Bytes;

use crate::ip::{Extent, IpHeader};
use crate::{IcmpError, IpVersion, Malformed, Protocol, Segment};

/// Whether the transport checksum of an arriving packet still needs a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Verify it.
    Verify,
    /// The kernel has verified it, or it never left this machine (virtio-net `DATA_VALID` or `NEEDS_CSUM`).
    Offloaded,
}

/// The content of an IP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp(Segment),
    /// An ICMP error that quotes a TCP segment.
    Icmp(IcmpError),
}

impl Packet {
    /// Takes an IP packet apart. `segment_size` is the payload size of the wire segments that receive
    /// offload merged, 0 if it merged none. The payload of the result is a slice of `bytes`.
    ///
    /// What lies behind the length in the IP header (a link's padding) is cut off. Fragments are refused.
    /// The IPv4 header checksum is verified whatever `trust` says; it is never offloaded.
    pub fn parse(bytes: &Bytes, segment_size: u16, trust: Trust) -> Result<Self, Malformed> {
        let ip = IpHeader::parse(bytes, Extent::Whole)?;
        let upper = match (IpVersion::of(&ip.source), ip.protocol) {
            (_, TCP) => Protocol::Tcp,
            (IpVersion::V4, ICMP) => Protocol::Icmp,
            (IpVersion::V6, ICMPV6) => Protocol::Icmpv6,
            (IpVersion::V4 | IpVersion::V6, _) => return Err(Malformed::Protocol),
        };
        ip.check_addresses()?;
        match upper {
            Protocol::Tcp => Segment::parse(bytes, &ip, segment_size, trust).map(Self::Tcp),
            Protocol::Icmp | Protocol::Icmpv6 => {
                IcmpError::parse(&ip, &bytes[ip.payload.clone()], upper, trust).map(Self::Icmp)
            }
        }
    }

    /// Takes apart a packet in which captures and simulations show a datagram beside the stream: one of TCP without any flag. `None` if it
    /// is something else, or malformed.
    pub fn datagram_shown(bytes: &Bytes) -> Option<Segment> {
        let ip = IpHeader::parse(bytes, Extent::Whole).ok().filter(|ip| ip.protocol == TCP)?;
        ip.check_addresses().ok()?;
        let segment = Segment::parse_shown(bytes, &ip, 0, Trust::Verify).ok()?;
        segment.is_datagram().then_some(segment)
    }
}

const TCP: u8 = Protocol::Tcp.number();
const ICMP: u8 = Protocol::Icmp.number();
const ICMPV6: u8 = Protocol::Icmpv6.number();
