//! Captures of one path, put together by hand, and what is read of them.

use bytes::Bytes;
use pcap_file::{DataLink, pcap};
use plait_base::SeqNum;
use plait_cryptanalysis::{Capture, Effort, Model, Recovered, Run, Score, Truth, read_runs};
use plait_pcap::{Interface, Packet, Writer};
use plait_wire::{
    DataAck, DataSequence, Dss, Flags, Mapping, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes,
};

const ENGLISH: &[u8] = include_bytes!("text/alice.txt");
const PAGE: &[u8] = include_bytes!("text/page.html");

#[test]
fn a_download_of_which_one_path_is_seen_is_read_nearly_whole() {
    let wire = scramble(ENGLISH, b"any key.");
    // Every other 500 bytes go over the path without an eavesdropper.
    let seen = visits(&wire, 500);
    let capture = pcapng(0, mapped_segments(&seen, Order::AsSent));
    assert!(
        !capture.windows(8).any(|bytes| ENGLISH.windows(8).any(|text| text == bytes)),
        "nothing in clear"
    );
    let (recovered, score) = attack(&capture, ENGLISH, &[]);
    assert_eq!(score.seen, seen.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    assert_eq!(recovered.len(), seen.len());
    assert!(recovered.iter().all(|piece| piece.bits_per_byte < 4.5), "it reads as text");
    assert!(score.fraction() >= 0.95, "{score:?}");
}

#[test]
fn a_web_page_with_its_headers_is_read_nearly_whole() {
    let page: Vec<u8> =
        PAGE.iter().flat_map(|&byte| if byte == b'\n' { vec![b'\r', b'\n'] } else { vec![byte] }).collect();
    let wire = scramble(&page, b"some key");
    let (_, score) = attack(&pcapng(0, mapped_segments(&visits(&wire, 700), Order::AsSent)), &page, &[]);
    assert!(score.fraction() >= 0.95, "{score:?}");
}

#[test]
fn disorder_duplicates_and_an_unseen_syn_change_nothing() {
    let wire = scramble(ENGLISH, b"whatever");
    let seen = visits(&wire, 1000);
    let in_order = runs(&pcapng(0, mapped_segments(&seen, Order::AsSent)));
    let out_of_order = runs(&pcapng(0, mapped_segments(&seen, Order::ShuffledAndTwice)));
    assert_eq!(in_order.len(), seen.len());
    assert_eq!(in_order, out_of_order);
    for (run, (_, bytes)) in in_order.iter().zip(&seen) {
        assert_eq!(run.scrambled, *bytes);
    }
    assert_eq!(in_order[1].start - in_order[0].start, 2000);
}

#[test]
fn a_lost_packet_leaves_two_runs() {
    let seen = [(0, scramble(&ENGLISH[..2000], b"whatever"))];
    let mut segments = mapped_segments(&seen, Order::AsSent);
    segments.remove(7);
    let runs = runs(&pcapng(0, segments));
    assert_eq!(runs.iter().map(|run| run.scrambled.len()).collect::<Vec<_>>(), [700, 1200]);
    assert_eq!(runs[1].start - runs[0].start, 800);
}

#[test]
fn plain_tcp_is_placed_by_its_sequence_numbers() {
    let wire = scramble(&ENGLISH[..1500], b"whatever");
    let mut segments: Vec<Segment> = wire
        .chunks(300)
        .enumerate()
        .map(|(at, bytes)| {
            segment((u32::MAX - 700).wrapping_add(300 * at as u32), option_bytes([]).expect("none"), bytes)
        })
        .collect();
    segments.reverse();
    let (_, score) = attack(&pcapng(0, segments), ENGLISH, &[]);
    assert_eq!(score.seen, 1500);
    assert!(score.fraction() >= 0.95, "{score:?}");
}

#[test]
fn eighty_known_bytes_open_what_no_model_can_guess() {
    let crib = b"-----BEGIN THE SECRET PART, WHICH EVERYBODY KNOWS IS INTRODUCED BY THIS VERY LINE-----";
    let plain = [&noise(500)[..], crib, &noise(3000)].concat();
    let wire = scramble(&plain, b"12345678");
    let run = Run { start: 77, scrambled: wire[400..].to_vec() };
    let model = Model::shipped();
    let quick = Effort { rows: 16, breadth: 64 };
    let with = read_runs(std::slice::from_ref(&run), &[crib.to_vec()], &model, quick);
    assert_eq!(with[0].settled, 65);
    assert_eq!(with[0].plain, plain[400..]);
    assert_eq!(with[0].before, plain[336..400], "and what went over the other path just before");

    let without = read_runs(&[run], &[], &model, quick);
    assert!(without[0].bits_per_byte > 5.0, "noise does not pass for text: {}", without[0].bits_per_byte);
}

#[test]
fn what_one_run_ends_in_opens_the_next_across_a_small_gap() {
    let wire = scramble(&ENGLISH[..2000], b"whatever");
    let piece = |from: usize, to: usize| Run { start: from as u64, scrambled: wire[from..to].to_vec() };
    let all = read_runs(&[piece(100, 1100), piece(1130, 1400)], &[], &Model::shipped(), Effort::default());
    assert_eq!(all[1].settled, 34);
    assert_eq!(all[1].plain, ENGLISH[1130..1400]);
    assert_eq!(all[1].before[34..], ENGLISH[1100..1130], "the gap itself is read too");
}

#[test]
fn the_right_interface_is_picked_and_other_frames_are_counted() {
    let wire = scramble(&ENGLISH[..900], b"whatever");
    let file = pcapng(1, mapped_segments(&[(0, wire)], Order::AsSent));
    assert!(Capture::read(&file[..], Some(0)).expect("a capture").largest().is_none());
    let capture = Capture::read(&file[..], Some(1)).expect("a capture");
    assert_eq!(capture.largest().expect("a flow").1.payload_len(), 900);
    assert_eq!(capture.flows().count(), 1);

    let cut = &file[..file.len() - 10];
    assert_eq!(Capture::read(cut, None).expect("a capture").largest().expect("a flow").1.payload_len(), 800);
    assert!(Capture::read(&b"no capture at all, but long enough to look at"[..], None).is_err());
    assert!(Capture::read(&b""[..], None).is_err());
}

#[test]
fn a_classic_pcap_is_read_as_well() {
    let wire = scramble(&ENGLISH[..900], b"whatever");
    let header = pcap::PcapHeader { datalink: DataLink::ETHERNET, ..Default::default() };
    let mut writer = pcap::PcapWriter::with_header(Vec::new(), header).expect("written");
    for segment in mapped_segments(&[(0, wire.clone())], Order::AsSent) {
        let frame = [&[0; 12][..], &[0x08, 0x00], &segment.to_bytes(1)].concat();
        let length = frame.len() as u32;
        let packet = pcap::PcapPacket::new_owned(std::time::Duration::ZERO, length, frame);
        writer.write_packet(&packet).expect("written");
    }
    let arp = [&[0; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    writer.write_packet(&pcap::PcapPacket::new(std::time::Duration::ZERO, 42, &arp)).expect("written");
    let capture = Capture::read(&writer.into_writer()[..], None).expect("a capture");
    assert_eq!((capture.other, capture.malformed), (1, 0));
    assert_eq!(capture.largest().expect("a flow").1.runs()[0].scrambled, wire);
}

#[test]
fn a_packet_cut_short_by_the_capture_is_counted_and_the_next_is_read() {
    let wire = scramble(&ENGLISH[..900], b"whatever");
    let header = pcap::PcapHeader { datalink: DataLink::RAW, snaplen: 150, ..Default::default() };
    let mut writer = pcap::PcapWriter::with_header(Vec::new(), header).expect("written");
    for (at, segment) in mapped_segments(&[(0, wire)], Order::AsSent).into_iter().enumerate() {
        let packet = segment.to_bytes(1);
        let kept = &packet[..if at == 3 { 150 } else { packet.len() }];
        assert!(at == 3 || kept.len() > 150, "all packets are longer than the file says");
        let whole = packet.len() as u32;
        let raw = pcap::RawPcapPacket {
            ts_sec: 0,
            ts_frac: 0,
            incl_len: kept.len() as u32,
            orig_len: whole,
            data: kept.into(),
        };
        writer.write_raw_packet(&raw).expect("written");
    }
    let capture = Capture::read(&writer.into_writer()[..], None).expect("a capture");
    assert_eq!((capture.other, capture.malformed), (0, 1));
    let lengths: Vec<usize> =
        capture.largest().expect("a flow").1.runs().iter().map(|run| run.scrambled.len()).collect();
    assert_eq!(lengths, [300, 500]);
}

fn attack(capture: &[u8], plain: &[u8], cribs: &[Vec<u8>]) -> (Vec<Recovered>, Score) {
    let runs = runs(capture);
    let recovered = read_runs(&runs, cribs, &Model::shipped(), Effort::default());
    let score = Truth::align(plain, &runs).expect("it is the text").score(&recovered);
    (recovered, score)
}

fn runs(capture: &[u8]) -> Vec<Run> {
    let capture = Capture::read(capture, None).expect("a capture");
    assert_eq!((capture.other, capture.malformed, capture.left_out), (0, 0, 0));
    capture.largest().expect("a flow").1.runs()
}

/// Kato 2018, Figure 14, with the key's 8 bytes before the first byte.
fn scramble(plain: &[u8], key: &[u8; 8]) -> Vec<u8> {
    let stream = [&[0; 56][..], key, plain].concat();
    stream.windows(65).map(|window| window.iter().fold(0, |sum, byte| sum ^ byte)).collect()
}

/// Every other `length` bytes of the stream, with their places.
fn visits(wire: &[u8], length: usize) -> Vec<(u64, Vec<u8>)> {
    let places = (0..).map(|number| (number * length) as u64);
    places.zip(wire.chunks(length)).skip(1).step_by(2).map(|(place, bytes)| (place, bytes.to_vec())).collect()
}

enum Order {
    AsSent,
    ShuffledAndTwice,
}

/// The subflow of the path: its visits one behind the other, one mapping each, in wire segments of 100 bytes that
/// all repeat the mapping. Sequence numbers of both levels wrap on the way; the SYN was before the capture.
fn mapped_segments(visits: &[(u64, Vec<u8>)], order: Order) -> Vec<Segment> {
    let initial = u32::MAX - 1500;
    let mut ssn = 1_u32;
    let mut segments = Vec::new();
    for (place, bytes) in visits {
        let mapping = Mapping {
            dsn: DataSequence::Long(place.wrapping_add(u64::MAX - 2500)),
            ssn,
            length: bytes.len() as u16,
            checksum: None,
        };
        let dss = Dss { data_ack: Some(DataAck::Long(1)), mapping: Some(mapping), data_fin: false };
        let options = option_bytes([TcpOption::Mptcp(MptcpOption::Dss(dss))]).expect("it fits");
        for (at, piece) in bytes.chunks(100).enumerate() {
            segments.push(segment(initial.wrapping_add(ssn + 100 * at as u32), options.clone(), piece));
        }
        ssn += bytes.len() as u32;
    }
    if let Order::ShuffledAndTwice = order {
        // A stride without a common factor visits all.
        let count = segments.len();
        let stride = (3..).find(|stride| !count.is_multiple_of(*stride) && stride % 2 == 1).expect("one");
        let shuffled: Vec<Segment> = (0..count).map(|at| segments[at * stride % count].clone()).collect();
        segments.truncate(5);
        segments.extend(shuffled);
    }
    segments
}

fn segment(seq: u32, options: OptionBytes, payload: &[u8]) -> Segment {
    Segment {
        source: "10.1.0.1:443".parse().expect("an address"),
        destination: "10.1.0.2:50000".parse().expect("an address"),
        seq: SeqNum::new(seq),
        ack: SeqNum::new(1),
        flags: Flags::ACK,
        window: 1000,
        urgent: 0,
        options,
        payload: Bytes::copy_from_slice(payload),
        segment_size: 1400,
        ecn: 0,
        flow_label: 0,
    }
}

/// A capture with two interfaces, all packets on the one numbered `interface`.
fn pcapng(interface: u32, segments: Vec<Segment>) -> Vec<u8> {
    let interfaces = ["a", "b"].map(Interface::named);
    let mut writer = Writer::new(Vec::new(), None, interfaces).expect("written");
    for segment in segments {
        let packet = segment.to_bytes(1);
        writer.write(&Packet::new(interface, std::time::Duration::ZERO, &packet)).expect("written");
    }
    writer.into_inner()
}

/// Bytes without a pattern, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
