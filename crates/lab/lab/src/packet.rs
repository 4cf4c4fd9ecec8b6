//! Packets of a TUN device, in either direction: possibly super-segments with partial checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;
use plait_base::SeqNum;
use plait_tun::VnetHeader;
use plait_wire::{Flags, Packet, Segment, TcpEmit, Trust};

const TCP: u8 = 6;

/// One packet or super-segment.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The packet; the bytes after `length` are left from before.
    buffer: Vec<u8>,
    length: usize,
    pub(crate) vnet: VnetHeader,
    /// It came as a datagram of UDP that carries this segment.
    pub(crate) over_udp: bool,
}

impl Frame {
    pub(crate) fn new(buffer: Vec<u8>, length: usize, vnet: VnetHeader) -> Self {
        debug_assert!(length <= buffer.len());
        Self { buffer, length, vnet, over_udp: false }
    }

    /// A single packet with its checksums complete.
    pub(crate) fn complete(bytes: Vec<u8>) -> Self {
        Self::new(bytes, 0, VnetHeader::default()).whole()
    }

    fn whole(mut self) -> Self {
        self.length = self.buffer.len();
        self
    }

    /// Returns a segment of ours. A single one gets a complete checksum, so that the receiver verifies it; for a super-segment the
    /// kernel, which cuts it, computes the checksums.
    pub(crate) fn from_segment(segment: &Segment) -> Self {
        if segment.wire_segments() == 1 {
            return Self::complete(segment.to_bytes(0));
        }
        let mut bytes = Vec::with_capacity(segment.header_len() + segment.payload.len());
        segment.emit(0, TcpEmit::Partial, &mut bytes);
        let transport = segment.ip_version().header_len();
        let vnet = VnetHeader::partial(&bytes, transport as u16, Some(segment.segment_size));
        bytes.extend_from_slice(&segment.payload);
        Self::new(bytes, 0, vnet).whole()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.length]
    }

    /// Returns the buffer for reuse.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Parses the packet as a TCP segment with a copy of its payload; `None` if it is not one.
    pub(crate) fn to_segment(&self) -> Option<Segment> {
        let size = self.vnet.segment_size(self.length).unwrap_or(0);
        match Packet::parse(&Bytes::copy_from_slice(self.bytes()), size, Trust::Offloaded) {
            Ok(Packet::Tcp(segment)) => Some(segment),
            Ok(Packet::Icmp(_)) | Err(_) => None,
        }
    }

    /// Its headers, if it is TCP.
    pub(crate) fn tcp(&self) -> Option<TcpView<'_>> {
        TcpView::of(self.bytes())
    }

    /// The number of its packets on a wire, and the bytes of all and of the longest of them, from the IP header upwards.
    pub(crate) fn on_wire(&self) -> OnWire {
        let length = self.length as u32;
        let one = OnWire { packets: 1, bytes: length, longest: length };
        let (Some(size @ 1..), Some(tcp)) = (self.vnet.segment_size(self.length), self.tcp()) else {
            return one;
        };
        let (header, payload) = (tcp.payload.start as u32, tcp.payload.len() as u32);
        let packets = payload.div_ceil(u32::from(size)).max(1);
        OnWire { packets, bytes: payload + packets * header, longest: header + payload.min(u32::from(size)) }
    }
}

/// The packets of a frame after the cut by the network card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OnWire {
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    pub(crate) longest: u32,
}

/// The headers of a TCP packet, read in place.
#[derive(Clone, Debug)]
pub(crate) struct TcpView<'a> {
    bytes: &'a [u8],
    transport: usize,
    /// The range of the payload in the packet.
    payload: Range<usize>,
}

impl<'a> TcpView<'a> {
    /// `None` if the packet is not TCP directly behind the IP header, a fragment, or cut off.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let number =
            |at: usize| Some(usize::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
        let (transport, protocol, end) = match bytes.first()? >> 4 {
            4 if number(6)? & 0x3fff == 0 => (usize::from(bytes[0] & 0x0f) * 4, *bytes.get(9)?, number(2)?),
            6 => (40, *bytes.get(6)?, 40 + number(4)?),
            _ => return None,
        };
        if protocol != TCP || transport < 20 {
            return None;
        }
        let header = usize::from(bytes.get(transport + 12)? >> 4) * 4;
        let start = transport + header;
        // Some kernels leave the length of a large super-segment at zero.
        let end = if end <= start { bytes.len() } else { end.min(bytes.len()) };
        (header >= 20 && start <= end).then_some(Self { bytes, transport, payload: start..end })
    }

    pub(crate) fn source(&self) -> SocketAddr {
        self.address(12, 8, 0)
    }

    pub(crate) fn destination(&self) -> SocketAddr {
        self.address(16, 24, 2)
    }

    /// The address at `v4` or `v6` of the IP header, with the port at `port` of the TCP header.
    fn address(&self, v4: usize, v6: usize, port: usize) -> SocketAddr {
        let ip: IpAddr = if self.bytes[0] >> 4 == 4 {
            let mut octets = [0; 4];
            octets.copy_from_slice(&self.bytes[v4..v4 + 4]);
            Ipv4Addr::from(octets).into()
        } else {
            let mut octets = [0; 16];
            octets.copy_from_slice(&self.bytes[v6..v6 + 16]);
            Ipv6Addr::from(octets).into()
        };
        SocketAddr::new(ip, u16::from_be_bytes([self.tcp(port), self.tcp(port + 1)]))
    }

    fn tcp(&self, at: usize) -> u8 {
        self.bytes[self.transport + at]
    }

    pub(crate) fn seq(&self) -> SeqNum {
        SeqNum::new(u32::from_be_bytes([self.tcp(4), self.tcp(5), self.tcp(6), self.tcp(7)]))
    }

    pub(crate) fn flags(&self) -> Flags {
        Flags::from_header([self.tcp(12), self.tcp(13)])
    }

    pub(crate) fn options(&self) -> &'a [u8] {
        &self.bytes[self.transport + 20..self.payload.start]
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload.clone()]
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags().contains(Flags::SYN)
    }
}

/// Returns the packets of a frame on the wire, with complete checksums: for captures, and for random decisions about each packet
/// alone.
pub(crate) fn wire_packets(frame: &Frame) -> Vec<Vec<u8>> {
    if matches!(frame.vnet.segment_size(frame.length), None | Some(0)) && !frame.vnet.is_partial() {
        return vec![frame.bytes().to_vec()];
    }
    match frame.to_segment() {
        Some(segment) => segment.split().map(|one| one.to_bytes(0)).collect(),
        // UDP with a partial checksum.
        None => vec![frame.bytes().to_vec()],
    }
}

/// A part of a super-segment: wire segments `from` to `to`, `to` excluded.
pub(crate) fn part(segment: &Segment, from: usize, to: usize) -> Option<Segment> {
    let count = segment.wire_segments();
    let to = to.min(count);
    if from >= to {
        return None;
    }
    let step = usize::from(segment.segment_size.max(1));
    let (start, end) = (from * step, (to * step).min(segment.payload.len()));
    let mut part = segment.clone();
    part.payload = segment.payload.slice(start..end);
    part.seq = segment.seq + start as u32;
    if from > 0 {
        part.flags = part.flags.without(Flags::CWR).without(Flags::URG);
    }
    if to < count {
        part.flags = part.flags.without(Flags::FIN.with(Flags::PSH));
    }
    Some(part)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use plait_wire::OptionBytes;

    pub(crate) fn segment(payload: &[u8], segment_size: u16) -> Segment {
        Segment {
            source: "10.77.0.1:1000".parse().expect("an address"),
            destination: "10.77.0.2:2000".parse().expect("an address"),
            seq: SeqNum::new(u32::MAX - 1500),
            ack: SeqNum::new(7),
            flags: Flags::ACK.with(Flags::PSH),
            window: 512,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::copy_from_slice(payload),
            segment_size,
            ecn: 0,
            flow_label: 0,
        }
    }

    #[test]
    fn a_super_segment_keeps_its_size_and_is_counted_as_its_packets() {
        let frame = Frame::from_segment(&segment(&[7; 3001], 1000));
        assert_eq!(frame.vnet.segment_size(frame.length), Some(1000));
        assert!(frame.vnet.is_partial());
        assert_eq!(frame.on_wire(), OnWire { packets: 4, bytes: 3001 + 4 * 40, longest: 1040 });
        let packets = wire_packets(&frame);
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [1040, 1040, 1040, 41]);
        for packet in packets {
            Packet::parse(&packet.into(), 0, Trust::Verify).expect("complete checksums");
        }
    }

    #[test]
    fn a_single_segment_has_a_checksum_of_its_own() {
        let frame = Frame::from_segment(&segment(&[7; 100], 1000));
        assert!(!frame.vnet.is_partial());
        Packet::parse(&Bytes::copy_from_slice(frame.bytes()), 0, Trust::Verify).expect("verified");
    }

    #[test]
    fn a_view_reads_what_the_parser_reads_in_both_families() {
        for (from, to) in [("10.77.0.1:1000", "10.77.0.2:2000"), ("[fd77::1]:1000", "[fd77::2]:2000")] {
            let mut written = segment(b"hello", 1000);
            written.source = from.parse().expect("an address");
            written.destination = to.parse().expect("an address");
            let frame = Frame::from_segment(&written);
            let view = frame.tcp().expect("TCP");
            assert_eq!((view.source(), view.destination()), (written.source, written.destination));
            assert_eq!(
                (view.seq(), view.flags(), view.payload()),
                (written.seq, written.flags, &b"hello"[..])
            );
            for length in 0..frame.bytes().len() - 5 {
                assert!(TcpView::of(&frame.bytes()[..length]).is_none(), "{length} bytes");
            }
        }
    }

    #[test]
    fn parts_of_a_super_segment_add_up_to_it() {
        let whole = segment(&(0..3001).map(|i| i as u8).collect::<Vec<_>>(), 1000);
        for cut in 0..=4 {
            let parts: Vec<_> = [part(&whole, 0, cut), part(&whole, cut, 4)].into_iter().flatten().collect();
            let joined: Vec<u8> = parts.iter().flat_map(|part| part.payload.to_vec()).collect();
            assert_eq!(joined, whole.payload);
            assert_eq!(parts.last().map(|last| last.flags), Some(whole.flags), "PSH on the last");
            if cut == 2 {
                assert_eq!((parts[0].flags, parts[1].seq), (Flags::ACK, whole.seq + 2000));
            }
        }
    }
}
