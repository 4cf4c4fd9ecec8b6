//! Carriers of the segments of an endpoint.
//!
//! An endpoint takes and returns TCP segments with addresses. A carrier transports them to the other host. There are two. One puts each
//! segment, or each super-segment, into an IP packet: [`IpPacket`] writes it in the format of a TUN device, and
//! [`plait_wire::Packet::parse`] parses an arriving one. The other puts it into UDP datagrams ([`tcp_in_udp`]), which need no privilege and
//! pass where TCP options do not. Foreign packets are dropped here and counted ([`MalformedCounts`]).

mod ip_packet;
mod malformed;
pub mod tcp_in_udp;

pub use ip_packet::IpPacket;
pub use malformed::MalformedCounts;
