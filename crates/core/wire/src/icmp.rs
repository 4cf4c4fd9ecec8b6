//! ICMP and ICMPv6 errors about a TCP segment of ours (RFC 792, 1191, 4443, 8201).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use plait_base::SeqNum;

use crate::ip::{Extent, IpHeader, Marks, emit_header, pseudo_header};
use crate::{Checksum, IpVersion, Malformed, Protocol, Trust};

/// An ICMP error, with the part of our segment that it quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// Source of the quoted segment: one of our addresses.
    pub source: SocketAddr,
    /// Destination of the quoted segment.
    pub destination: SocketAddr,
    /// Sequence number of the quoted segment: RFC 5927 wants it inside the window.
    pub seq: SeqNum,
    /// The reported problem.
    pub reason: IcmpReason,
}

/// The problem that an ICMP error reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpReason {
    /// Fragmentation needed, packet too big. `mtu` is 0 where an old router gives none.
    TooBig {
        /// MTU of the next hop, in bytes, IP header included.
        mtu: u32,
    },
    /// Host, network, port or protocol unreachable, or administratively prohibited; code as on the wire.
    Unreachable {
        /// The code.
        code: u8,
    },
    /// TTL or hop limit exceeded in transit.
    TimeExceeded,
    /// Parameter problem.
    ParameterProblem,
}

/// Type, code, checksum and four bytes that depend on the type.
const ICMP_HEADER: usize = 8;

/// Where the checksum lies.
const CHECKSUM: core::ops::Range<usize> = 2..4;

/// The types of ICMP (RFC 792).
mod v4 {
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const TIME_EXCEEDED: u8 = 11;
    pub(super) const PARAMETER_PROBLEM: u8 = 12;
    /// Code of UNREACHABLE: fragmentation needed and DF set.
    pub(super) const TOO_BIG: u8 = 4;
    /// Longest error with its IP header (RFC 1812, section 4.3.2.3).
    pub(super) const MAX_PACKET: usize = 576;
}

/// The types of ICMPv6 (RFC 4443).
mod v6 {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
    /// Longest error with its IP header (RFC 4443, section 2.4(c)): the smallest MTU of IPv6.
    pub(super) const MAX_PACKET: usize = 1280;
}

impl IcmpError {
    /// The error in `message`, which `ip` carries.
    pub(crate) fn parse(
        ip: &IpHeader,
        message: &[u8],
        protocol: Protocol,
        trust: Trust,
    ) -> Result<Self, Malformed> {
        let (header, quoted) = message.split_first_chunk::<ICMP_HEADER>().ok_or(Malformed::Truncated)?;
        match trust {
            Trust::Verify => verify(ip, message, protocol)?,
            Trust::Offloaded => {}
        }
        let version = IpVersion::of(&ip.source);
        let reason = IcmpReason::parse(version, header).ok_or(Malformed::Protocol)?;
        let quoted_ip = IpHeader::parse(quoted, Extent::Quoted)?;
        if IpVersion::of(&quoted_ip.source) != version {
            return Err(Malformed::IpVersion);
        }
        if quoted_ip.protocol != Protocol::Tcp.number() {
            return Err(Malformed::Protocol);
        }
        // RFC 792 promises eight bytes behind the IP header: ports and sequence number.
        let tcp = quoted[quoted_ip.payload].first_chunk::<8>().ok_or(Malformed::Truncated)?;
        Ok(Self {
            source: SocketAddr::new(quoted_ip.source, u16::from_be_bytes([tcp[0], tcp[1]])),
            destination: SocketAddr::new(quoted_ip.destination, u16::from_be_bytes([tcp[2], tcp[3]])),
            seq: SeqNum::new(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])),
            reason,
        })
    }
}

fn verify(ip: &IpHeader, message: &[u8], protocol: Protocol) -> Result<(), Malformed> {
    let mut sum = message_sum(&ip.source, &ip.destination, protocol, message.len());
    sum.add(message);
    if sum.fits() { Ok(()) } else { Err(Malformed::Checksum) }
}

/// What the checksum covers in front of the message: nothing in ICMP, the pseudo-header in ICMPv6.
fn message_sum(source: &IpAddr, destination: &IpAddr, protocol: Protocol, length: usize) -> Checksum {
    match protocol {
        Protocol::Icmp => Checksum::default(),
        Protocol::Icmpv6 | Protocol::Tcp => pseudo_header(source, destination, protocol, length),
    }
}

impl IcmpReason {
    /// The reason in an ICMP header; `None` if it is not an error that concerns a segment.
    fn parse(version: IpVersion, header: &[u8; ICMP_HEADER]) -> Option<Self> {
        let [kind, code, _, _, a, b, c, d] = *header;
        let mtu = match version {
            // RFC 1191, section 4: the MTU is in the low half, the high half is unused.
            IpVersion::V4 => u32::from(u16::from_be_bytes([c, d])),
            IpVersion::V6 => u32::from_be_bytes([a, b, c, d]),
        };
        Self::of(version, kind, code, mtu)
    }

    /// The reason that type and code of ICMP, or of ICMPv6, stand for; `None` if it is not an error that concerns a segment. `mtu` is
    /// that of the next hop where the error has one.
    pub fn of(version: IpVersion, kind: u8, code: u8, mtu: u32) -> Option<Self> {
        match (version, kind) {
            (IpVersion::V4, v4::UNREACHABLE) if code == v4::TOO_BIG => Some(Self::TooBig { mtu }),
            (IpVersion::V6, v6::TOO_BIG) => Some(Self::TooBig { mtu }),
            (IpVersion::V4, v4::UNREACHABLE) | (IpVersion::V6, v6::UNREACHABLE) => {
                Some(Self::Unreachable { code })
            }
            (IpVersion::V4, v4::TIME_EXCEEDED) | (IpVersion::V6, v6::TIME_EXCEEDED) => {
                Some(Self::TimeExceeded)
            }
            (IpVersion::V4, v4::PARAMETER_PROBLEM) | (IpVersion::V6, v6::PARAMETER_PROBLEM) => {
                Some(Self::ParameterProblem)
            }
            (IpVersion::V4 | IpVersion::V6, _) => None,
        }
    }

    /// Type, code, and the four bytes behind the checksum.
    fn header(self, version: IpVersion) -> (u8, u8, u32) {
        match (version, self) {
            (IpVersion::V4, Self::TooBig { mtu }) => (v4::UNREACHABLE, v4::TOO_BIG, mtu.min(0xffff)),
            (IpVersion::V4, Self::Unreachable { code }) => (v4::UNREACHABLE, code, 0),
            (IpVersion::V4, Self::TimeExceeded) => (v4::TIME_EXCEEDED, 0, 0),
            (IpVersion::V4, Self::ParameterProblem) => (v4::PARAMETER_PROBLEM, 0, 0),
            (IpVersion::V6, Self::TooBig { mtu }) => (v6::TOO_BIG, 0, mtu),
            (IpVersion::V6, Self::Unreachable { code }) => (v6::UNREACHABLE, code, 0),
            (IpVersion::V6, Self::TimeExceeded) => (v6::TIME_EXCEEDED, 0, 0),
            (IpVersion::V6, Self::ParameterProblem) => (v6::PARAMETER_PROBLEM, 0, 0),
        }
    }
}

/// The whole packet of an ICMP or ICMPv6 error that a router at `from` sends about the packet `quoted`, to
/// its source; as much of it is quoted as the RFCs allow. For simulated routers.
///
/// An error if `quoted` does not begin with an IP header, or with one of another family than `from`.
pub fn icmp_error(reason: IcmpReason, from: IpAddr, quoted: &[u8]) -> Result<Vec<u8>, Malformed> {
    let to = IpHeader::parse(quoted, Extent::Quoted)?.source;
    let version = IpVersion::of(&to);
    if version != IpVersion::of(&from) {
        return Err(Malformed::IpVersion);
    }
    let (protocol, max_packet) = match version {
        IpVersion::V4 => (Protocol::Icmp, v4::MAX_PACKET),
        IpVersion::V6 => (Protocol::Icmpv6, v6::MAX_PACKET),
    };
    let quoted = &quoted[..quoted.len().min(max_packet - version.header_len() - ICMP_HEADER)];
    let length = ICMP_HEADER + quoted.len();
    let mut packet = Vec::with_capacity(version.header_len() + length);
    emit_header(from, to, protocol, Marks::default(), length, &mut packet);

    let start = packet.len();
    let (kind, code, rest) = reason.header(version);
    packet.extend([kind, code, 0, 0]);
    packet.extend(rest.to_be_bytes());
    packet.extend_from_slice(quoted);
    let mut sum = message_sum(&from, &to, protocol, length);
    sum.add(&packet[start..]);
    packet[start + CHECKSUM.start..start + CHECKSUM.end].copy_from_slice(&sum.finish().to_be_bytes());
    Ok(packet)
}
