//! What holds for a packet with its virtio header, as a TUN device hands it out. The fuzz target and the replay of its corpus
//! call the same function, which returns whether it was a TCP segment, so that a corpus can be seen to work.

use bytes::Bytes;
use plait_tun::{VNET_LEN, VnetHeader};
use plait_wire::{Packet, Trust};

/// `[header (10), packet...]`.
pub(crate) fn packet(input: &[u8]) -> bool {
    let Some((header, packet)) = input.split_first_chunk::<VNET_LEN>() else { return false };
    let header = VnetHeader::parse(*header);
    assert_eq!(VnetHeader::parse(header.emit()), header);
    let Some(segment_size) = header.segment_size(packet.len()) else { return false };
    assert!(segment_size == 0 || usize::from(segment_size) < packet.len());
    let trust = if header.is_trusted() { Trust::Offloaded } else { Trust::Verify };
    let Ok(Packet::Tcp(segment)) = Packet::parse(&Bytes::copy_from_slice(packet), segment_size, trust) else {
        return false;
    };
    assert!(segment.segment_size > 0);
    let parts: Vec<_> = segment.split().collect();
    assert!(parts.len() <= segment.payload.len().max(1), "no segment without a byte of its own");
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.payload.to_vec()).collect();
    assert_eq!(bytes, segment.payload);
    true
}
