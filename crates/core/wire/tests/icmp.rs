//! ICMP and ICMPv6 errors about our segments, as routers send them and as they are cut short.

use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use plait_base::SeqNum;
use plait_wire::{
    Flags, IcmpError, IcmpReason, Malformed, OptionBytes, Packet, Segment, Trust, checksum_of, icmp_error,
};

/// Fragmentation needed, next-hop MTU 1400, by hand: quotes IPv4 and eight bytes of TCP (RFC 792, 1191).
const FRAGMENTATION_NEEDED: [u8; 56] = [
    0x45, 0x00, 0x00, 0x38, 0x00, 0x00, 0x00, 0x00, 0x40, 0x01, 0xf5, 0xc5, // total length 56, ICMP
    192, 0, 2, 254, 192, 0, 2, 1, //
    3, 4, 0xfa, 0xd8, 0x00, 0x00, 0x05, 0x78, // MTU 1400
    0x45, 0x00, 0x05, 0xdc, 0x12, 0x34, 0x40, 0x00, 0x3f, 0x06, 0xff, 0xff, // its checksum is wrong
    192, 0, 2, 1, 192, 0, 2, 2, //
    0x9c, 0x40, 0x00, 0x50, 0xff, 0xff, 0xff, 0xfe,
];

#[test]
fn fragmentation_needed_with_eight_bytes_of_tcp() {
    let error = icmp(&FRAGMENTATION_NEEDED).expect("an error about TCP");
    assert_eq!(
        error,
        IcmpError {
            source: "192.0.2.1:40000".parse().expect("an end point"),
            destination: "192.0.2.2:80".parse().expect("an end point"),
            seq: SeqNum::new(u32::MAX - 1),
            reason: IcmpReason::TooBig { mtu: 1400 },
        }
    );
}

#[test]
fn a_quote_without_the_sequence_number_is_truncated() {
    for cut in 1..=28 {
        let mut packet = FRAGMENTATION_NEEDED[..56 - cut].to_vec();
        packet[3] -= cut as u8;
        mend(&mut packet);
        assert_eq!(icmp(&packet), Err(Malformed::Truncated), "{cut} bytes cut off");
    }
}

#[test]
fn a_wrong_checksum_is_refused() {
    for bit in 0..(36 * 8) {
        let mut packet = FRAGMENTATION_NEEDED;
        packet[20 + bit / 8] ^= 1 << (bit % 8);
        assert_eq!(icmp(&packet), Err(Malformed::Checksum));
    }
}

//= rfc9293 3.9.2.2-02
#[test]
fn errors_about_anything_but_tcp_and_informational_messages_are_refused() {
    let with = |offset: usize, value: u8| {
        let mut packet = FRAGMENTATION_NEEDED;
        packet[offset] = value;
        mend(&mut packet);
        icmp(&packet)
    };
    assert_eq!(with(28 + 9, 17), Err(Malformed::Protocol), "about UDP");
    assert_eq!(with(28, 0x65), Err(Malformed::Truncated), "about IPv6, 28 bytes of it");
    assert_eq!(with(28, 0x35), Err(Malformed::IpVersion));
    assert_eq!(with(28, 0x44), Err(Malformed::HeaderLength));
    assert_eq!(with(28 + 7, 1), Err(Malformed::Fragment), "the TCP header is in another fragment");
    for kind in [0, 4, 5, 8, 9, 13, 255] {
        assert_eq!(with(20, kind), Err(Malformed::Protocol), "type {kind}");
    }
}

#[test]
fn the_reasons_of_icmp() {
    let reason = |kind, code| {
        let mut packet = FRAGMENTATION_NEEDED;
        (packet[20], packet[21]) = (kind, code);
        mend(&mut packet);
        icmp(&packet).expect("an error about TCP").reason
    };
    for code in [0, 1, 2, 3, 5, 9, 10, 13] {
        assert_eq!(reason(3, code), IcmpReason::Unreachable { code });
    }
    assert_eq!(reason(11, 0), IcmpReason::TimeExceeded);
    assert_eq!(reason(12, 0), IcmpReason::ParameterProblem);
}

#[test]
fn what_a_simulated_router_sends_is_read_again() {
    let reasons = [
        IcmpReason::TooBig { mtu: 1280 },
        IcmpReason::Unreachable { code: 1 },
        IcmpReason::TimeExceeded,
        IcmpReason::ParameterProblem,
    ];
    for (router, segment) in [
        ("192.0.2.254", segment("192.0.2.1:9", "192.0.2.2:80")),
        ("2001:db8::ffff", segment("[2001:db8::1]:9", "[2001:db8::2]:80")),
    ] {
        let router: IpAddr = router.parse().expect("an address");
        for reason in reasons {
            let packet = icmp_error(reason, router, &segment.to_bytes(7)).expect("a packet is quoted");
            let expected = IcmpError {
                source: segment.source,
                destination: segment.destination,
                seq: segment.seq,
                reason,
            };
            assert_eq!(icmp(&packet), Ok(expected));
            let most = if router.is_ipv4() { 576 } else { 1280 };
            assert_eq!(packet.len(), most, "as much is quoted as may be");
        }
    }
}

#[test]
fn a_big_mtu_of_ipv6_is_read_in_full_and_one_of_zero_is_kept() {
    let quoted = segment("[2001:db8::1]:9", "[2001:db8::2]:80").to_bytes(0);
    for mtu in [0, 1280, 65_536, u32::MAX] {
        let packet = icmp_error(IcmpReason::TooBig { mtu }, "2001:db8::f".parse().expect("v6"), &quoted);
        assert_eq!(icmp(&packet.expect("quoted")).map(|e| e.reason), Ok(IcmpReason::TooBig { mtu }));
    }
}

#[test]
fn a_router_needs_a_packet_of_its_own_family_to_complain_about() {
    let quoted = segment("192.0.2.1:9", "192.0.2.2:80").to_bytes(0);
    let router: IpAddr = "2001:db8::f".parse().expect("v6");
    assert_eq!(icmp_error(IcmpReason::TimeExceeded, router, &quoted), Err(Malformed::IpVersion));
    assert_eq!(icmp_error(IcmpReason::TimeExceeded, router, &[]), Err(Malformed::Truncated));
}

fn icmp(packet: &[u8]) -> Result<IcmpError, Malformed> {
    match Packet::parse(&Bytes::copy_from_slice(packet), 0, Trust::Verify)? {
        Packet::Icmp(error) => Ok(error),
        Packet::Tcp(segment) => panic!("an ICMP error was read as {segment:?}"),
    }
}

/// Puts right both checksums of an IPv4 packet with ICMP in it.
fn mend(packet: &mut [u8]) {
    for (start, end, field) in [(0, 20, 10), (20, packet.len(), 22)] {
        if end < field + 2 {
            continue;
        }
        packet[field..field + 2].fill(0);
        let checksum = checksum_of(&packet[start..end]);
        packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn segment(source: &str, destination: &str) -> Segment {
    let end = |text: &str| text.parse::<SocketAddr>().expect("an end point");
    Segment {
        source: end(source),
        destination: end(destination),
        seq: SeqNum::new(u32::MAX),
        ack: SeqNum::new(2),
        flags: Flags::ACK,
        window: 100,
        urgent: 0,
        options: OptionBytes::new(),
        payload: vec![9; 1400].into(),
        segment_size: 1400,
        ecn: 0,
        flow_label: 0,
    }
}
