//! The header in front of each packet on a TUN device (virtio 1.2, section 5.1.6): what is left to do, or
//! was left undone, by hardware or its stand-in.

/// Bytes of the header without `num_buffers`, which TUN devices do not use.
pub const VNET_LEN: usize = 10;

/// The checksum is partial: the receiver completes it from `csum_start` on.
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
/// Offset of the flags in a TCP header, and the one that matters here.
const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;

/// The header as it is. `hdr_len` is written for the kernel and never read: it is a hint that kernels fill in
/// differently, and some not at all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VnetHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl VnetHeader {
    /// As it was read; its numbers are little-endian.
    #[must_use]
    pub fn parse(bytes: [u8; VNET_LEN]) -> Self {
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

    /// As it is written.
    #[must_use]
    pub fn emit(self) -> [u8; VNET_LEN] {
        let Self { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset } = self;
        let [h, s] = [hdr_len.to_le_bytes(), gso_size.to_le_bytes()];
        let [c, o] = [csum_start.to_le_bytes(), csum_offset.to_le_bytes()];
        [flags, gso_type, h[0], h[1], s[0], s[1], c[0], c[1], o[0], o[1]]
    }

    /// The header of a TCP packet of ours, with a checksum that the kernel completes. `head` is its IP and TCP header,
    /// the latter from `transport` on; `segment_size` is set if the kernel must cut it into segments of this many
    /// payload bytes.
    #[must_use]
    pub fn partial(head: &[u8], transport: u16, segment_size: Option<u16>) -> Self {
        let checksum =
            Self { flags: NEEDS_CSUM, csum_start: transport, csum_offset: TCP_CHECKSUM, ..Self::default() };
        let Some(gso_size) = segment_size else { return checksum };
        let family = if head.first().is_some_and(|byte| byte >> 4 == 6) { GSO_TCPV6 } else { GSO_TCPV4 };
        let flags = head.get(usize::from(transport) + TCP_FLAGS).copied().unwrap_or(0);
        let ecn = if flags & TCP_CWR != 0 { GSO_ECN } else { 0 };
        let hdr_len = u16::try_from(head.len()).unwrap_or(u16::MAX);
        Self { gso_type: family | ecn, hdr_len, gso_size, ..checksum }
    }

    /// Whether the receiver must complete the checksum.
    #[must_use]
    pub const fn is_partial(self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Whether the checksum can be relied on: it was verified, or has never been on a wire.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        self.flags & (NEEDS_CSUM | DATA_VALID) != 0
    }

    /// Payload bytes per merged TCP segment, 0 for a packet that is none but itself. `None` if this can be the header
    /// of no TCP packet of `len` bytes: segmentation of another protocol, or without a size that cuts anything.
    #[must_use]
    pub fn segment_size(self, len: usize) -> Option<u16> {
        match self.gso_type & !GSO_ECN {
            GSO_NONE => Some(0),
            GSO_TCPV4 | GSO_TCPV6 => {
                (self.gso_size > 0 && usize::from(self.gso_size) < len).then_some(self.gso_size)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(version: u8, flags: u8) -> [u8; 52] {
        let mut head = [0; 52];
        head[0] = version << 4;
        head[20 + TCP_FLAGS] = flags;
        head
    }

    #[test]
    fn a_single_segment_leaves_only_the_checksum_to_the_kernel() {
        let header = VnetHeader::partial(&head(4, 0x10), 20, None);
        assert_eq!(header.emit(), [1, 0, 0, 0, 0, 0, 20, 0, 16, 0]);
    }

    #[test]
    fn a_super_segment_says_its_family_and_size() {
        let header = VnetHeader::partial(&head(4, 0x10), 20, Some(1400));
        assert_eq!(header.emit(), [1, 1, 52, 0, 0x78, 5, 20, 0, 16, 0]);
        assert_eq!(VnetHeader::partial(&head(6, 0x10), 20, Some(1400)).gso_type, GSO_TCPV6);
        assert_eq!(VnetHeader::partial(&head(6, 0x90), 20, Some(1400)).gso_type, GSO_TCPV6 | GSO_ECN);
    }

    #[test]
    fn merged_segments_arrive_with_their_size_and_a_checksum_that_was_checked() {
        let header =
            VnetHeader { flags: NEEDS_CSUM, gso_type: GSO_TCPV4, gso_size: 1400, ..VnetHeader::default() };
        assert_eq!(header.segment_size(30_000), Some(1400));
        assert!(header.is_trusted());
    }

    #[test]
    fn without_a_word_of_the_kernel_the_checksum_is_not_to_be_relied_on() {
        let header = VnetHeader::default();
        assert_eq!(header.segment_size(60), Some(0));
        assert!(!header.is_trusted());
    }

    #[test]
    fn segmentation_of_other_protocols_or_without_a_size_is_refused() {
        let of = |gso_type, gso_size| {
            VnetHeader { gso_type, gso_size, ..VnetHeader::default() }.segment_size(3000)
        };
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
            if let Some(size) = header.segment_size(len) {
                prop_assert!(usize::from(size) < len.max(1));
            }
        }
    }
}
