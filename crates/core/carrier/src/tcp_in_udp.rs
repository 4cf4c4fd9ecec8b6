//! TCP in UDP: a TCP segment as the datagram that draft-cheshire-tcp-over-udp-00 describes, arranged as the eBPF program
//! tcp-in-udp of the Multipath TCP community does it, so that Linux hosts behind that program are peers, too.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+-------------------------------+
//! |          source port          |       destination port        |
//! |         length of UDP         |       checksum of UDP         |
//! | offset| 0 |AE |  flags, URG 0 |            window             |
//! |                        sequence number                        |
//! |                     acknowledgment number                     |
//! |                    options, then payload                      |
//! ```
//!
//! The urgent pointer is left out, and the length takes its place: the header is as long as TCP's, and so a segment fits
//! wherever it would have fitted before. The data offset counts from the beginning, as TCP's does; it is 5 at least, by which the
//! draft tells these datagrams from those of STUN.
//!
//! A socket sees what lies behind the first eight bytes. [`Datagrams`] writes that for a whole train, one datagram behind the
//! other, as send offload takes it; [`trains`] takes apart what receive offload has merged, and puts together again what
//! was one super-segment.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use bytes::Bytes;
use plait_base::SeqNum;
use plait_wire::{Checksum, Flags, Malformed, OptionBytes, Segment};

/// Bytes of the header of UDP, which a socket does not show.
pub const UDP_HEADER: usize = 8;
/// Bytes of the header in front of the options, those of UDP included: as many as TCP's.
pub const HEADER: usize = 20;
/// Bytes of the longest header, with all options.
pub const MAX_HEADER: usize = 60;

/// Bytes of the header that a socket shows.
const SHOWN: usize = HEADER - UDP_HEADER;

const UDP: u8 = 17;

/// What the sockets are given for one segment: its datagrams without UDP's own header. Written again and again, it keeps
/// its allocation.
#[derive(Default, Debug)]
pub struct Datagrams {
    bytes: Vec<u8>,
    size: usize,
}

impl Datagrams {
    /// Becomes the datagrams of `segment`, one for each wire segment. This copies the payload: each datagram of a train has a header of
    /// its own.
    ///
    /// SYNs are filled up with end-of-options to the longest header, so that no answer to one can be longer than it.
    pub fn write(&mut self, segment: &Segment) {
        self.bytes.clear();
        self.size = 0;
        if segment.is_datagram() {
            // Its header is in the payload. It is alone in its batch.
            self.bytes.extend_from_slice(&segment.payload);
            self.size = self.bytes.len();
            return;
        }
        let is_syn = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let header = if is_syn { MAX_HEADER } else { HEADER + segment.options.len().next_multiple_of(4) };
        for wire in segment.split() {
            emit_shown(&wire, header, &mut self.bytes);
            self.bytes.extend_from_slice(&wire.payload);
            // All but the last are as long as the first.
            if self.size == 0 {
                self.size = self.bytes.len();
            }
        }
    }

    /// All datagrams, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of each of them but the last, which may be shorter. Never zero once something was written.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// The part of the header that a socket shows, with the options filled up to `header` bytes in all.
fn emit_shown(segment: &Segment, header: usize, out: &mut Vec<u8>) {
    let [high, low] = segment.flags.without(Flags::URG).0.to_be_bytes();
    // At most 60 bytes: 15 words.
    out.extend([(header as u8 / 4) << 4 | high & 1, low]);
    out.extend(segment.window.to_be_bytes());
    out.extend(segment.seq.bits().to_be_bytes());
    out.extend(segment.ack.bits().to_be_bytes());
    out.extend_from_slice(&segment.options);
    out.extend(core::iter::repeat_n(0, header - HEADER - segment.options.len()));
}

/// The whole datagram of a single segment, UDP's header with its checksum included: what goes behind an IP header.
pub fn datagram(segment: &Segment) -> Vec<u8> {
    let mut shown = Datagrams::default();
    shown.write(segment);
    let len = (UDP_HEADER + shown.bytes.len()) as u16;
    let mut datagram = Vec::with_capacity(len.into());
    datagram.extend(segment.source.port().to_be_bytes());
    datagram.extend(segment.destination.port().to_be_bytes());
    datagram.extend(len.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend_from_slice(&shown.bytes);
    // A sum of zero is sent as its other form; zero says that there is none (RFC 768).
    let sum = match sum_of(segment.source.ip(), segment.destination.ip(), &datagram).finish() {
        0 => u16::MAX,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// Takes a whole datagram apart, UDP's header included, as it came in an IP packet between these addresses.
///
/// # Errors
/// The datagram is malformed. A datagram without a checksum is refused, because every TCP segment has one.
pub fn parse_datagram(
    source: IpAddr,
    destination: IpAddr,
    ecn: u8,
    bytes: &Bytes,
) -> Result<Segment, Malformed> {
    let (udp, shown) = bytes.split_first_chunk::<UDP_HEADER>().ok_or(Malformed::Truncated)?;
    let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    if usize::from(word(4)) != bytes.len() {
        return Err(Malformed::Truncated);
    }
    if word(6) == 0 || !sum_of(source, destination, bytes).fits() {
        return Err(Malformed::Checksum);
    }
    let ports = (SocketAddr::new(source, word(0)), SocketAddr::new(destination, word(2)));
    if is_beside(shown) {
        return Arrived::Datagram(UDP_HEADER..bytes.len()).segment(ports, ecn, bytes);
    }
    let head = Head::parse(shown)?;
    let payload = bytes.slice(UDP_HEADER + head.len..);
    Train { size: payload.len().max(1) as u16, payload: 0..payload.len(), head }.segment(ports, ecn, &payload)
}

/// Whether these bytes, as a socket shows them, are a datagram beside the stream: the upper half of the first byte, where a segment has its
/// data offset of at least 5, is 0, and the lower half is 4 or more, which tells it from STUN (RFC 7983).
fn is_beside(shown: &[u8]) -> bool {
    shown.first().is_some_and(|first| (0x04..0x10).contains(first))
}

/// The sum over the pseudo-header of UDP and `datagram`.
fn sum_of(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> Checksum {
    let mut sum = Checksum::default();
    for address in [source, destination] {
        match address {
            IpAddr::V4(v4) => sum.add(&v4.octets()),
            IpAddr::V6(v6) => sum.add(&v6.octets()),
        }
    }
    sum.add(&(datagram.len() as u32).to_be_bytes());
    sum.add(&[0, UDP]);
    sum.add(datagram);
    sum
}

/// The content of a header, without the ports.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    seq: SeqNum,
    ack: SeqNum,
    flags: Flags,
    window: u16,
    options: OptionBytes,
    /// Its length as far as a socket shows it.
    len: usize,
}

impl Head {
    fn parse(shown: &[u8]) -> Result<Self, Malformed> {
        let (fixed, _) = shown.split_first_chunk::<SHOWN>().ok_or(Malformed::Truncated)?;
        let header = usize::from(fixed[0] >> 4) * 4;
        let len = header.checked_sub(UDP_HEADER).ok_or(Malformed::HeaderLength)?;
        // No range where the data offset lies below the fixed header or beyond the datagram.
        let options = shown.get(SHOWN..len).ok_or(Malformed::HeaderLength)?;
        let options = OptionBytes::try_from(options).map_err(|_| Malformed::HeaderLength)?;
        let flags = Flags::from_header([fixed[0], fixed[1]]);
        // There is no urgent pointer that the flag could make count.
        if !flags.are_possible() || flags.contains(Flags::URG) {
            return Err(Malformed::Flags);
        }
        let number = |at: usize| {
            SeqNum::new(u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]))
        };
        let window = u16::from_be_bytes([fixed[2], fixed[3]]);
        Ok(Self { seq: number(4), ack: number(8), flags, window, options, len })
    }
}

/// Datagrams that were one segment or one super-segment, or may be taken for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Train {
    head: Head,
    /// Where its payload lies in the buffer.
    payload: Range<usize>,
    /// Payload of each datagram but the last.
    size: u16,
}

/// Flags that may differ within a train: it ends with these.
const LAST: Flags = Flags(Flags::PSH.0 | Flags::FIN.0);

impl Train {
    /// Whether `head` with `len` bytes of payload goes on where this ends: the same but for the sequence number.
    fn is_continued_by(&self, head: &Head, len: usize) -> bool {
        let is_data = Flags::ACK.0 | LAST.0 | Flags::AE.0 | Flags::CWR.0 | Flags::ECE.0;
        let so_far = self.payload.len();
        head.seq == self.head.seq + so_far as u32
            && (head.ack, head.window, &head.options) == (self.head.ack, self.head.window, &self.head.options)
            // What PSH and FIN stand on is the last of its train.
            && head.flags.without(LAST) == self.head.flags
            && head.flags.0 & !is_data == 0
            && (1..=usize::from(self.size)).contains(&len)
            && so_far.is_multiple_of(self.size.into())
            && so_far + len <= usize::from(u16::MAX) - MAX_HEADER
    }

    /// The segment, between these addresses; `bytes` is the buffer that it was found in.
    ///
    /// # Errors
    /// One of the ports is zero.
    pub fn segment(
        self,
        (source, destination): (SocketAddr, SocketAddr),
        ecn: u8,
        bytes: &Bytes,
    ) -> Result<Segment, Malformed> {
        if source.port() == 0 || destination.port() == 0 {
            return Err(Malformed::Address);
        }
        let Self { head: Head { seq, ack, flags, window, options, len: _ }, payload, size } = self;
        Ok(Segment {
            source,
            destination,
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            options,
            payload: bytes.slice(payload),
            segment_size: size,
            ecn,
            flow_label: 0,
        })
    }
}

/// What a socket has received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// A segment, or a super-segment.
    Train(Train),
    /// A datagram beside the stream, with its header: its place in the buffer.
    Datagram(Range<usize>),
}

impl Arrived {
    /// The segment, between these addresses; `bytes` is the buffer that it was found in.
    ///
    /// # Errors
    /// One of the ports is zero.
    pub fn segment(
        self,
        (source, destination): (SocketAddr, SocketAddr),
        ecn: u8,
        bytes: &Bytes,
    ) -> Result<Segment, Malformed> {
        match self {
            Self::Train(train) => train.segment((source, destination), ecn, bytes),
            Self::Datagram(_) if source.port() == 0 || destination.port() == 0 => Err(Malformed::Address),
            Self::Datagram(place) => Ok(Segment::datagram(source, destination, ecn, bytes.slice(place))),
        }
    }
}

/// Takes datagrams apart that lie in `buffer` one behind the other, each `stride` bytes long but the last, as receive offload merges
/// them; calls `each` for each train, in order, and for what is malformed. Payload of a train is moved together
/// within `buffer`. An empty datagram says nothing: it is what keeps a NAT from forgetting.
pub fn trains(buffer: &mut [u8], stride: usize, mut each: impl FnMut(Result<Arrived, Malformed>)) {
    let mut current: Option<Train> = None;
    let mut start = 0;
    while start < buffer.len() {
        let end = buffer.len().min(start + stride.max(1));
        if is_beside(&buffer[start..end]) {
            current.take().into_iter().for_each(|train| each(Ok(Arrived::Train(train))));
            each(Ok(Arrived::Datagram(start..end)));
            start = end;
            continue;
        }
        match Head::parse(&buffer[start..end]) {
            Ok(head) => {
                let payload = start + head.len..end;
                match &mut current {
                    Some(train) if train.is_continued_by(&head, payload.len()) => {
                        train.head.flags = head.flags;
                        let to = train.payload.end;
                        train.payload.end += payload.len();
                        buffer.copy_within(payload, to);
                    }
                    Some(_) | None => {
                        // Below 65,536, as the length of UDP is.
                        let train = Train { head, size: payload.len().max(1) as u16, payload };
                        current.replace(train).into_iter().for_each(|train| each(Ok(Arrived::Train(train))));
                    }
                }
            }
            Err(reason) => {
                current.take().into_iter().for_each(|train| each(Ok(Arrived::Train(train))));
                each(Err(reason));
            }
        }
        start = end;
    }
    current.into_iter().for_each(|train| each(Ok(Arrived::Train(train))));
}

#[cfg(test)]
mod tests;
