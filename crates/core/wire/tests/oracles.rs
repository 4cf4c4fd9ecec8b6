//! Two other crates' parsers and ours read the same packets the same way, and sum them up the same.

mod arbitrary;

use bytes::Bytes;
use core::net::IpAddr;
use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use plait_wire::{Flags, IcmpReason, Packet, Segment, TcpOption, Trust, icmp_error, options};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as smol;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn etherparse_reads_what_we_write(segment in arbitrary::segment(), identification: u16) {
        let bytes = segment.to_bytes(identification);
        let sliced = SlicedPacket::from_ip(&bytes).expect("a packet");
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
        prop_assert_eq!(tcp.payload(), &segment.payload[..]);
        let ends = (tcp.source_port(), tcp.destination_port());
        prop_assert_eq!(ends, (segment.source.port(), segment.destination.port()));
        prop_assert_eq!(tcp.sequence_number(), segment.seq.bits());
        prop_assert_eq!(tcp.acknowledgment_number(), segment.ack.bits());
        prop_assert_eq!(tcp.window_size(), segment.window);
        prop_assert_eq!(tcp.urgent_pointer(), segment.urgent);
        let flags = [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg(), tcp.ece(), tcp.cwr(), tcp.ns()];
        let flags = flags.iter().enumerate().fold(0, |bits, (n, set)| bits | u16::from(*set) << n);
        prop_assert_eq!(Flags(flags), segment.flags);
        prop_assert_eq!(tcp.options(), &segment.options[..]);

        let header = tcp.to_header();
        let checksum = match sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let ip = ip.header();
                prop_assert_eq!(IpAddr::from(ip.source_addr()), segment.source.ip());
                prop_assert_eq!(IpAddr::from(ip.destination_addr()), segment.destination.ip());
                prop_assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                prop_assert_eq!((ip.ecn().value(), ip.identification()), (segment.ecn, identification));
                prop_assert!(ip.dont_fragment() && !ip.more_fragments());
                header.calc_checksum_ipv4_raw(ip.source(), ip.destination(), &segment.payload)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let ip = ip.header();
                prop_assert_eq!(IpAddr::from(ip.source_addr()), segment.source.ip());
                prop_assert_eq!(IpAddr::from(ip.destination_addr()), segment.destination.ip());
                prop_assert_eq!((ip.traffic_class(), ip.flow_label().value()), (segment.ecn, segment.flow_label));
                header.calc_checksum_ipv6_raw(ip.source(), ip.destination(), &segment.payload)
            }
            Some(NetSlice::Arp(_)) | None => panic!("no IP"),
        };
        prop_assert_eq!(checksum.expect("a payload of that length"), tcp.checksum());
    }

    #[test]
    fn smoltcp_takes_what_we_write_for_well_formed(segment in arbitrary::segment()) {
        let bytes = segment.to_bytes(0);
        let (source, destination, tcp) = match segment.source.ip() {
            IpAddr::V4(_) => {
                let ip = smol::Ipv4Packet::new_checked(&bytes[..]).expect("a packet");
                prop_assert!(ip.verify_checksum());
                let ends = (ip.src_addr().into(), ip.dst_addr().into());
                (ends.0, ends.1, ip.payload())
            }
            IpAddr::V6(_) => {
                let ip = smol::Ipv6Packet::new_checked(&bytes[..]).expect("a packet");
                let ends = (ip.src_addr().into(), ip.dst_addr().into());
                (ends.0, ends.1, ip.payload())
            }
        };
        prop_assert_eq!((IpAddr::from(source), IpAddr::from(destination)), (segment.source.ip(), segment.destination.ip()));
        let tcp = smol::TcpPacket::new_checked(tcp).expect("a header");
        prop_assert!(tcp.verify_checksum(&source, &destination));
        prop_assert_eq!(tcp.payload(), &segment.payload[..]);
        prop_assert_eq!(usize::from(tcp.header_len()), 20 + segment.options.len());
        let no_control = segment.flags.without(Flags(0xf8)) == Flags::default();
        if no_control && segment.flags.contains(Flags::ACK) && !segment.flags.contains(Flags::URG) {
            // Its typed form knows these options and gives up on a malformed one, of which there is none.
            let repr = smol::TcpRepr::parse(&tcp, &source, &destination, &ChecksumCapabilities::default());
            prop_assert_eq!(repr.map(|repr| repr.payload.len()), Ok(segment.payload.len()));
        }
    }

    /// Random bytes as an option field: both agree on every option that etherparse knows, until it stops.
    #[test]
    fn etherparse_and_we_read_the_same_plain_options(field in option_like_bytes()) {
        let mut ours = options(&field);
        for theirs in etherparse::TcpOptionsIterator::from_slice(&field) {
            match theirs {
                Ok(TcpOptionElement::Noop) => {}
                Ok(theirs) => prop_assert_eq!(ours.next().map(|o| o.map(element)), Some(Ok(Some(theirs)))),
                // It knows five kinds and gives up at the first other one or at the first error.
                Err(_) => return Ok(()),
            }
        }
        prop_assert_eq!(ours.next(), None);
    }
}

#[test]
fn smoltcp_takes_our_icmp_errors_for_well_formed() {
    let reason = IcmpReason::TooBig { mtu: 1300 };
    let quoted = etherparse_packet(etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9), false);
    let packet = icmp_error(reason, IpAddr::from([10, 0, 0, 9]), &quoted).expect("quoted");
    let ip = smol::Ipv4Packet::new_checked(&packet[..]).expect("a packet");
    let icmp = smol::Icmpv4Packet::new_checked(ip.payload()).expect("a message");
    assert!(ip.verify_checksum() && icmp.verify_checksum());
    assert_eq!(icmp.msg_type(), smol::Icmpv4Message::DstUnreachable);
    assert_eq!(icmp.msg_code(), u8::from(smol::Icmpv4DstUnreachable::FragRequired));

    let quoted = etherparse_packet(etherparse::PacketBuilder::ipv6([0x20; 16], [0x21; 16], 9), false);
    let packet = icmp_error(reason, IpAddr::from([0x22; 16]), &quoted).expect("quoted");
    let ip = smol::Ipv6Packet::new_checked(&packet[..]).expect("a packet");
    let icmp = smol::Icmpv6Packet::new_checked(ip.payload()).expect("a message");
    assert!(icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
    assert_eq!((icmp.msg_type(), icmp.pkt_too_big_mtu()), (smol::Icmpv6Message::PktTooBig, 1300));
}

/// Packets that etherparse writes, we read.
#[test]
fn we_read_what_etherparse_writes() {
    for with_options in [false, true] {
        let v4 = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9);
        let v6 = etherparse::PacketBuilder::ipv6([0x20; 16], [0x21; 16], 9);
        for builder in [v4, v6] {
            let segment = parse(&etherparse_packet(builder, with_options).into());
            assert_eq!((segment.seq.bits(), segment.ack.bits()), (0xffff_ff00, 77));
            assert_eq!(segment.flags, Flags::ACK.with(Flags::PSH).with(Flags::CWR));
            assert_eq!(segment.payload[..], PAYLOAD);
            let read: Vec<_> = options(&segment.options).map(|option| option.expect("well-formed")).collect();
            assert_eq!(read.len(), if with_options { 3 } else { 0 });
            if with_options {
                assert_eq!(read[0], TcpOption::Mss(1400));
                assert_eq!(read[2], TcpOption::Timestamps { value: 5, echo: 6 });
            }
        }
    }
}

const PAYLOAD: [u8; 333] = [0x5a; 333];

fn etherparse_packet(
    builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>,
    with_options: bool,
) -> Vec<u8> {
    let elements = [
        TcpOptionElement::MaximumSegmentSize(1400),
        TcpOptionElement::SelectiveAcknowledgement((1, 2), [Some((3, 4)), None, None]),
        TcpOptionElement::Timestamp(5, 6),
    ];
    let tcp = builder.tcp(4000, 80, 0xffff_ff00, 512).ack(77).psh().cwr();
    let tcp = tcp.options(if with_options { &elements } else { &[] }).expect("room");
    let mut bytes = Vec::new();
    tcp.write(&mut bytes, &PAYLOAD).expect("a vector takes all");
    bytes
}

fn parse(bytes: &Bytes) -> Segment {
    match Packet::parse(bytes, 0, Trust::Verify) {
        Ok(Packet::Tcp(segment)) => segment,
        other => panic!("not a segment: {other:?}"),
    }
}

/// The element of etherparse that says the same, where there is one.
fn element(option: TcpOption<'_>) -> Option<TcpOptionElement> {
    match option {
        TcpOption::Mss(size) => Some(TcpOptionElement::MaximumSegmentSize(size)),
        TcpOption::WindowScale(shift) => Some(TcpOptionElement::WindowScale(shift)),
        TcpOption::SackPermitted => Some(TcpOptionElement::SelectiveAcknowledgementPermitted),
        TcpOption::Sack(blocks) => {
            let mut blocks = blocks.iter().map(|(left, right)| (left.bits(), right.bits()));
            let first = blocks.next()?;
            let more = [blocks.next(), blocks.next(), blocks.next()];
            Some(TcpOptionElement::SelectiveAcknowledgement(first, more))
        }
        TcpOption::Timestamps { value, echo } => Some(TcpOptionElement::Timestamp(value, echo)),
        TcpOption::Mptcp(_) | TcpOption::Eno(_) | TcpOption::Unknown { .. } => None,
    }
}

/// Bytes that are an option field more often than not.
fn option_like_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![2u8, 3, 4, 5, 8]).prop_flat_map(|kind| {
            let length = match kind {
                2 => 4,
                3 => 3,
                4 => 2,
                5 => 18,
                _ => 10u8,
            };
            prop::collection::vec(any::<u8>(), usize::from(length) - 2).prop_map(move |data| {
                let mut option = vec![kind, length];
                option.extend(data);
                option
            })
        }),
        2 => Just(vec![1]),
        1 => prop::collection::vec(0..12u8, 1..6),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| {
        let mut field = pieces.concat();
        field.truncate(40);
        field
    })
}
