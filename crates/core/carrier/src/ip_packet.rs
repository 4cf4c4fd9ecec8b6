//! The IP packet of a segment, headers and payload apart.

use bytes::Bytes;
use plait_wire::{Segment, TcpEmit};

/// A packet to be sent: headers here, payload where it is kept. Written again and again, it keeps its allocation.
#[derive(Default, Debug)]
pub struct IpPacket {
    /// IP and TCP header; the TCP checksum is the pseudo-header sum only ([`TcpEmit::Partial`]).
    pub head: Vec<u8>,
    /// The bytes behind it.
    pub payload: Bytes,
    /// Payload bytes per wire segment; at least `payload.len()` if it is a single segment.
    pub segment_size: u16,
    /// Offset of the TCP header in `head`, for the checksum offload.
    pub transport_offset: u16,
}

impl IpPacket {
    /// Becomes the packet of `segment`; the payload is not copied.
    pub fn write(&mut self, segment: Segment) {
        self.head.clear();
        // Packets of ours are never fragmented, so that the identification says nothing (RFC 6864, section
        // 4.1); a counter would tell an observer of two paths that they belong together.
        segment.emit(0, TcpEmit::Partial, &mut self.head);
        self.transport_offset = segment.ip_version().header_len() as u16;
        self.segment_size = segment.segment_size;
        self.payload = segment.payload;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes, Packet, Trust};

    #[test]
    fn a_segment_that_was_written_is_read_again_over_both_families() {
        let mut packet = IpPacket::default();
        for (source, destination, transport_offset) in
            [("192.0.2.1:80", "192.0.2.2:9", 20), ("[2001:db8::1]:80", "[2001:db8::2]:9", 40)]
        {
            let segment = Segment {
                source: source.parse().expect("an address"),
                destination: destination.parse().expect("an address"),
                seq: SeqNum::new(u32::MAX),
                ack: SeqNum::new(77),
                flags: Flags::ACK.with(Flags::PSH),
                window: 100,
                urgent: 0,
                options: OptionBytes::new(),
                payload: Bytes::from(vec![7; 3000]),
                segment_size: 1400,
                ecn: 0,
                flow_label: 0,
            };
            packet.write(segment.clone());
            assert_eq!((packet.transport_offset, packet.segment_size), (transport_offset, 1400));
            assert_eq!(packet.payload.as_ptr(), segment.payload.as_ptr(), "the payload is not copied");
            let whole = Bytes::from([&packet.head[..], &packet.payload[..]].concat());
            let read = Packet::parse(&whole, packet.segment_size, Trust::Offloaded);
            assert_eq!(read, Ok(Packet::Tcp(segment)));
        }
    }
}
