//! ICMP and ICMPv6 errors about a TCP segment of ours (RFC 792, 1191, 4443, 8201).

use base::SeqNum;
use core::net::SocketAddr;

/// An ICMP error, with the part of our segment that it quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// Source of the quoted segment: one of our addresses.
    pub source: SocketAddr,
    /// Destination of the quoted segment.
    pub destination: SocketAddr,
    /// Sequence number of the quoted segment: RFC 5927 wants it inside the window.
    pub seq: SeqNum,
    /// What is wrong.
    pub reason: IcmpReason,
}

/// What an ICMP error says.
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
