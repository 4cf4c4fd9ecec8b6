//! From [`Segment`] to the bytes in front of its payload.

use alloc::vec::Vec;

use super::Segment;
use crate::ip::{Marks, emit_header, pseudo_header};
use crate::{Checksum, IpVersion, Protocol};

/// The state of the checksum of an outgoing segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpEmit {
    /// Complete: the bytes can go on a wire as they are.
    Complete,
    /// Pseudo-header sum only: the kernel or the card finishes it (`NEEDS_CSUM`).
    Partial,
}

/// The TCP header without options.
const TCP_HEADER: usize = 20;

/// Where the checksum lies in it.
const CHECKSUM: core::ops::Range<usize> = 16..18;

impl Segment {
    /// Returns the version of its IP header.
    pub const fn ip_version(&self) -> IpVersion {
        IpVersion::of(&self.source.ip())
    }

    /// Bytes of IP and TCP header in front of the payload.
    pub fn header_len(&self) -> usize {
        self.ip_version().header_len() + self.tcp_header_len()
    }

    /// Bytes of the TCP header: options that are not padded to a multiple of four count as if they were.
    fn tcp_header_len(&self) -> usize {
        TCP_HEADER + self.options.len().next_multiple_of(4)
    }

    /// Appends IP and TCP header to `head`; the payload goes behind it, unchanged. `identification` is the
    /// IPv4 identification field. Don't Fragment is set.
    ///
    /// The length fields and the checksum are those of the whole super-segment, as the kernel's send
    /// offload wants them. All of it must fit an IP packet: 65,535 bytes.
    pub fn emit(&self, identification: u16, checksum: TcpEmit, head: &mut Vec<u8>) {
        let (source, destination) = (self.source.ip(), self.destination.ip());
        let tcp_len = self.tcp_header_len() + self.payload.len();
        head.reserve(self.header_len());
        let marks = Marks { ecn: self.ecn, identification, flow_label: self.flow_label };
        emit_header(source, destination, Protocol::Tcp, marks, tcp_len, head);

        let start = head.len();
        self.emit_tcp_header(head);
        let mut sum = pseudo_header(&source, &destination, Protocol::Tcp, tcp_len);
        let field = match checksum {
            TcpEmit::Partial => sum.partial(),
            TcpEmit::Complete => {
                sum.add(&head[start..]);
                sum.add(&self.payload);
                sum.finish()
            }
        };
        head[start + CHECKSUM.start..start + CHECKSUM.end].copy_from_slice(&field.to_be_bytes());
    }

    /// The whole IP packet with its checksums, on its own: for a network that is not a kernel.
    pub fn to_bytes(&self, identification: u16) -> Vec<u8> {
        let mut packet = Vec::with_capacity(self.header_len() + self.payload.len());
        self.emit(identification, TcpEmit::Complete, &mut packet);
        packet.extend_from_slice(&self.payload);
        packet
    }

    /// Sum over the payload alone, as [`crate::data_checksum`] wants it.
    pub fn payload_sum(&self) -> Checksum {
        let mut sum = Checksum::default();
        sum.add(&self.payload);
        sum
    }

    /// The TCP header with a checksum of zero; EOL fills options up to a multiple of four.
    fn emit_tcp_header(&self, head: &mut Vec<u8>) {
        let length = self.tcp_header_len();
        head.extend(self.source.port().to_be_bytes());
        head.extend(self.destination.port().to_be_bytes());
        head.extend(self.seq.bits().to_be_bytes());
        head.extend(self.ack.bits().to_be_bytes());
        // At most 60 bytes: 15 words.
        let [high, low] = self.flags.0.to_be_bytes();
        head.extend([(length as u8 / 4) << 4 | high & 1, low]);
        head.extend(self.window.to_be_bytes());
        head.extend([0, 0]);
        head.extend(self.urgent.to_be_bytes());
        head.extend_from_slice(&self.options);
        head.extend(core::iter::repeat_n(0, length - TCP_HEADER - self.options.len()));
    }
}
