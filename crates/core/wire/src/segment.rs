//! One TCP segment, or one super-segment of many that differ only in sequence number and payload.

mod emit;
mod parse;

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::SeqNum;

use crate::OptionBytes;

pub use emit::TcpEmit;

/// The control bits of the TCP header (RFC 9293, section 3.1), in the low nine bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flags(pub u16);

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
    /// Accurate ECN (RFC 9768); with CWR and ECE a number of three bits, ACE.
    pub const AE: Self = Self(0x100);

    /// Whether some TCP sends them: one of SYN, ACK and RST, and no SYN together with FIN or RST.
    pub const fn are_possible(self) -> bool {
        let is_something = self.contains(Self::SYN) || self.contains(Self::ACK) || self.contains(Self::RST);
        let is_contradiction =
            self.contains(Self::SYN) && (self.contains(Self::FIN) || self.contains(Self::RST));
        is_something && !is_contradiction
    }

    /// Those of a TCP header, from its thirteenth byte on; the bits that are reserved are left out.
    pub const fn from_header(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes([bytes[0] & 1, bytes[1]]))
    }

    /// With ACE at `number`, of which the low three bits count (RFC 9768, section 3.1.1).
    pub const fn with_ace(self, number: u8) -> Self {
        Self(self.0 | (number as u16 & 7) << 6)
    }

    /// ACE: AE is its highest bit and ECE its lowest.
    pub const fn ace(self) -> u8 {
        (self.0 >> 6 & 7) as u8
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A TCP segment as a value: what arrived, or what is to be sent.
///
/// A super-segment (`payload` longer than `segment_size`; a GSO or GRO packet in Linux) stands for a train of wire segments with the same
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
    /// The flow label of the IPv6 header (RFC 6437): 20 bits, 0 for none, and 0 over IPv4. The label of an arriving segment is not trusted:
    /// any router on the path can change it.
    pub flow_label: u32,
}

impl Segment {
    /// A datagram beside the stream, sealed and with its header: a segment without any flag, which TCP never sends. A carrier over UDP sends
    /// its payload as it is. Over TCP there is no such segment: [`Packet::parse`](crate::Packet::parse) refuses it.
    pub fn datagram(source: SocketAddr, destination: SocketAddr, ecn: u8, payload: Bytes) -> Self {
        // No datagram of UDP is longer than 65,535 bytes.
        let segment_size = payload.len().clamp(1, usize::from(u16::MAX)) as u16;
        Self {
            source,
            destination,
            seq: SeqNum::new(0),
            ack: SeqNum::new(0),
            flags: Flags(0),
            window: 0,
            urgent: 0,
            options: OptionBytes::new(),
            payload,
            segment_size,
            ecn,
            flow_label: 0,
        }
    }

    /// Whether it is a datagram beside the stream.
    pub fn is_datagram(&self) -> bool {
        self.flags == Flags(0)
    }

    /// Sequence space it takes: payload, SYN and FIN.
    pub fn len_seq(&self) -> u32 {
        let control = u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        self.payload.len() as u32 + control
    }

    /// Wire segments it stands for; one for an empty payload.
    pub fn wire_segments(&self) -> usize {
        self.payload.len().div_ceil(usize::from(self.segment_size.max(1))).max(1)
    }
}

impl Segment {
    /// The wire segments it stands for, in order, as send offload cuts them: FIN and PSH on the last, CWR
    /// on the first, the same options on all. The payloads are slices, nothing is copied. A super-segment
    /// with SYN does not exist.
    pub fn split(&self) -> impl Iterator<Item = Self> + '_ {
        let count = self.wire_segments();
        (0..count).map(move |index| self.wire_segment(index, index + 1 == count))
    }

    fn wire_segment(&self, index: usize, is_last: bool) -> Self {
        let step = usize::from(self.segment_size.max(1));
        let start = (index * step).min(self.payload.len());
        let payload = self.payload.slice(start..self.payload.len().min(start + step));
        // Both fit: no payload is longer than 65,535 bytes.
        let skipped = start as u32;
        let single_size = payload.len().clamp(1, usize::from(u16::MAX)) as u16;

        let mut flags = self.flags;
        if index > 0 {
            flags = flags.without(Flags::CWR);
        }
        if !is_last {
            flags = flags.without(Flags::FIN.with(Flags::PSH));
        }
        // The urgent pointer counts from the sequence number; behind it nothing is urgent.
        let urgent = u32::from(self.urgent).saturating_sub(skipped) as u16;
        if index > 0 && urgent == 0 {
            flags = flags.without(Flags::URG);
        }
        Self {
            source: self.source,
            destination: self.destination,
            seq: self.seq + skipped,
            ack: self.ack,
            flags,
            window: self.window,
            urgent,
            options: self.options.clone(),
            payload,
            segment_size: single_size,
            ecn: self.ecn,
            flow_label: self.flow_label,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn super_segment(len: usize, segment_size: u16) -> Segment {
        Segment {
            source: "192.0.2.1:1000".parse().expect("an address"),
            destination: "192.0.2.2:2000".parse().expect("an address"),
            seq: SeqNum::new(u32::MAX - 1500),
            ack: SeqNum::new(7),
            flags: Flags::ACK.with(Flags::PSH).with(Flags::FIN).with(Flags::CWR),
            window: 512,
            urgent: 0,
            options: OptionBytes::new(),
            payload: (0..len).map(|i| i as u8).collect::<Vec<_>>().into(),
            segment_size,
            ecn: 1,
            flow_label: 0,
        }
    }

    #[test]
    fn a_train_has_cwr_on_its_first_and_fin_and_psh_on_its_last_segment() {
        let whole = super_segment(3001, 1000);
        let train: Vec<_> = whole.split().collect();
        assert_eq!(train.len(), whole.wire_segments());
        let ack = Flags::ACK;
        let flags: Vec<_> = train.iter().map(|segment| segment.flags).collect();
        assert_eq!(flags, [ack.with(Flags::CWR), ack, ack, ack.with(Flags::FIN).with(Flags::PSH)]);
        let lengths: Vec<_> = train.iter().map(|segment| segment.payload.len()).collect();
        assert_eq!(lengths, [1000, 1000, 1000, 1]);
        assert_eq!(train[3].seq, whole.seq + 3000, "over the wrap");
        let joined: Vec<u8> = train.iter().flat_map(|segment| segment.payload.to_vec()).collect();
        assert_eq!(joined, whole.payload);
        assert_eq!(train.iter().map(Segment::len_seq).sum::<u32>(), whole.len_seq());
    }

    #[test]
    fn a_single_segment_stays_what_it_is() {
        for whole in [super_segment(0, 1), super_segment(1000, 1000)] {
            let train: Vec<_> = whole.split().collect();
            assert_eq!(train, [whole]);
        }
    }

    #[test]
    fn the_urgent_pointer_keeps_pointing_at_the_same_byte() {
        let mut whole = super_segment(30, 10);
        whole.flags = Flags::ACK.with(Flags::URG);
        whole.urgent = 15;
        let train: Vec<_> =
            whole.split().map(|segment| (segment.urgent, segment.flags.contains(Flags::URG))).collect();
        assert_eq!(train, [(15, true), (5, true), (0, false)]);
    }
}
