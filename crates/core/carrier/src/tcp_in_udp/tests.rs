use super::*;
use plait_wire::{Packet, Trust};
use proptest::prelude::*;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn segment(flags: Flags, options: &[u8], payload: &[u8], segment_size: u16) -> Segment {
    Segment {
        source: address("192.0.2.1:49153"),
        destination: address("192.0.2.2:7443"),
        seq: SeqNum::new(0x0102_0304),
        ack: SeqNum::new(0x0a0b_0c0d),
        flags,
        window: 0x0200,
        urgent: 0,
        options: OptionBytes::try_from(options).expect("at most 40 bytes"),
        payload: Bytes::copy_from_slice(payload),
        segment_size,
        ecn: 2,
        flow_label: 0,
    }
}

const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
const ACK_PSH: Flags = Flags(0x18);

fn taken_apart(bytes: &[u8], stride: usize) -> Vec<Result<Segment, Malformed>> {
    let mut buffer = bytes.to_vec();
    let mut found = Vec::new();
    trains(&mut buffer, stride, |train| found.push(train));
    let bytes = Bytes::from(buffer);
    let between = (address("192.0.2.1:49153"), address("192.0.2.2:7443"));
    found.into_iter().map(|train| train.and_then(|train| train.segment(between, 2, &bytes))).collect()
}

#[test]
fn known_bytes_are_written_and_read() {
    // Put together by hand from the layout of tcp-in-udp; the checksum comes from another program.
    let known = "c0011d130025b36380180200010203040a0b0c0d0101080a0000000700000009706c616974";
    let segment = segment(ACK_PSH, &TIMESTAMPS, b"plait", 5);
    let written = datagram(&segment);
    let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, known);
    let (source, destination) = (segment.source.ip(), segment.destination.ip());
    assert_eq!(parse_datagram(source, destination, 2, &written.into()), Ok(segment));
}

#[test]
fn a_datagram_is_as_long_as_the_segment_in_tcp() {
    for (flags, options) in [(ACK_PSH, &TIMESTAMPS[..]), (Flags::ACK, &[]), (Flags::ACK, &[1, 1, 1])] {
        let segment = segment(flags, options, b"some bytes", 10);
        let tcp = segment.to_bytes(0).len() - segment.ip_version().header_len();
        assert_eq!(datagram(&segment).len(), tcp);
    }
}

#[test]
fn a_syn_is_as_long_as_any_answer_to_it() {
    let syn = segment(Flags::SYN, &[2, 4, 5, 0xb4], &[], 1);
    let written = datagram(&syn);
    assert_eq!(written.len(), MAX_HEADER);
    let read =
        parse_datagram(syn.source.ip(), syn.destination.ip(), 0, &written.into()).expect("well-formed");
    let options: Vec<_> = plait_wire::options(&read.options).collect();
    assert_eq!(options, plait_wire::options(&syn.options).collect::<Vec<_>>(), "the rest says nothing");
    let answer = segment(Flags::SYN.with(Flags::ACK), &[1; 40], &[], 1);
    assert!(datagram(&answer).len() <= MAX_HEADER);
}

#[test]
fn a_train_leaves_as_datagrams_of_one_size_and_arrives_as_one_super_segment() {
    let payload: Vec<u8> = (0..3001).map(|i| (i % 251) as u8).collect();
    let whole = segment(ACK_PSH, &TIMESTAMPS, &payload, 1000);
    let mut datagrams = Datagrams::default();
    datagrams.write(&whole);
    assert_eq!((datagrams.size(), datagrams.bytes().len()), (1024, 3 * 1024 + 25));
    assert_eq!(taken_apart(datagrams.bytes(), 1024), [Ok(whole)]);
    datagrams.write(&segment(Flags::ACK, &[], &[], 1));
    assert_eq!((datagrams.size(), datagrams.bytes().len()), (12, 12), "what was there before is gone");
}

#[test]
fn what_was_no_super_segment_is_none() {
    let first = segment(Flags::ACK, &TIMESTAMPS, &[1; 100], 100);
    let next = |change: fn(&mut Segment)| {
        let mut next = Segment { seq: first.seq + 100, ..first.clone() };
        change(&mut next);
        let mut datagrams = Datagrams::default();
        datagrams.write(&first);
        let mut bytes = datagrams.bytes().to_vec();
        datagrams.write(&next);
        bytes.extend_from_slice(datagrams.bytes());
        let found = taken_apart(&bytes, 124);
        let is_one = found.len() == 1;
        assert!(is_one || found == [Ok(first.clone()), Ok(next)], "nothing is lost: {found:?}");
        is_one
    };
    assert!(next(|_| {}));
    assert!(next(|next| next.flags = ACK_PSH), "the end of a train");
    let others: [fn(&mut Segment); 7] = [
        |next| next.seq += 1,
        |next| next.ack += 1,
        |next| next.window += 1,
        |next| next.options[11] += 1,
        |next| next.flags = Flags::ACK.with(Flags::RST),
        |next| next.flags = Flags::ACK.with(Flags::ECE),
        |next| {
            next.payload = Bytes::new();
            next.segment_size = 1;
        },
    ];
    for other in others {
        assert!(!next(other));
    }
}

#[test]
fn what_arrives_behind_a_push_is_a_train_of_its_own() {
    let first = segment(ACK_PSH, &[], &[1; 100], 100);
    let second = Segment { seq: first.seq + 100, ..first.clone() };
    let mut bytes = Vec::new();
    for segment in [&first, &second] {
        bytes.extend_from_slice(&datagram(segment)[UDP_HEADER..]);
    }
    assert_eq!(taken_apart(&bytes, 112), [Ok(first), Ok(second)]);
}

#[test]
fn what_is_malformed_is_told_with_its_reason_and_costs_its_neighbours_nothing() {
    let good = datagram(&segment(ACK_PSH, &TIMESTAMPS, b"plait", 5))[UDP_HEADER..].to_vec();
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        bad
    };
    for (bad, reason) in [
        (with(0, 0x40), Malformed::HeaderLength),
        (with(0, 0x10), Malformed::HeaderLength),
        (with(0, 0xf0), Malformed::HeaderLength),
        (with(1, 0x08), Malformed::Flags),
        (with(1, 0x03), Malformed::Flags),
        (with(1, 0x06), Malformed::Flags),
        // The flag of an urgent pointer that is not there.
        (with(1, 0x38), Malformed::Flags),
    ] {
        let found = taken_apart(&[&good[..], &bad, &good].concat(), good.len());
        assert_eq!(found[1], Err(reason), "{bad:02x?}");
        assert!(found.len() == 3 && found[0].is_ok() && found[2].is_ok());
    }
    for len in 1..SHOWN {
        assert_eq!(taken_apart(&good[..len], len), [Err(Malformed::Truncated)], "{len} bytes");
    }
    assert_eq!(taken_apart(&[], 0), [], "an empty datagram says nothing");
}

#[test]
fn a_whole_datagram_needs_its_length_its_checksum_and_its_ports() {
    let sent = segment(ACK_PSH, &TIMESTAMPS, b"plait", 5);
    let good = datagram(&sent);
    let parse = |bytes: Vec<u8>| parse_datagram(sent.source.ip(), sent.destination.ip(), 0, &bytes.into());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(parse(bad).is_err(), "the byte at {at} is not looked at");
    }
    let mut without = good.clone();
    without[6..8].fill(0);
    assert_eq!(parse(without), Err(Malformed::Checksum), "TCP has no segment without a checksum");
    assert_eq!(parse(good[..7].to_vec()), Err(Malformed::Truncated));
    assert_eq!(parse([&good[..], b"x"].concat()), Err(Malformed::Truncated));
    let portless = Segment { source: SocketAddr::new(sent.source.ip(), 0), ..sent.clone() };
    assert_eq!(parse(datagram(&portless)), Err(Malformed::Address));
}

proptest! {
    #[test]
    fn a_segment_is_the_same_in_udp_as_in_tcp(
        is_v6: bool,
        ports in (1u16.., 1u16..),
        numbers: (u32, u32, u16),
        flags in 0u16..0x200,
        options in proptest::collection::vec(1u8..2, 0..=10),
        payload in proptest::collection::vec(any::<u8>(), 0..3000),
        ecn in 0u8..4,
    ) {
        let flags = Flags(flags).without(Flags::URG);
        // A SYN is filled up.
        prop_assume!(flags.are_possible() && (flags.contains(Flags::ACK) || !flags.contains(Flags::SYN)));
        let (source, destination) = if is_v6 { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let options: Vec<u8> = options.iter().flat_map(|byte| [*byte; 4]).collect();
        let segment = Segment {
            source: SocketAddr::new(ip(source), ports.0),
            destination: SocketAddr::new(ip(destination), ports.1),
            seq: SeqNum::new(numbers.0),
            ack: SeqNum::new(numbers.1),
            flags,
            window: numbers.2,
            urgent: 0,
            options: OptionBytes::try_from(&options[..]).expect("at most 40 bytes"),
            segment_size: payload.len().max(1) as u16,
            payload: payload.into(),
            ecn,
            flow_label: 0,
        };
        let tcp = Packet::parse(&segment.to_bytes(0).into(), 0, Trust::Verify);
        let udp = parse_datagram(ip(source), ip(destination), ecn, &datagram(&segment).into());
        prop_assert_eq!(tcp, udp.map(Packet::Tcp));
    }

    #[test]
    fn no_bytes_make_it_panic_or_make_more_payload_than_there_are_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        stride in 0usize..700,
    ) {
        let found = taken_apart(&bytes, stride);
        let payload: usize = found.iter().flatten().map(|segment| segment.payload.len()).sum();
        prop_assert!(payload <= bytes.len());
        prop_assert!(found.len() <= bytes.len().div_ceil(stride.max(1)));
    }
}

#[test]
fn a_datagram_beside_the_stream_is_told_from_segments_before_trains_are_merged() {
    let beside = |first: u8| [&[first][..], &[7; 111]].concat();
    let sent = Segment::datagram(address("192.0.2.1:49153"), address("192.0.2.2:7443"), 2, beside(4).into());
    let mut written = Datagrams::default();
    written.write(&sent);
    assert_eq!((written.bytes(), written.size()), (&beside(4)[..], 112));
    let whole = datagram(&sent);
    let (source, destination) = (sent.source.ip(), sent.destination.ip());
    assert_eq!(parse_datagram(source, destination, 2, &whole.into()), Ok(sent.clone()));

    // Receive offload has merged what has one length, of whatever kind.
    let payload = [1; 200];
    let train = segment(ACK_PSH, &[], &payload, 100);
    let mut merged = Vec::new();
    for (number, part) in train.split().enumerate() {
        let mut one = Datagrams::default();
        one.write(&part);
        merged.extend_from_slice(one.bytes());
        merged.extend(beside(4 + number as u8));
    }
    let found = taken_apart(&merged, 112);
    let are_beside: Vec<_> = found.iter().flatten().map(Segment::is_datagram).collect();
    assert_eq!(are_beside, [false, true, false, true]);
    assert_eq!(found[1], Ok(sent));
    for first in [0x00, 0x03, 0x10, 0x4f] {
        assert!(taken_apart(&beside(first), 112)[0].is_err(), "{first:02x} is neither");
    }
}
