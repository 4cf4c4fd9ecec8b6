//! The reader reads captures of the writer and of other programs.

use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::{DataLink, Endianness};
use plait_pcap::{Direction, Interface, LinkType, Packet, ReadError, Reader, Writer};

const TIME: Duration = Duration::new(1_700_000_000, 123_456_789);

fn two_interfaces() -> Vec<Interface> {
    let first = Interface { description: Some("trusted".to_owned()), ..Interface::named("eth0") };
    vec![first, Interface { snap_length: 4, ..Interface::named("wlan0") }]
}

fn read(file: &[u8]) -> Vec<Packet<'static>> {
    let packets: Result<_, _> = Reader::new(file).expect("a capture").collect();
    packets.expect("well-formed")
}

#[test]
fn everything_that_is_written_is_read_again() {
    let mut writer = Writer::new(Vec::new(), Some("plait test"), two_interfaces()).expect("memory");
    let packets = [
        Packet::new(0, TIME, b"sent").going(Direction::Outbound),
        Packet::new(0, TIME + Duration::from_nanos(1), b"received")
            .going(Direction::Inbound)
            .commented("why"),
        Packet::new(1, TIME, b""),
    ];
    for packet in &packets {
        writer.write(packet).expect("memory");
    }
    let file = writer.into_inner();
    assert_eq!(read(&file), packets);
    let mut reader = Reader::new(&file[..]).expect("a capture");
    reader.next();
    assert_eq!(reader.interfaces(), two_interfaces());
}

/// The same capture by another writer: one interface with a description, one packet with a comment and a direction.
fn by_another_writer(interface: &Interface, packet: &Packet<'_>) -> Vec<u8> {
    let section = SectionHeaderBlock {
        endianness: Endianness::Little,
        options: vec![SectionHeaderOption::UserApplication("plait test".into())],
        ..SectionHeaderBlock::default()
    };
    let mut writer = PcapNgWriter::with_section_header(Vec::new(), section).expect("memory");
    let text = interface.description.clone().expect("there is one");
    let options = vec![
        InterfaceDescriptionOption::IfName(interface.name.clone().into()),
        InterfaceDescriptionOption::IfDescription(text.into()),
        InterfaceDescriptionOption::IfTsResol(9),
    ];
    let block = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
    writer.write_pcapng_block(block).expect("memory");
    let comment = packet.comment.clone().expect("there is one");
    let block = EnhancedPacketBlock {
        interface_id: packet.interface,
        timestamp: packet.at,
        original_len: packet.original_len,
        data: packet.data.clone(),
        options: vec![EnhancedPacketOption::Comment(comment), EnhancedPacketOption::Flags(2)],
    };
    writer.write_pcapng_block(block).expect("memory");
    writer.into_inner()
}

#[test]
fn the_bytes_are_those_of_another_writer() {
    for data in [&b""[..], b"1", b"12", b"123", b"1234"] {
        for comment in ["", "why", "four"] {
            let packet = Packet::new(0, TIME, data).going(Direction::Outbound).commented(comment);
            let interface = two_interfaces().remove(0);
            let mut writer =
                Writer::new(Vec::new(), Some("plait test"), [interface.clone()]).expect("memory");
            writer.write(&packet).expect("memory");
            assert_eq!(writer.into_inner(), by_another_writer(&interface, &packet), "{data:?} {comment}");
        }
    }
}

#[test]
fn a_text_that_an_option_cannot_hold_is_an_error() {
    let mut writer = Writer::new(Vec::new(), None, two_interfaces()).expect("memory");
    let longest = "x".repeat(usize::from(u16::MAX));
    writer.write(&Packet::new(0, TIME, b"x").commented(&*longest)).expect("it fits");
    writer.write(&Packet::new(0, TIME, b"x").commented(longest + "x")).expect_err("too long");
    assert_eq!(read(&writer.into_inner()).len(), 1, "and nothing was written");
}

#[test]
fn a_packet_is_cut_to_the_snap_length_of_its_interface_and_its_length_is_kept() {
    let mut writer = Writer::new(Vec::new(), None, two_interfaces()).expect("memory");
    for interface in [0, 1] {
        writer.write(&Packet::new(interface, TIME, b"123456")).expect("memory");
    }
    let packets = read(&writer.into_inner());
    assert_eq!((&packets[0].data[..], packets[0].original_len), (&b"123456"[..], 6));
    assert_eq!((&packets[1].data[..], packets[1].original_len), (&b"1234"[..], 6));
}

#[test]
fn a_packet_of_an_interface_that_was_not_announced_is_an_error() {
    let mut writer = Writer::new(Vec::new(), None, two_interfaces()).expect("memory");
    writer.write(&Packet::new(2, TIME, b"x")).expect_err("there are two");
    assert!(read(&writer.into_inner()).is_empty(), "and nothing was written");
}

#[test]
fn times_are_read_in_the_unit_of_their_interface() {
    // The last two: without the option microseconds; a power of two where the highest bit is set.
    for (resolution, count, nanos) in [
        (Some(9), 1_234_567_891, 1_234_567_891),
        (Some(6), 1_234_567, 1_234_567_000),
        (Some(12), 5_000_999, 5_000),
        (None, 7, 7_000),
        (Some(0x80 | 10), 512, 500_000_000),
    ] {
        for endianness in [Endianness::Little, Endianness::Big] {
            let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).expect("memory");
            let options = resolution.map(InterfaceDescriptionOption::IfTsResol).into_iter().collect();
            let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
            writer.write_pcapng_block(interface).expect("memory");
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(count),
                original_len: 1,
                data: b"x"[..].into(),
                options: Vec::new(),
            };
            writer.write_pcapng_block(packet).expect("memory");
            let found = read(&writer.into_inner());
            assert_eq!(found[0].at, Duration::from_nanos(nanos), "{resolution:?} {endianness:?}");
        }
    }
}

#[test]
fn packets_without_a_time_belong_to_the_first_interface() {
    let mut writer = PcapNgWriter::new(Vec::new()).expect("memory");
    let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options: Vec::new() };
    writer.write_pcapng_block(interface).expect("memory");
    writer
        .write_pcapng_block(SimplePacketBlock { original_len: 3, data: b"abc"[..].into() })
        .expect("memory");
    let found = read(&writer.into_inner());
    assert_eq!(found, [Packet::new(0, Duration::ZERO, b"abc")]);
}

#[test]
fn a_pcap_file_has_one_interface() {
    let header = PcapHeader { datalink: DataLink::ETHERNET, snaplen: 100, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    writer.write_packet(&PcapPacket::new(Duration::new(1, 2_000), 500, b"cut short")).expect("memory");
    let file = writer.into_writer();
    let mut reader = Reader::new(&file[..]).expect("a capture");
    assert_eq!(reader.interfaces()[0].link_type, LinkType::ETHERNET);
    let packet = reader.next().expect("one").expect("well-formed");
    assert_eq!(
        (packet.at, packet.original_len, &packet.data[..]),
        (Duration::new(1, 2_000), 500, &b"cut short"[..])
    );
    assert!(reader.next().is_none());
}

#[test]
fn a_file_that_ends_within_a_packet_gives_those_before_it_and_one_error() {
    let mut writer = Writer::new(Vec::new(), None, two_interfaces()).expect("memory");
    for _ in 0..3 {
        writer.write(&Packet::new(0, TIME, b"0123456789")).expect("memory");
    }
    let file = writer.into_inner();
    let found: Vec<_> =
        Reader::new(&file[..file.len() - 5]).expect("a capture").map(|packet| packet.is_ok()).collect();
    assert_eq!(found, [true, true, false]);
}

#[test]
fn a_packet_of_an_unknown_interface_ends_the_reading() {
    let mut writer = Writer::new(Vec::new(), None, two_interfaces()).expect("memory");
    writer.write(&Packet::new(1, TIME, b"0123")).expect("memory");
    let mut file = writer.into_inner();
    let at = file.len() - 36 + 8;
    assert_eq!(file[at], 1, "the number of the interface");
    file[at] = 9;
    let end = Reader::new(&file[..]).expect("a capture").next().expect("something");
    assert!(matches!(end, Err(ReadError::Format(_))), "{end:?}");
}

#[test]
fn what_is_no_capture_is_refused() {
    for bytes in [&b""[..], b"abc", b"GIF89a and more than four bytes of it, so that a header would fit"] {
        assert!(Reader::new(bytes).is_err());
    }
}
