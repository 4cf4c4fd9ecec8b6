//! The unit on a path: one IP packet.

use bytes::Bytes;
use plait_wire::{Packet, Segment, TcpEmit, Trust};

/// One IP packet, with its receive offload metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The packet.
    pub bytes: Bytes,
    /// Payload bytes per wire segment if receive offload merged several, else 0.
    pub segment_size: u16,
    /// Whether the checksum is to be verified.
    pub trust: Trust,
}

impl Frame {
    /// Returns a packet as it arrives from a wire.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, segment_size: 0, trust: Trust::Verify }
    }

    /// The packet of one wire segment, checksum complete.
    pub fn of_segment(segment: &Segment) -> Self {
        Self::new(emit(segment, TcpEmit::Complete))
    }

    /// Returns the packet of a super-segment as receive offload delivers it.
    pub fn of_train(segment: &Segment) -> Self {
        Self {
            bytes: emit(segment, TcpEmit::Partial),
            segment_size: segment.segment_size,
            trust: Trust::Offloaded,
        }
    }

    /// Returns its TCP segment, if it has a valid one.
    pub fn segment(&self) -> Option<Segment> {
        match Packet::parse(&self.bytes, self.segment_size, self.trust) {
            Ok(Packet::Tcp(segment)) => Some(segment),
            Ok(Packet::Icmp(_)) | Err(_) => None,
        }
    }
}

fn emit(segment: &Segment, checksum: TcpEmit) -> Bytes {
    let mut packet = Vec::with_capacity(segment.header_len() + segment.payload.len());
    segment.emit(0, checksum, &mut packet);
    packet.extend_from_slice(&segment.payload);
    packet.into()
}
