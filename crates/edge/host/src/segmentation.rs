//! Cuts super-segments into wire segments with complete checksums: for captures, and for kernels that refuse
//! to do it.

use plait_wire::{Checksum, Flags};

pub(crate) const TCP: u8 = 6;
const TCP_MIN_HEADER: usize = 20;

/// The ends of the headers of a packet, if it is TCP directly after the IP header and not truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Offset of the TCP header.
    pub(crate) transport: usize,
    /// Offset of the payload.
    pub(crate) payload: usize,
    /// Length of the packet as the IP header has it: what lies behind is padding.
    pub(crate) end: usize,
}

impl Layout {
    /// The layout of the IP packet that begins with `head`.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(usize::from(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?])));
        let (transport, protocol, end) = match head.first()? >> 4 {
            4 => (usize::from(head[0] & 0x0f) * 4, *head.get(9)?, number(2)?),
            6 => (40, *head.get(6)?, 40 + number(4)?),
            _ => return None,
        };
        if protocol != TCP || transport < 20 {
            return None;
        }
        let header = usize::from(head.get(transport + 12)? >> 4) * 4;
        let payload = transport + header;
        let fits = header >= TCP_MIN_HEADER && payload <= head.len() && payload <= end;
        fits.then_some(Self { transport, payload, end })
    }
}

/// Calls `each` with every wire segment that `head` and `payload` stand for, cut every `segment_size` bytes.
/// `head` must be headers alone, as [`Layout::of`] finds them; anything else gives no segment at all.
pub(crate) fn wire_segments(head: &[u8], payload: &[u8], segment_size: u16, mut each: impl FnMut(&[u8])) {
    let Some(layout) = Layout::of(head).filter(|layout| layout.payload == head.len()) else { return };
    let step = usize::from(segment_size).max(1);
    let mut packet = Vec::with_capacity(head.len() + step.min(payload.len()));
    let count = payload.len().div_ceil(step).max(1);
    for index in 0..count {
        let start = index * step;
        let part = &payload[start..payload.len().min(start + step)];
        packet.clear();
        packet.extend_from_slice(head);
        packet.extend_from_slice(part);
        fix_ip(&mut packet, index);
        fix_tcp(&mut packet, layout.transport, start, Place { first: index == 0, last: index + 1 == count });
        each(&packet);
    }
}

/// The position of a segment in its train.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
}

/// Length and identification of the IP header, and its checksum.
fn fix_ip(packet: &mut [u8], index: usize) {
    let len = packet.len();
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        return;
    }
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(index as u16);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[10..12].fill(0);
    let header = usize::from(packet[0] & 0x0f) * 4;
    let sum = plait_wire::checksum_of(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Sequence number, flags and checksum of the TCP header at `at`.
fn fix_tcp(packet: &mut [u8], at: usize, offset: usize, place: Place) {
    let (ip, tcp) = packet.split_at_mut(at);
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    let mut flags = Flags::from_header([tcp[12], tcp[13]]);
    if !place.first {
        flags = flags.without(Flags::CWR);
    }
    if !place.last {
        flags = flags.without(Flags::FIN.with(Flags::PSH));
    }
    // The ninth is that of all.
    tcp[13] = flags.0 as u8;
    tcp[16..18].fill(0);
    let mut sum = Checksum::default();
    sum.add(if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] });
    sum.add(&(tcp.len() as u32).to_be_bytes());
    sum.add(&[0, TCP]);
    sum.add(tcp);
    tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plait_wire::{Packet, Segment, Trust};

    fn head(version: u8, flags: u16, options: usize) -> Vec<u8> {
        let mut ip = match version {
            4 => {
                let mut ip = vec![0x45, 0, 0xff, 0xff, 0xff, 0xfe, 0x40, 0, 64, TCP, 0, 0];
                ip.extend([198, 18, 0, 10, 203, 0, 113, 7]);
                ip
            }
            _ => {
                let mut ip = vec![0x60, 0, 0, 0, 0xff, 0xff, TCP, 64];
                ip.extend([0xfd; 16]);
                ip.extend([0x20; 16]);
                ip
            }
        };
        ip.extend([0x80, 0, 0, 80, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1]);
        ip.extend([
            (((20 + options) / 4) << 4) as u8 | (flags >> 8) as u8,
            flags as u8,
            1,
            0,
            0xab,
            0xcd,
            0,
            0,
        ]);
        ip.extend(vec![1; options]);
        ip
    }

    fn cut(version: u8, flags: u16, payload: &[u8], segment_size: u16) -> Vec<Segment> {
        let mut segments = Vec::new();
        wire_segments(&head(version, flags, 12), payload, segment_size, |packet| {
            // The parser verifies lengths and checksums.
            match Packet::parse(&Bytes::copy_from_slice(packet), 0, Trust::Verify).expect("a good packet") {
                Packet::Tcp(segment) => segments.push(segment),
                Packet::Icmp(_) => unreachable!("TCP goes in"),
            }
        });
        segments
    }

    #[test]
    fn the_pieces_are_good_packets_and_add_up_to_the_whole() {
        let payload: Vec<u8> = (0..3001).map(|i| (i % 251) as u8).collect();
        for version in [4, 6] {
            let segments = cut(version, 0x10, &payload, 1000);
            let joined: Vec<u8> = segments.iter().flat_map(|segment| segment.payload.to_vec()).collect();
            assert_eq!(joined, payload);
            let numbers: Vec<u32> = segments.iter().map(|segment| segment.seq.bits()).collect();
            assert_eq!(numbers, [0xffff_ff00, 0x2e8, 0x6d0, 0xab8], "over the wrap");
            assert!(segments.iter().all(|segment| segment.options.len() == 12));
        }
    }

    #[test]
    fn fin_and_psh_stay_on_the_last_piece_and_cwr_on_the_first() {
        let flags = Flags::ACK.with(Flags::FIN).with(Flags::PSH).with(Flags::CWR).0;
        let segments = cut(4, flags, &[7; 2500], 1000);
        let flags: Vec<u16> = segments.iter().map(|segment| segment.flags.0).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }

    #[test]
    fn a_segment_without_payload_is_one_packet() {
        assert_eq!(cut(4, 0x02, &[], 1400).len(), 1);
        assert_eq!(cut(6, 0x11, &[], 1400).len(), 1);
    }

    #[test]
    fn what_is_not_tcp_or_cut_off_has_no_layout() {
        assert_eq!(Layout::of(&[]), None);
        assert_eq!(Layout::of(&[0x45]), None);
        let whole = head(4, 0x10, 12);
        for len in 0..whole.len() {
            assert_eq!(Layout::of(&whole[..len]), None, "{len} bytes");
        }
        let mut udp = whole.clone();
        udp[9] = 17;
        assert_eq!(Layout::of(&udp), None);
        assert_eq!(Layout::of(&whole), Some(Layout { transport: 20, payload: 52, end: 0xffff }));
    }
}
