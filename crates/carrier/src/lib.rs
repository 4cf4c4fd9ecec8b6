//! What carries the segments of an endpoint.
//!
//! An endpoint takes and gives TCP segments with addresses; how they reach the other host is a carrier's business. There are two.
//! One puts each segment, or each super-segment, into an IP packet: [`IpPacket`] writes it in the form that a
//! TUN device takes, and [`plait_wire::Packet::parse`] takes an arriving one apart. The other puts it into datagrams of UDP
//! ([`tcp_in_udp`]), which need no privilege and pass where options of TCP do not. What is none of ours ends here and is
//! counted ([`MalformedCounts`]).

mod ip_packet;
mod malformed;
pub mod tcp_in_udp;

pub use ip_packet::IpPacket;
pub use malformed::MalformedCounts;
