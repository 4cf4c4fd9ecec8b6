//! One TCP segment, or one super-segment of many that differ only in sequence number and payload.

use base::SeqNum;
use bytes::Bytes;
use core::net::SocketAddr;

use crate::OptionBytes;

/// The control bits of the TCP header (RFC 9293, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push: hand the data to the reader without delay.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A TCP segment as a value: what arrived, or what is to be sent.
///
/// A super-segment (`payload` longer than `segment_size`) stands for a train of wire segments with the same
/// header and the same options: receive offload has merged them, or send offload will cut them. FIN and PSH
/// belong to the last of the train, CWR to the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver; same address family as `source`.
    pub destination: SocketAddr,
    /// Sequence number of SYN if set, else of the first byte of payload.
    pub seq: SeqNum,
    /// Acknowledgment number; counts only with [`Flags::ACK`].
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window field as in the header, not scaled.
    pub window: u16,
    /// Urgent pointer; counts only with [`Flags::URG`].
    pub urgent: u16,
    /// All TCP options, padded to a multiple of four with NOP or EOL.
    pub options: OptionBytes,
    /// Data, shared with the buffer it came from or is kept in.
    pub payload: Bytes,
    /// Payload bytes per wire segment; never zero, at least `payload.len()` for a single segment.
    pub segment_size: u16,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
}

impl Segment {
    /// Sequence space it takes: payload, SYN and FIN.
    pub fn len_seq(&self) -> u32 {
        let control =
            u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        self.payload.len() as u32 + control
    }

    /// Wire segments it stands for; one for an empty payload.
    pub fn wire_segments(&self) -> usize {
        self.payload.len().div_ceil(usize::from(self.segment_size.max(1))).max(1)
    }
}

/// How the checksum of an outgoing segment is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpEmit {
    /// Complete: the bytes can go on a wire as they are.
    Complete,
    /// Pseudo-header sum only: the kernel or the card finishes it (`NEEDS_CSUM`).
    Partial,
}

impl Segment {
    /// Bytes of IP and TCP header in front of the payload.
    pub fn header_len(&self) -> usize {
        unimplemented!()
    }

    /// Appends IP and TCP header to `head`; the payload goes behind it, unchanged. `identification` is the
    /// IPv4 identification field (the flow label of IPv6 stays zero). Don't Fragment is set.
    pub fn emit(&self, identification: u16, checksum: TcpEmit, head: &mut Vec<u8>) {
        let _ = (identification, checksum, head);
        unimplemented!()
    }
}
