//! IP, TCP and ICMP headers: what is skipped, what is refused, and why.

use bytes::Bytes;
use core::net::IpAddr;
use plait_base::SeqNum;
use plait_wire::{
    Flags, IcmpReason, Malformed, OptionBytes, Packet, Segment, Trust, checksum_of, icmp_error, options,
};

/// A SYN over IPv4 as Linux lays it out, by hand: MSS, SACK permitted, timestamps, window scale, MP_CAPABLE.
const SYN: [u8; 64] = [
    0x45, 0x02, 0x00, 0x40, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0xa4, 0x7e, // 64 bytes, DF, TTL 64
    192, 0, 2, 1, 192, 0, 2, 2, //
    0x9c, 0x40, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x00, // 40000 to 80
    0xb0, 0xc2, 0xfa, 0xf0, 0xc7, 0xf1, 0x00, 0x00, // 44 bytes of header, SYN ECE CWR
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0x00, 0x00, 0x30, 0x39, 0, 0, 0, 0, 1, 3, 3, 8, 30, 4, 0x01, 0x81,
];

#[test]
fn a_syn_laid_out_by_hand_is_read_field_by_field() {
    let segment = tcp(&SYN);
    assert_eq!(segment.source, "192.0.2.1:40000".parse().expect("an end point"));
    assert_eq!(segment.destination, "192.0.2.2:80".parse().expect("an end point"));
    assert_eq!((segment.seq, segment.ack), (SeqNum::new(0x0102_0304), SeqNum::new(0)));
    assert_eq!(segment.flags, Flags::SYN.with(Flags::ECE).with(Flags::CWR));
    assert_eq!((segment.window, segment.urgent, segment.ecn), (0xfaf0, 0, 2));
    assert_eq!(segment.options[..], SYN[40..]);
    assert_eq!(options(&segment.options).filter(Result::is_ok).count(), 5);
    assert_eq!((segment.payload.len(), segment.segment_size, segment.wire_segments()), (0, 1, 1));
    assert_eq!(segment.to_bytes(0x1234), SYN);
}

#[test]
fn the_urgent_pointer_and_reserved_bits_are_read_over() {
    let mut packet = SYN;
    packet[32] |= 0x0f;
    packet[39] = 9;
    mend(&mut packet);
    assert_eq!(tcp(&packet).urgent, 9);
}

#[test]
fn urgent_data_is_part_of_the_payload() {
    let mut segment = plain(b"urgent, and more");
    (segment.flags, segment.urgent) = (segment.flags.with(Flags::URG), 6);
    let read = tcp(&segment.to_bytes(1));
    assert!(read.flags.contains(Flags::URG) && read.urgent == 6);
    assert_eq!(read.payload[..], *b"urgent, and more");
}

#[test]
fn padding_of_the_link_is_cut_off() {
    let mut packet = plain(b"data").to_bytes(1);
    packet.extend([0xee; 6]);
    assert_eq!(tcp(&packet).payload[..], *b"data");
    let mut packet = plain_v6(b"data").to_bytes(1);
    packet.extend([0xee; 6]);
    assert_eq!(tcp(&packet).payload[..], *b"data");
}

//= rfc9293 3.9.2-03
#[test]
fn options_of_ipv4_are_skipped() {
    let mut packet = plain(b"data").to_bytes(1);
    packet.splice(20..20, [0x94, 0x04, 0, 0, 0x01, 0x01, 0x01, 0x00]);
    packet[0] = 0x47;
    packet[3] += 8;
    mend(&mut packet);
    assert_eq!(tcp(&packet), plain(b"data"));
}

#[test]
fn extension_headers_of_ipv6_are_skipped() {
    for (first, chain) in [
        (0, &[&[6, 0, 5, 2, 0, 0, 1, 0][..]][..]),
        (60, &[&[6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]),
        (0, &[&[60, 0, 1, 4, 0, 0, 0, 0], &[43, 0, 1, 4, 0, 0, 0, 0], &[6, 0, 4, 0, 0, 0, 0, 0]]),
    ] {
        assert_eq!(parse(&extended(first, chain)), Ok(Packet::Tcp(plain_v6(b"data"))), "{first} {chain:?}");
    }
}

#[test]
fn extension_headers_that_cannot_be_skipped_are_refused() {
    let reason = |first, chain: &[&[u8]]| parse(&extended(first, chain)).map(drop).expect_err("refused");
    assert_eq!(reason(44, &[&[6, 0, 0, 0, 0, 0, 0, 1]]), Malformed::Fragment);
    assert_eq!(reason(60, &[&[44, 0, 1, 4, 0, 0, 0, 0], &[6, 0, 0, 1, 0, 0, 0, 1]]), Malformed::Fragment);
    assert_eq!(reason(43, &[&[6, 0, 0, 1, 0, 0, 0, 0]]), Malformed::Protocol, "segments are left");
    assert_eq!(reason(51, &[&[6, 0, 0, 0, 0, 0, 0, 0]]), Malformed::Protocol, "authentication header");
    assert_eq!(reason(59, &[]), Malformed::Protocol, "no next header");
    assert_eq!(reason(60, &[&[6, 255, 1, 4, 0, 0, 0, 0]]), Malformed::Truncated, "longer than the packet");
    let many = [&[60, 0, 1, 4, 0, 0, 0, 0][..]; 9];
    assert_eq!(reason(60, &many), Malformed::HeaderLength, "more than any host sends");
}

#[test]
fn fragments_are_refused() {
    for (high, low) in [(0x20, 0), (0x20, 0xb9), (0x00, 0x01), (0x1f, 0xff)] {
        let mut packet = SYN;
        (packet[6], packet[7]) = (high, low);
        mend(&mut packet);
        assert_eq!(parse(&packet), Err(Malformed::Fragment), "{high:#x} {low:#x}");
    }
}

#[test]
fn headers_whose_lengths_contradict_each_other_are_refused() {
    let refused = |offset: usize, value: u8| {
        let mut packet = plain(b"data").to_bytes(1);
        packet[offset] = value;
        mend(&mut packet);
        parse(&packet).map(drop)
    };
    assert_eq!(refused(0, 0x44), Err(Malformed::HeaderLength), "IP header below 20 bytes");
    assert_eq!(refused(0, 0x4f), Err(Malformed::Truncated), "IP header beyond the packet");
    assert_eq!(refused(3, 19), Err(Malformed::HeaderLength), "total length below the header");
    assert_eq!(refused(3, 45), Err(Malformed::Truncated), "total length beyond the packet");
    assert_eq!(refused(3, 39), Err(Malformed::Truncated), "TCP header cut off");
    assert_eq!(refused(32, 0x40), Err(Malformed::HeaderLength), "data offset below 5");
    assert_eq!(refused(32, 0xf0), Err(Malformed::HeaderLength), "data offset beyond the packet");
    assert_eq!(refused(0, 0x55), Err(Malformed::IpVersion));
    assert_eq!(refused(9, 17), Err(Malformed::Protocol), "UDP");
    assert_eq!(refused(9, 58), Err(Malformed::Protocol), "ICMPv6 inside IPv4");
    assert_eq!(parse(&[]), Err(Malformed::Truncated));
}

#[test]
fn a_jumbogram_is_refused() {
    let mut packet = plain_v6(b"data").to_bytes(1);
    (packet[4], packet[5]) = (0, 0);
    assert_eq!(parse(&packet), Err(Malformed::Truncated));
}

#[test]
fn wrong_checksums_are_refused_and_offloaded_ones_are_not_looked_at() {
    let mut packet = SYN;
    packet[36] ^= 1;
    assert_eq!(parse(&packet), Err(Malformed::Checksum));
    assert!(Packet::parse(&Bytes::copy_from_slice(&packet), 0, Trust::Offloaded).is_ok());

    let mut packet = SYN;
    packet[10] ^= 1;
    let packet = Bytes::copy_from_slice(&packet);
    assert_eq!(Packet::parse(&packet, 0, Trust::Verify), Err(Malformed::Checksum));
    assert_eq!(Packet::parse(&packet, 0, Trust::Offloaded), Err(Malformed::Checksum), "IP is not offloaded");
}

#[test]
fn flags_that_no_tcp_sends_are_refused() {
    for bits in 0..=255u8 {
        let mut packet = SYN;
        packet[33] = bits;
        mend(&mut packet);
        let (fin, syn, rst, ack) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 16 != 0);
        let exists = (syn || rst || ack) && !(syn && fin) && !(syn && rst);
        let expected = if exists { Ok(()) } else { Err(Malformed::Flags) };
        assert_eq!(parse(&packet).map(drop), expected, "{bits:#010b}");
    }
}

//= rfc9293 3.9.2.3-01
//= rfc9293 3.9.2.3-02
#[test]
fn ends_that_are_not_one_host_are_refused() {
    let good: [IpAddr; 2] = ["192.0.2.9".parse().expect("v4"), "2001:db8::9".parse().expect("v6")];
    let bad =
        ["0.0.0.0", "224.0.0.1", "239.255.255.255", "255.255.255.255", "::", "ff02::1", "::ffff:192.0.2.1"];
    for bad in bad.map(|text| text.parse::<IpAddr>().expect("an address")) {
        let good = good[usize::from(bad.is_ipv6())];
        for (from, to) in [(bad, good), (good, bad)] {
            let mut segment = plain(b"");
            segment.source.set_ip(from);
            segment.destination.set_ip(to);
            assert_eq!(parse(&segment.to_bytes(0)), Err(Malformed::Address), "{from} to {to}");
        }
    }
    for offset in [20, 22] {
        let mut packet = SYN;
        packet[offset..offset + 2].fill(0);
        mend(&mut packet);
        assert_eq!(parse(&packet), Err(Malformed::Address), "port zero");
    }
}

#[test]
fn what_receive_offload_merged_stays_one_segment() {
    let mut segment = plain(&[7; 64_768]);
    segment.segment_size = 1408;
    let packet = Bytes::from(segment.to_bytes(1));
    let Ok(Packet::Tcp(read)) = Packet::parse(&packet, 1408, Trust::Offloaded) else { panic!("refused") };
    assert_eq!(read.wire_segments(), 46);
    assert_eq!(read, segment);
    assert_eq!(read.payload.as_ptr(), packet[40..].as_ptr(), "the payload is not copied");
}

#[test]
fn options_that_are_not_padded_are_padded_when_written() {
    let mut segment = plain(b"x");
    segment.options = OptionBytes::from_iter([3, 3, 8]);
    let read = tcp(&segment.to_bytes(0));
    assert_eq!(read.options[..], [3, 3, 8, 0]);
    assert_eq!(read.payload[..], *b"x");
    assert_eq!(segment.header_len(), 44);
}

#[test]
fn every_truncation_of_a_packet_is_an_error() {
    let mut too_big = plain_v6(&[1; 100]).to_bytes(0);
    too_big = icmp_error(IcmpReason::TooBig { mtu: 1300 }, "2001:db8::f".parse().expect("v6"), &too_big)
        .expect("a packet");
    let mut packets = vec![SYN.to_vec(), plain_v6(b"data").to_bytes(0), too_big];
    packets.push(extended(0, &[&[60, 0, 1, 4, 0, 0, 0, 0], &[6, 0, 1, 4, 0, 0, 0, 0]]));
    for packet in packets {
        assert!(parse(&packet).is_ok());
        for length in 0..packet.len() {
            assert!(parse(&packet[..length]).is_err(), "{length} of {} bytes", packet.len());
        }
    }
}

fn parse(packet: &[u8]) -> Result<Packet, Malformed> {
    Packet::parse(&Bytes::copy_from_slice(packet), 0, Trust::Verify)
}

#[track_caller]
fn tcp(packet: &[u8]) -> Segment {
    match parse(packet) {
        Ok(Packet::Tcp(segment)) => segment,
        other => panic!("not a segment: {other:?}"),
    }
}

/// Puts right both checksums of an IPv4 packet with TCP in it.
fn mend(packet: &mut [u8]) {
    let header = (usize::from(packet[0] & 0x0f) * 4).min(packet.len());
    packet[10..12].fill(0);
    let ip = checksum_of(&packet[..header]);
    packet[10..12].copy_from_slice(&ip.to_be_bytes());

    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(packet.len());
    if total < header + 20 {
        return;
    }
    packet[header + 16..header + 18].fill(0);
    let mut covered = packet[12..20].to_vec();
    covered.extend([0, 6]);
    covered.extend(((total - header) as u16).to_be_bytes());
    covered.extend(&packet[header..total]);
    let tcp = checksum_of(&covered);
    packet[header + 16..header + 18].copy_from_slice(&tcp.to_be_bytes());
}

/// A data segment over IPv4 without options.
fn plain(payload: &[u8]) -> Segment {
    Segment {
        source: "192.0.2.1:40000".parse().expect("an end point"),
        destination: "192.0.2.2:80".parse().expect("an end point"),
        seq: SeqNum::new(1),
        ack: SeqNum::new(2),
        flags: Flags::ACK,
        window: 100,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::copy_from_slice(payload),
        segment_size: payload.len().max(1) as u16,
        ecn: 0,
        flow_label: 0,
    }
}

/// The same over IPv6.
fn plain_v6(payload: &[u8]) -> Segment {
    Segment {
        source: "[2001:db8::1]:40000".parse().expect("an end point"),
        destination: "[2001:db8::2]:80".parse().expect("an end point"),
        ..plain(payload)
    }
}

/// [`plain_v6`] with extension headers, the first of kind `first`.
fn extended(first: u8, chain: &[&[u8]]) -> Vec<u8> {
    let mut packet = plain_v6(b"data").to_bytes(0);
    let chain = chain.concat();
    packet[5] += chain.len() as u8;
    packet[6] = first;
    packet.splice(40..40, chain);
    packet
}
