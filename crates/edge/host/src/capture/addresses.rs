//! The addresses and ports in a packet: found in place, and replaced, with the checksums adjusted.
//!
//! A checksum is adjusted for the change (RFC 1624), not computed anew, as the kernel's address translation does it: a checksum that was
//! wrong on the network stays wrong.

use std::net::{IpAddr, SocketAddr};

use plait_pcap::Direction;
use plait_tcp::FourTuple;
use plait_wire::{Checksum, Flags};

use crate::segmentation::{Layout, TCP};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Bytes before the packet that an ICMP error quotes.
const ICMP_HEADER: usize = 8;
/// A TCP header that is quoted up to here has its checksum.
const TO_TCP_CHECKSUM: usize = 18;

/// The place of addresses and ports in a TCP segment, or in the beginning of one in an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Offset of its IP header.
    ip: usize,
    /// Offset of its TCP header.
    tcp: usize,
    /// Offset of the ICMP header of the error that quotes it.
    icmp: Option<usize>,
    /// Whether its source is ours.
    is_ours: bool,
}

impl Place {
    /// Returns the place in a packet of this direction; `None` if it is not TCP, and no error about it.
    pub(super) fn of(packet: &[u8], direction: Direction) -> Option<Self> {
        if let Some(layout) = Layout::of(packet) {
            let is_ours = direction == Direction::Outbound;
            return Some(Self { ip: 0, tcp: layout.transport, icmp: None, is_ours });
        }
        let (icmp, protocol, is_first) = transport_of(packet, 0)?;
        let kind = *packet.get(icmp)?;
        let is_error = match (packet[0] >> 4, protocol) {
            (4, ICMP) => matches!(kind, 3 | 4 | 11 | 12),
            (6, ICMPV6) => kind < 128,
            _ => false,
        };
        if !is_error || !is_first {
            return None;
        }
        let ip = icmp + ICMP_HEADER;
        let (tcp, protocol, is_first) = transport_of(packet, ip)?;
        let is_tcp =
            protocol == TCP && is_first && packet[ip] >> 4 == packet[0] >> 4 && tcp + 4 <= packet.len();
        // The host that gets an ICMP error has sent the quoted packet.
        is_tcp.then_some(Self { ip, tcp, icmp: Some(icmp), is_ours: direction == Direction::Inbound })
    }

    /// The four-tuple of the segment.
    pub(super) fn tuple(self, packet: &[u8]) -> Option<FourTuple> {
        let end = |end| {
            let at = self.tcp + 2 * usize::from(end == End::Destination);
            let port = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
            Some(SocketAddr::new(address_at(packet, self.ip, end)?, port))
        };
        let (source, destination) = (end(End::Source)?, end(End::Destination)?);
        let (local, remote) = if self.is_ours { (source, destination) } else { (destination, source) };
        Some(FourTuple { local, remote })
    }

    /// Whether it opens a connection. One that is quoted does not.
    pub(super) fn begins(self, packet: &[u8]) -> bool {
        let flags = packet.get(self.tcp + 12..self.tcp + 14).filter(|_| self.icmp.is_none());
        flags.is_some_and(|flags| {
            let flags = Flags::from_header([flags[0], flags[1]]);
            flags.contains(Flags::SYN) && !flags.contains(Flags::ACK)
        })
    }

    /// Puts others in their places, of the same family. An error that comes from an address of `kernel` comes from our own then: it has been
    /// on no network.
    pub(super) fn replace(self, packet: &mut [u8], tuple: &FourTuple, kernel: &[IpAddr]) {
        let FourTuple { local, remote } = *tuple;
        let (source, destination) = if self.is_ours { (local, remote) } else { (remote, local) };
        let is_v4 = packet[self.ip] >> 4 == 4;
        if source.is_ipv4() != is_v4 || destination.is_ipv4() != is_v4 {
            return;
        }
        let tcp_sum = (self.tcp + TO_TCP_CHECKSUM <= packet.len()).then_some(self.tcp + 16);
        let ip_sum = is_v4.then_some(self.ip + 10);
        let mut edit = Edit { packet, around: self.icmp.map(|icmp| icmp + 2) };
        for (end, address) in [(End::Source, source), (End::Destination, destination)] {
            let (at, _) = place_of_address(is_v4, end);
            edit.put(self.ip + at, &octets(address.ip()), [ip_sum, tcp_sum]);
            let at = self.tcp + 2 * usize::from(end == End::Destination);
            edit.put(at, &address.port().to_be_bytes(), [tcp_sum, None]);
        }
        // The two ends of the ICMP error itself.
        let Some(icmp) = self.icmp else { return };
        let is_kernel = address_at(packet, 0, End::Source).is_some_and(|from| kernel.contains(&from));
        let ends = [Some(End::Destination), is_kernel.then_some(End::Source)];
        for end in ends.into_iter().flatten() {
            let (at, _) = place_of_address(is_v4, end);
            let sum = if is_v4 { 10 } else { icmp + 2 };
            Edit { packet, around: None }.put(at, &octets(local.ip()), [Some(sum), None]);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Source,
    Destination,
}

/// Bytes that are replaced, and checksums that go with them.
struct Edit<'a> {
    packet: &'a mut [u8],
    /// The checksum that covers all of them, other checksums too.
    around: Option<usize>,
}

impl Edit<'_> {
    /// Puts `new` at an even place that these checksums cover.
    fn put(&mut self, at: usize, new: &[u8], sums: [Option<usize>; 2]) {
        let Some(place) = self.packet.get_mut(at..at + new.len()) else { return };
        let old = place.to_vec();
        place.copy_from_slice(new);
        for sum in sums.into_iter().flatten().chain(self.around) {
            let before = [self.packet[sum], self.packet[sum + 1]];
            let after = changed(before, &old, new);
            self.packet[sum..sum + 2].copy_from_slice(&after);
            if let Some(around) = self.around.filter(|around| *around != sum) {
                let outer = changed([self.packet[around], self.packet[around + 1]], &before, &after);
                self.packet[around..around + 2].copy_from_slice(&outer);
            }
        }
    }
}

/// A checksum once `new` stands where `old` was (RFC 1624, section 3, equation 3).
fn changed(sum: [u8; 2], old: &[u8], new: &[u8]) -> [u8; 2] {
    let inverted = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<_>>();
    let mut whole = Checksum::default();
    whole.add(&inverted(&sum));
    whole.add(&inverted(old));
    whole.add(new);
    whole.finish().to_be_bytes()
}

/// Returns the offset and the protocol of the transport header of the IP packet at `ip`, and whether the packet is no later fragment.
fn transport_of(packet: &[u8], ip: usize) -> Option<(usize, u8, bool)> {
    let first = *packet.get(ip)?;
    match first >> 4 {
        4 => {
            let offset = u16::from_be_bytes([*packet.get(ip + 6)?, *packet.get(ip + 7)?]) & 0x1fff;
            let header = usize::from(first & 0x0f) * 4;
            (header >= 20).then_some((ip + header, *packet.get(ip + 9)?, offset == 0))
        }
        6 => Some((ip + 40, *packet.get(ip + 6)?, true)),
        _ => None,
    }
}

/// Returns the offset and the length of an address in its IP header.
fn place_of_address(is_v4: bool, end: End) -> (usize, usize) {
    match (is_v4, end) {
        (true, End::Source) => (12, 4),
        (true, End::Destination) => (16, 4),
        (false, End::Source) => (8, 16),
        (false, End::Destination) => (24, 16),
    }
}

fn address_at(packet: &[u8], ip: usize, end: End) -> Option<IpAddr> {
    let is_v4 = packet.get(ip)? >> 4 == 4;
    let (at, len) = place_of_address(is_v4, end);
    let bytes = packet.get(ip + at..ip + at + len)?;
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Some(v4.into()),
        Err(_) => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address of ours in the IP header of a packet that goes this way.
pub(super) fn own_address(packet: &[u8], direction: Direction) -> Option<IpAddr> {
    let end = if direction == Direction::Outbound { End::Source } else { End::Destination };
    address_at(packet, 0, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes, Packet, Segment, TcpEmit, Trust, checksum_of};

    fn tuple(local: &str, remote: &str) -> FourTuple {
        let [local, remote] = [local, remote].map(|text| text.parse().expect("an address"));
        FourTuple { local, remote }
    }

    /// Inside and on the network, over both families.
    fn both() -> [[FourTuple; 2]; 2] {
        [
            [tuple("198.18.0.10:4000", "203.0.113.7:443"), tuple("192.0.2.1:61000", "203.0.113.7:443")],
            [
                tuple("[fd70:6c61:6974::a]:4000", "[2001:db8::7]:443"),
                tuple("[2001:db8:1::1]:61000", "[2001:db8::7]:443"),
            ],
        ]
    }

    /// A packet from one to the other, complete.
    fn packet(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let segment = Segment {
            source,
            destination,
            seq: SeqNum::new(77),
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: 100,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::new(),
            segment_size: 1000,
            ecn: 0,
            flow_label: 0,
        };
        let mut bytes = Vec::new();
        segment.emit(0, TcpEmit::Complete, &mut bytes);
        bytes
    }

    /// An error of a router's about `quoted`, complete.
    fn error(about: &[u8], to: IpAddr, quoted: usize) -> Vec<u8> {
        let quoted = &about[..quoted];
        let mut icmp = vec![if to.is_ipv4() { 3 } else { 1 }, 0, 0, 0, 0, 0, 0, 0];
        icmp.extend(quoted);
        let len = icmp.len() as u16;
        let mut whole = match to {
            IpAddr::V4(to) => {
                let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 203, 0, 113, 1];
                ip[2..4].copy_from_slice(&(20 + len).to_be_bytes());
                ip.extend(to.octets());
                let sum = checksum_of(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                ip
            }
            IpAddr::V6(to) => {
                let mut ip = vec![0x60, 0, 0, 0, 0, 0, ICMPV6, 64];
                ip[4..6].copy_from_slice(&len.to_be_bytes());
                ip.extend(std::net::Ipv6Addr::LOCALHOST.octets());
                ip.extend(to.octets());
                ip
            }
        };
        let mut sum = Checksum::default();
        if to.is_ipv6() {
            sum.add(&whole[8..40]);
            sum.add(&[0, 0, (len >> 8) as u8, len as u8, 0, 0, 0, ICMPV6]);
        }
        sum.add(&icmp);
        icmp[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        whole.extend(icmp);
        whole
    }

    /// The same packet behind a translation.
    fn translated(packet: &[u8], direction: Direction, [inside, outside]: [FourTuple; 2]) -> Vec<u8> {
        let place = Place::of(packet, direction).expect("TCP, or about it");
        assert_eq!(place.tuple(packet), Some(inside));
        let mut packet = packet.to_vec();
        place.replace(&mut packet, &outside, &[]);
        packet
    }

    #[test]
    fn a_segment_becomes_the_one_that_is_on_the_network_in_both_directions() {
        for tuples in both() {
            let [inside, outside] = tuples;
            let out = translated(&packet(inside.local, inside.remote), Direction::Outbound, tuples);
            assert_eq!(out, packet(outside.local, outside.remote));
            let back = translated(&packet(inside.remote, inside.local), Direction::Inbound, tuples);
            assert_eq!(back, packet(outside.remote, outside.local));
            assert!(Packet::parse(&back.into(), 0, Trust::Verify).is_ok());
        }
    }

    #[test]
    fn an_error_of_icmp_becomes_the_one_that_came_with_what_it_quotes() {
        for tuples in both() {
            let [inside, outside] = tuples;
            let [near, far] = tuples.map(|tuple| packet(tuple.local, tuple.remote));
            // All of it, and no more than routers have to quote: without the checksum of TCP.
            for quoted in [near.len(), near.len() - 12] {
                let arrived = error(&near, inside.local.ip(), quoted);
                let found = translated(&arrived, Direction::Inbound, tuples);
                assert_eq!(found, error(&far, outside.local.ip(), quoted), "{quoted} bytes are quoted");
            }
        }
    }

    #[test]
    fn that_there_is_no_route_is_told_by_ourselves() {
        for [inside, outside] in both() {
            let near = packet(inside.local, inside.remote);
            let mut error = error(&near, inside.local.ip(), near.len());
            let kernel = address_at(&error, 0, End::Source).expect("an address");
            let place = Place::of(&error, Direction::Inbound).expect("about TCP");
            place.replace(&mut error, &outside, &[kernel]);
            assert_eq!(address_at(&error, 0, End::Source), Some(outside.local.ip()));
            assert!(Packet::parse(&error.into(), 0, Trust::Verify).is_ok(), "its checksums are right");
        }
    }

    #[test]
    fn a_checksum_that_was_wrong_is_as_wrong_on_the_network() {
        let [tuples, _] = both();
        let [inside, outside] = tuples;
        let [mut near, mut far] =
            [packet(inside.remote, inside.local), packet(outside.remote, outside.local)];
        // A bit of the window.
        (near[35], far[35]) = (near[35] ^ 4, far[35] ^ 4);
        assert_eq!(translated(&near, Direction::Inbound, tuples), far);
    }

    #[test]
    fn what_is_no_segment_and_no_error_about_one_is_left_alone() {
        let [[inside, _], _] = both();
        let whole = packet(inside.remote, inside.local);
        let mut udp = whole.clone();
        udp[9] = 17;
        let echo = {
            let mut echo = error(&whole, inside.local.ip(), whole.len());
            echo[20] = 8;
            echo
        };
        let fragment = {
            let mut fragment = error(&whole, inside.local.ip(), whole.len());
            fragment[7] = 1;
            fragment
        };
        for packet in [&udp, &echo, &fragment, &Vec::new()] {
            assert_eq!(Place::of(packet, Direction::Inbound), None);
        }
        let error = error(&whole, inside.local.ip(), whole.len());
        for (bytes, shortest) in [(&whole, whole.len()), (&error, 20 + ICMP_HEADER + 24)] {
            for len in 0..bytes.len() {
                let place = Place::of(&bytes[..len], Direction::Inbound);
                assert_eq!(place.is_some(), len >= shortest, "{len} bytes");
            }
        }
    }
}
