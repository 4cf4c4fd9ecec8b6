//! Segments that travel as datagrams of UDP (docs/udp.md): shown to an attacker as TCP, and carried on as UDP.
//!
//! Both headers have the same length, with each field at an even offset, so one becomes the other in place. The checksum is adjusted for
//! the difference (RFC 1624) and not computed anew: a wrong checksum stays wrong, and the receiver detects it.

use plait_carrier::tcp_in_udp::HEADER;
use plait_tun::VnetHeader;
use plait_wire::Flags;

use crate::packet::Frame;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Makes TCP of a datagram that stands for a segment; whether it was one. Everything else stays what it is: fragments, an empty datagram that
/// keeps a NAT from forgetting, one without a checksum, another protocol over UDP.
pub(crate) fn to_tcp(frame: &mut Frame) -> bool {
    let is_partial = frame.vnet.is_partial();
    let bytes = frame.bytes_mut();
    let Some(at) = transport(bytes, UDP).filter(|&at| is_segment(&bytes[at..])) else { return false };
    let (length, checksum) = (word(bytes, at + 4), word(bytes, at + 6));
    if is_partial {
        // What is there is the sum of the pseudo-header, in which the protocol alone differs.
        let sum = !adjusted(!checksum, &[UDP.into()], &[TCP.into()]);
        put(bytes, at + 6, sum);
    } else if checksum == 0 {
        return false;
    } else {
        put(bytes, at + 6, adjusted(checksum, &[UDP.into(), length], &[TCP.into()]));
    }
    set_protocol(bytes, at, TCP);
    let header = &mut bytes[at..at + HEADER];
    // Length and checksum go to the end, the checksum first; the place of the urgent pointer is empty.
    header[4..].rotate_left(4);
    // flags, window, seq, ack, length, checksum: to seq, ack, flags, window, checksum, 0.
    header[4..16].rotate_left(4);
    header.copy_within(18..20, 16);
    header[18..].fill(0);
    if is_partial {
        frame.vnet = VnetHeader::partial(frame.bytes(), at as u16, None);
    }
    frame.over_udp = true;
    true
}

/// Makes the datagram of a single TCP segment with a complete checksum; anything else stays what it is.
pub(crate) fn to_udp(bytes: &mut [u8]) {
    let Some(at) = transport(bytes, TCP).filter(|&at| bytes.len() >= at + HEADER) else { return };
    let length = (bytes.len() - at) as u16;
    let (checksum, urgent) = (word(bytes, at + 16), word(bytes, at + 18));
    let checksum = match adjusted(checksum, &[TCP.into(), urgent], &[UDP.into(), length]) {
        // Zero would say that there is none (RFC 768).
        0 => u16::MAX,
        checksum => checksum,
    };
    set_protocol(bytes, at, UDP);
    let header = &mut bytes[at..at + HEADER];
    // seq, ack, flags, window: to flags, window, seq, ack, behind length and checksum.
    header[4..16].rotate_right(4);
    header[4..].rotate_right(4);
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// The offset of the header after that of IP, if that names `protocol` and the packet is no fragment.
fn transport(bytes: &[u8], protocol: u8) -> Option<usize> {
    let (at, found) = match bytes.first()? >> 4 {
        4 if bytes.len() >= 20 && word(bytes, 6) & 0x3fff == 0 => {
            (usize::from(bytes[0] & 0x0f) * 4, bytes[9])
        }
        6 => (40, *bytes.get(6)?),
        _ => return None,
    };
    (found == protocol && (20..=bytes.len()).contains(&at)).then_some(at)
}

/// Whether a datagram, from the header of UDP onwards, stands for a segment.
fn is_segment(datagram: &[u8]) -> bool {
    if datagram.len() < HEADER || usize::from(word(datagram, 4)) != datagram.len() {
        return false;
    }
    let header = usize::from(datagram[8] >> 4) * 4;
    let flags = Flags::from_header([datagram[8], datagram[9]]);
    (HEADER..=datagram.len()).contains(&header) && flags.are_possible() && !flags.contains(Flags::URG)
}

fn set_protocol(bytes: &mut [u8], transport: usize, protocol: u8) {
    if bytes[0] >> 4 == 6 {
        bytes[6] = protocol;
        return;
    }
    debug_assert!(transport >= 20);
    let before = word(bytes, 8);
    bytes[9] = protocol;
    let sum = adjusted(word(bytes, 10), &[before], &[word(bytes, 8)]);
    put(bytes, 10, sum);
}

/// A checksum once the words `old` have become `new`.
fn adjusted(checksum: u16, old: &[u16], new: &[u16]) -> u16 {
    let old = old.iter().map(|word| u32::from(!word));
    let mut sum = u32::from(!checksum) + old.chain(new.iter().map(|&word| word.into())).sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::segment;
    use bytes::Bytes;
    use plait_carrier::tcp_in_udp::{datagram, parse_datagram};
    use plait_wire::{Packet, Segment, Trust};

    /// The IP packet with the datagram of a segment.
    fn over_udp(segment: &Segment) -> Vec<u8> {
        let mut packet = segment.to_bytes(0);
        let at = transport(&packet, TCP).expect("TCP");
        packet[at..].copy_from_slice(&datagram(segment));
        set_protocol(&mut packet, at, UDP);
        packet
    }

    fn samples() -> impl Iterator<Item = Segment> {
        [("10.77.0.1:1000", "10.77.0.2:2000"), ("[fd77::1]:1000", "[fd77::2]:2000")].into_iter().flat_map(
            |(source, destination)| {
                (0..40).map(move |length| {
                    let mut segment = segment(&vec![length; length.into()], 1000);
                    segment.source = source.parse().expect("an address");
                    segment.destination = destination.parse().expect("an address");
                    segment.options.extend([1; 12]);
                    segment
                })
            },
        )
    }

    #[test]
    fn a_datagram_becomes_the_segment_that_it_stands_for_and_a_datagram_again() {
        for segment in samples() {
            let packet = over_udp(&segment);
            let mut frame = Frame::complete(packet.clone());
            assert!(to_tcp(&mut frame) && frame.over_udp);
            let parsed = Packet::parse(&Bytes::copy_from_slice(frame.bytes()), 0, Trust::Verify);
            let Ok(Packet::Tcp(parsed)) = parsed else { unreachable!("its checksum is right: {parsed:?}") };
            assert_eq!((parsed.seq, parsed.ack, parsed.flags), (segment.seq, segment.ack, segment.flags));
            assert_eq!((parsed.window, &parsed.options), (segment.window, &segment.options));
            assert_eq!(parsed.payload, segment.payload);
            to_udp(frame.bytes_mut());
            assert_eq!(frame.bytes(), packet);
        }
    }

    #[test]
    fn what_the_kernel_left_undone_of_the_checksum_is_done_for_tcp() {
        for segment in samples() {
            let mut packet = over_udp(&segment);
            let at = transport(&packet, UDP).expect("UDP");
            // The sum over the pseudo-header, which is that of the whole less that of the datagram.
            let whole = word(&packet, at + 6);
            put(&mut packet, at + 6, 0);
            let rest = plait_wire::checksum_of(&packet[at..]);
            put(&mut packet, at + 6, !adjusted(whole, &[!rest], &[]));
            let vnet = VnetHeader::partial(&packet, at as u16, None);
            let length = packet.len();
            let mut frame = Frame::new(packet, length, vnet);
            assert!(to_tcp(&mut frame));
            let mut wire = crate::packet::wire_packets(&frame);
            let mut wire = wire.pop().expect("one packet");
            assert!(Packet::parse(&Bytes::copy_from_slice(&wire), 0, Trust::Verify).is_ok());
            to_udp(&mut wire);
            assert_eq!(wire, over_udp(&segment));
        }
    }

    #[test]
    fn a_checksum_that_was_wrong_stays_wrong() {
        for segment in samples() {
            let mut packet = over_udp(&segment);
            let at = transport(&packet, UDP).expect("UDP");
            packet[at + 19] ^= 1;
            let mut frame = Frame::complete(packet);
            assert!(to_tcp(&mut frame));
            assert!(Packet::parse(&Bytes::copy_from_slice(frame.bytes()), 0, Trust::Verify).is_err());
            to_udp(frame.bytes_mut());
            let bytes = Bytes::copy_from_slice(&frame.bytes()[at..]);
            let (source, destination) = (segment.source.ip(), segment.destination.ip());
            assert!(parse_datagram(source, destination, 0, &bytes).is_err());
        }
    }

    #[test]
    fn what_stands_for_no_segment_stays_what_it_is() {
        let segment = samples().next().expect("one");
        let packet = over_udp(&segment);
        let at = transport(&packet, UDP).expect("UDP");
        let change = |at: usize, to: u8| {
            let mut packet = packet.clone();
            packet[at] = to;
            packet
        };
        let (no_header, beyond, flags) = (change(at + 8, 0x40), change(at + 8, 0xf0), change(at + 9, 0));
        let mut without_checksum = packet.clone();
        put(&mut without_checksum, at + 6, 0);
        for packet in
            [no_header, beyond, flags, without_checksum, packet[..at + 10].to_vec(), vec![0x45], vec![]]
        {
            let mut frame = Frame::complete(packet.clone());
            assert!(!to_tcp(&mut frame), "{packet:02x?}");
            assert_eq!(frame.bytes(), packet);
        }
    }
}
