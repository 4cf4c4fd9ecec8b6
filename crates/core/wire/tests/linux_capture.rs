//! Packets of the Linux kernel, parsed one by one, and written again byte by byte.

mod captures;

use bytes::Bytes;
use plait_wire::{
    AddAddr, DataAck, DataSequence, Dss, Flags, Mapping, MpCapable, MpJoin, MpReset, MptcpOption, Packet,
    Segment, TcpOption, Trust, data_checksum, options,
};

#[test]
fn every_packet_of_linux_is_read_as_what_it_says() {
    let captured = captures::linux();
    assert!(captured.len() > 60, "the capture is there");
    let lines: Vec<_> = captured.iter().map(|captured| line(&segment(&captured.packet))).collect();
    let expected: Vec<_> = captured.iter().map(|captured| captured.line).collect();
    assert_eq!(lines, expected, "\n{}", lines.join("\n"));
}

/// Identification and flow label are the sender's to choose, so the comparison starts at the TCP header;
/// the checksum in it covers the addresses.
#[test]
fn every_packet_of_linux_is_written_again_as_it_was() {
    for captured in captures::linux() {
        let segment = segment(&captured.packet);
        let written = segment.to_bytes(0);
        let ip = segment.ip_version().header_len();
        assert_eq!(written[ip..], captured.packet[ip..], "{}", captured.line);

        let mut again = plait_wire::OptionBytes::new();
        let mut rest = &segment.options[..];
        while let Some(&kind) = rest.first() {
            let len = if kind <= 1 { 1 } else { usize::from(rest[1]) };
            let (one, behind) = rest.split_at(len);
            if kind <= 1 {
                again.push(kind);
            }
            for option in options(one) {
                assert!(option.expect("Linux is right").emit(&mut again), "it did fit");
            }
            rest = behind;
        }
        assert_eq!(again, segment.options, "{}", captured.line);
    }
}

#[test]
fn the_checksums_that_linux_puts_into_its_mappings_are_ours() {
    let mut compared = 0;
    for captured in captures::linux() {
        let segment = segment(&captured.packet);
        for option in options(&segment.options) {
            let Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping: Some(mapping), .. }))) = option else {
                continue;
            };
            let Mapping { dsn: DataSequence::Long(dsn), ssn, length, checksum: Some(checksum) } = mapping
            else {
                continue;
            };
            assert_eq!(data_checksum(dsn, ssn, length, segment.payload_sum()), checksum, "{}", captured.line);
            compared += 1;
        }
    }
    assert_eq!(compared, 2, "both captures with checksums have a mapping");
}

/// The first mapping is announced by MP_CAPABLE without a number: it starts twelve bytes before what the
/// Data-ACK behind it acknowledges.
#[test]
fn the_checksum_of_the_first_mapping_in_mp_capable_is_ours() {
    let captured = captures::linux();
    let mut waiting = None;
    let mut compared = 0;
    for segment in captured.iter().map(|captured| segment(&captured.packet)) {
        for option in options(&segment.options) {
            match option.expect("Linux is right") {
                TcpOption::Mptcp(MptcpOption::Capable(MpCapable {
                    data_length: Some(length),
                    checksum: Some(checksum),
                    ..
                })) => waiting = Some((length, checksum, segment.payload_sum())),
                TcpOption::Mptcp(MptcpOption::Dss(Dss { data_ack: Some(DataAck::Long(ack)), .. })) => {
                    if let Some((length, checksum, payload)) = waiting.take() {
                        let dsn = ack - u64::from(length);
                        assert_eq!(data_checksum(dsn, 1, length, payload), checksum);
                        compared += 1;
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(compared, 2);
}

fn segment(packet: &Bytes) -> Segment {
    match Packet::parse(packet, 0, Trust::Verify).expect("Linux is right") {
        Packet::Tcp(segment) => segment,
        Packet::Icmp(error) => panic!("an ICMP error in the capture: {error:?}"),
    }
}

/// Ports, flags, ECN, payload and options of a segment in one line.
fn line(segment: &Segment) -> String {
    let Segment { source, destination, payload, ecn, .. } = segment;
    let mut line = format!("{}>{} {}", source.port(), destination.port(), flags(segment.flags));
    if *ecn != 0 {
        line += &format!(" ecn {ecn}");
    }
    if !payload.is_empty() {
        line += &format!(" {} bytes", payload.len());
    }
    for option in options(&segment.options) {
        line += ", ";
        line += &option_line(&option.expect("Linux is right"));
    }
    line
}

fn flags(flags: Flags) -> String {
    let letters = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
    ];
    letters.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, letter)| letter).collect()
}

fn option_line(option: &TcpOption<'_>) -> String {
    match option {
        TcpOption::Mss(size) => format!("mss {size}"),
        TcpOption::WindowScale(shift) => format!("wscale {shift}"),
        TcpOption::SackPermitted => "sackOK".into(),
        TcpOption::Sack(blocks) => format!("sack {}", blocks.len()),
        TcpOption::Timestamps { .. } => "TS".into(),
        TcpOption::Mptcp(option) => mptcp_line(option),
        TcpOption::Eno(eno) => format!("eno {:02x?}", eno.contents),
        TcpOption::Unknown { kind, data } => format!("kind {kind} {data:02x?}"),
    }
}

fn mptcp_line(option: &MptcpOption<'_>) -> String {
    match option {
        MptcpOption::Capable(MpCapable {
            version,
            flags,
            sender_key,
            receiver_key,
            data_length,
            checksum,
        }) => {
            let keys = usize::from(sender_key.is_some()) + usize::from(receiver_key.is_some());
            let csum = if checksum.is_some() { " csum" } else { "" };
            let length = data_length.map(|length| format!(" len {length}")).unwrap_or_default();
            format!("capable v{version} {:02x} keys {keys}{length}{csum}", flags.0)
        }
        MptcpOption::Join(MpJoin::Syn { backup, reserved: 0, address_id, .. }) => {
            format!("join syn id {address_id}{}", if *backup { " backup" } else { "" })
        }
        MptcpOption::Join(MpJoin::SynAck { backup, reserved: 0, address_id, .. }) => {
            format!("join syn/ack id {address_id}{}", if *backup { " backup" } else { "" })
        }
        MptcpOption::Join(join @ (MpJoin::Syn { .. } | MpJoin::SynAck { .. })) => format!("{join:?}"),
        MptcpOption::Join(MpJoin::Ack { .. }) => "join ack".into(),
        MptcpOption::Dss(Dss { data_ack, mapping, data_fin }) => {
            let mut line = String::from("dss");
            match data_ack {
                None => {}
                Some(DataAck::Short(_)) => line += " ack4",
                Some(DataAck::Long(_)) => line += " ack8",
            }
            if let Some(Mapping { dsn, ssn, length, checksum }) = mapping {
                line += match dsn {
                    DataSequence::Short(_) => " dsn4",
                    DataSequence::Long(_) => " dsn8",
                };
                line += &format!(" ssn {ssn} len {length}");
                line += if checksum.is_some() { " csum" } else { "" };
            }
            line += if *data_fin { " fin" } else { "" };
            line
        }
        MptcpOption::AddAddr(AddAddr { echo, address_id, address, port, hmac }) => {
            let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
            let kind = match (echo, hmac) {
                (false, Some(_)) => "add_addr",
                (true, None) => "add_addr echo",
                (false, None) | (true, Some(_)) => "add_addr ?",
            };
            format!("{kind} id {address_id} {address}{port}")
        }
        MptcpOption::RemoveAddr(remove) => format!("remove_addr {:?}", remove.address_ids),
        MptcpOption::Prio(prio) => format!("prio{}", if prio.backup { " backup" } else { "" }),
        MptcpOption::Fail(_) => "fail".into(),
        MptcpOption::FastClose(_) => "fastclose".into(),
        MptcpOption::Reset(MpReset { transient, reserved, reason }) => {
            format!("reset {reason:?}{} {reserved}", if *transient { " transient" } else { "" })
        }
        MptcpOption::Unknown { subtype, low_bits, data } => {
            format!("subtype {subtype} {low_bits} {data:02x?}")
        }
    }
}
