//! The header in front of each packet on the TUN device (virtio 1.2, section 5.1.6): what is left to do, or
//! was left undone, by hardware or its stand-in.

use endpoint::Transmit;
use wire::Trust;

/// Bytes of the header without `num_buffers`, which TUN devices do not use.
pub(crate) const VNET_LEN: usize = 10;

/// The checksum is partial: whoever needs it completes it from `csum_start` on.
const NEEDS_CSUM: u8 = 1;
/// The checksum was verified.
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Beside a GSO type: the first segment has CWR set, the others must not.
const GSO_ECN: u8 = 0x80;

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;
/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;

/// The header as it is. `hdr_len` is written for the kernel and never read: it is a hint that kernels fill in
/// differently, and some not at all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

/// What an arriving packet's header means for the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    /// Payload bytes per merged wire segment, 0 if none were merged.
    pub(crate) segment_size: u16,
    /// Whether the transport checksum can be relied on.
    pub(crate) trust: Trust,
}

impl VnetHeader {
    pub(crate) fn parse(bytes: [u8; VNET_LEN]) -> Self {
        let [flags, gso_type, h0, h1, s0, s1, c0, c1, o0, o1] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([s0, s1]),
            csum_start: u16::from_le_bytes([c0, c1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
        }
    }

    pub(crate) fn emit(self) -> [u8; VNET_LEN] {
        let Self { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset } = self;
        let [h, s] = [hdr_len.to_le_bytes(), gso_size.to_le_bytes()];
        let [c, o] = [csum_start.to_le_bytes(), csum_offset.to_le_bytes()];
        [flags, gso_type, h[0], h[1], s[0], s[1], c[0], c[1], o[0], o[1]]
    }

    /// What the kernel says about a packet of `len` bytes; `None` if it cannot be said of TCP.
    pub(crate) fn received(self, len: usize) -> Option<Received> {
        let segment_size = match self.gso_type & !GSO_ECN {
            GSO_NONE => 0,
            GSO_TCPV4 | GSO_TCPV6 if self.gso_size > 0 && usize::from(self.gso_size) < len => self.gso_size,
            _ => return None,
        };
        let trusted = self.flags & (NEEDS_CSUM | DATA_VALID) != 0;
        Some(Received { segment_size, trust: if trusted { Trust::Offloaded } else { Trust::Verify } })
    }

    /// The header for a packet of ours: the checksum is always left to the kernel, the segmentation where
    /// there is something to cut.
    pub(crate) fn to_send(packet: &Transmit) -> Self {
        let Transmit { head, payload, segment_size, transport_offset, path: _ } = packet;
        let checksum = Self {
            flags: NEEDS_CSUM,
            csum_start: *transport_offset,
            csum_offset: TCP_CHECKSUM,
            ..Self::default()
        };
        if payload.len() <= usize::from(*segment_size) {
            return checksum;
        }
        let family = if head.first().is_some_and(|byte| byte >> 4 == 6) { GSO_TCPV6 } else { GSO_TCPV4 };
        let flags = head.get(usize::from(*transport_offset) + TCP_FLAGS).copied().unwrap_or(0);
        let ecn = if flags & wire::Flags::CWR.0 != 0 { GSO_ECN } else { 0 };
        Self {
            gso_type: family | ecn,
            hdr_len: u16::try_from(head.len()).unwrap_or(u16::MAX),
            gso_size: *segment_size,
            ..checksum
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn transmit(version: u8, flags: u8, payload: usize, segment_size: u16) -> Transmit {
        let mut head = vec![0; 52];
        head[0] = version << 4;
        head[20 + TCP_FLAGS] = flags;
        let payload = Bytes::from(vec![0; payload]);
        Transmit { head, payload, segment_size, transport_offset: 20, path: None }
    }

    #[test]
    fn a_single_segment_leaves_only_the_checksum_to_the_kernel() {
        let header = VnetHeader::to_send(&transmit(4, 0x10, 1400, 1400));
        assert_eq!(header.emit(), [1, 0, 0, 0, 0, 0, 20, 0, 16, 0]);
    }

    #[test]
    fn a_super_segment_says_its_family_and_size() {
        let header = VnetHeader::to_send(&transmit(4, 0x10, 2801, 1400));
        assert_eq!(header.emit(), [1, 1, 52, 0, 0x78, 5, 20, 0, 16, 0]);
        assert_eq!(VnetHeader::to_send(&transmit(6, 0x10, 2801, 1400)).gso_type, GSO_TCPV6);
        assert_eq!(VnetHeader::to_send(&transmit(6, 0x90, 2801, 1400)).gso_type, GSO_TCPV6 | GSO_ECN);
    }

    #[test]
    fn merged_segments_arrive_with_their_size_and_a_checksum_that_was_checked() {
        let header =
            VnetHeader { flags: NEEDS_CSUM, gso_type: GSO_TCPV4, gso_size: 1400, ..VnetHeader::default() };
        let received = header.received(30_000).expect("TCP");
        assert_eq!(received, Received { segment_size: 1400, trust: Trust::Offloaded });
    }

    #[test]
    fn without_a_word_of_the_kernel_the_checksum_is_verified() {
        let received = VnetHeader::default().received(60).expect("a plain packet");
        assert_eq!(received, Received { segment_size: 0, trust: Trust::Verify });
    }

    #[test]
    fn segmentation_of_other_protocols_or_without_a_size_is_refused() {
        let of =
            |gso_type, gso_size| VnetHeader { gso_type, gso_size, ..VnetHeader::default() }.received(3000);
        assert_eq!(of(3, 1400), None, "UDP fragmentation");
        assert_eq!(of(5, 1400), None, "UDP segmentation");
        assert_eq!(of(GSO_TCPV4, 0), None, "no size");
        assert_eq!(of(GSO_TCPV4, 3000), None, "nothing to merge");
    }

    proptest! {
        #[test]
        fn any_ten_bytes_are_read_and_written_back(bytes: [u8; VNET_LEN], len in 0_usize..70_000) {
            let header = VnetHeader::parse(bytes);
            prop_assert_eq!(header.emit(), bytes);
            if let Some(received) = header.received(len) {
                prop_assert!(usize::from(received.segment_size) < len.max(1));
            }
        }
    }
}
