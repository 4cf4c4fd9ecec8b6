//! Every option of RFC 9293, 7323, 2018 and 8684 in every form, as the figures of the RFCs lay it out.

use plait_base::SeqNum;
use plait_wire::{
    AddAddr, CapableFlags, DataAck, DataSequence, Dss, FastClose, Malformed, Mapping, MpCapable, MpFail,
    MpJoin, MpPrio, MpReset, MptcpOption, OptionBytes, RemoveAddr, ResetReason, TcpOption, option_bytes,
    options,
};

/// The bytes are read as the option, and the option is written as the bytes.
#[track_caller]
fn is(bytes: &[u8], option: TcpOption<'_>) {
    assert_eq!(options(bytes).collect::<Vec<_>>(), [Ok(option.clone())]);
    let mut written = OptionBytes::new();
    assert!(option.emit(&mut written));
    assert_eq!(written[..], *bytes);
    assert_eq!(option.len(), bytes.len());
}

#[track_caller]
fn is_mptcp(bytes: &[u8], option: MptcpOption<'_>) {
    assert_eq!(MptcpOption::parse(&bytes[2..]), Ok(option.clone()));
    is(bytes, TcpOption::Mptcp(option));
}

const KEY: [u8; 8] = [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7];
const OTHER_KEY: [u8; 8] = [0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7];

#[test]
fn plain_options() {
    is(&[2, 4, 0x05, 0xb4], TcpOption::Mss(1460));
    is(&[3, 3, 14], TcpOption::WindowScale(14));
    is(&[3, 3, 255], TcpOption::WindowScale(255));
    is(&[4, 2], TcpOption::SackPermitted);
    is(
        &[8, 10, 0x01, 0x02, 0x03, 0x04, 0xf1, 0xf2, 0xf3, 0xf4],
        TcpOption::Timestamps { value: 0x0102_0304, echo: 0xf1f2_f3f4 },
    );
    is(
        &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        TcpOption::Unknown { kind: 19, data: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16] },
    );
    is(&[254, 2], TcpOption::Unknown { kind: 254, data: &[] });
}

#[test]
fn sack_with_one_to_four_blocks() {
    let mut bytes = vec![5, 2];
    let mut blocks = plait_wire::SackBlocks::new();
    for n in 0..4u32 {
        let (left, right) = (0xffff_ff00 + n * 8, 0xffff_ff04 + n * 8);
        bytes.extend(left.to_be_bytes());
        bytes.extend(right.to_be_bytes());
        bytes[1] += 8;
        blocks.push((SeqNum::new(left), SeqNum::new(right)));
        is(&bytes, TcpOption::Sack(blocks.clone()));
    }
}

#[test]
fn mp_capable_in_its_five_lengths() {
    let mut capable = MpCapable {
        version: 1,
        flags: CapableFlags(CapableFlags::CHECKSUM | CapableFlags::HMAC_SHA256),
        sender_key: None,
        receiver_key: None,
        data_length: None,
        checksum: None,
    };
    let mut bytes = vec![30, 4, 0x01, 0x81];
    is_mptcp(&bytes, MptcpOption::Capable(capable));

    (bytes[1], capable.sender_key) = (12, Some(KEY));
    bytes.extend(KEY);
    is_mptcp(&bytes, MptcpOption::Capable(capable));

    (bytes[1], capable.receiver_key) = (20, Some(OTHER_KEY));
    bytes.extend(OTHER_KEY);
    is_mptcp(&bytes, MptcpOption::Capable(capable));

    (bytes[1], capable.data_length) = (22, Some(0x0578));
    bytes.extend([0x05, 0x78]);
    is_mptcp(&bytes, MptcpOption::Capable(capable));

    (bytes[1], capable.checksum) = (24, Some(0xbeef));
    bytes.extend([0xbe, 0xef]);
    is_mptcp(&bytes, MptcpOption::Capable(capable));

    bytes[2] = 0x0f;
    bytes[3] = 0xff;
    (capable.version, capable.flags) = (15, CapableFlags(0xff));
    is_mptcp(&bytes, MptcpOption::Capable(capable));
}

//= rfc8684 3.2-05
#[test]
fn mp_join_in_its_three_forms() {
    is_mptcp(
        &[30, 12, 0x11, 3, 0xde, 0xad, 0xbe, 0xef, 0x01, 0x02, 0x03, 0x04],
        MptcpOption::Join(MpJoin::Syn {
            backup: true,
            reserved: 0,
            address_id: 3,
            token: 0xdead_beef,
            nonce: 0x0102_0304,
        }),
    );
    is_mptcp(
        &[30, 16, 0x1a, 255, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xff, 0xfe, 0xfd, 0xfc],
        MptcpOption::Join(MpJoin::SynAck {
            backup: false,
            reserved: 5,
            address_id: 255,
            hmac: KEY,
            nonce: 0xfffe_fdfc,
        }),
    );
    let hmac: [u8; 20] = core::array::from_fn(|i| i as u8 + 1);
    let mut bytes = vec![30, 24, 0x10, 0];
    bytes.extend(hmac);
    is_mptcp(&bytes, MptcpOption::Join(MpJoin::Ack { hmac }));
}

/// All combinations of Data-ACK, mapping, their sizes, checksum and DATA_FIN, laid out by hand.
//= rfc8684 3.3-01
#[test]
fn dss_in_all_its_forms() {
    let acks = [None, Some(DataAck::Short(0x1122_3344)), Some(DataAck::Long(0x1122_3344_5566_7788))];
    let dsns =
        [None, Some(DataSequence::Short(0x99aa_bbcc)), Some(DataSequence::Long(0x99aa_bbcc_ddee_ff00))];
    let mut forms = 0;
    for data_ack in acks {
        for dsn in dsns {
            for checksum in [None, Some(0xcafe)] {
                for data_fin in [false, true] {
                    if dsn.is_none() && (checksum.is_some() || data_fin) {
                        continue;
                    }
                    let mut flags = 0;
                    let mut fields = Vec::new();
                    match data_ack {
                        None => {}
                        Some(DataAck::Short(_)) => {
                            flags |= 0b00001;
                            fields.extend([0x11, 0x22, 0x33, 0x44]);
                        }
                        Some(DataAck::Long(_)) => {
                            flags |= 0b00011;
                            fields.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
                        }
                    }
                    match dsn {
                        None => {}
                        Some(DataSequence::Short(_)) => {
                            flags |= 0b00100;
                            fields.extend([0x99, 0xaa, 0xbb, 0xcc]);
                        }
                        Some(DataSequence::Long(_)) => {
                            flags |= 0b01100;
                            fields.extend([0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00]);
                        }
                    }
                    if dsn.is_some() {
                        fields.extend([0x00, 0x00, 0x00, 0x01, 0x05, 0x78]);
                    }
                    if checksum.is_some() {
                        fields.extend([0xca, 0xfe]);
                    }
                    if data_fin {
                        flags |= 0b10000;
                    }
                    let mut bytes = vec![30, 4 + fields.len() as u8, 0x20, flags];
                    bytes.extend(fields);
                    let mapping = dsn.map(|dsn| Mapping { dsn, ssn: 1, length: 0x0578, checksum });
                    is_mptcp(&bytes, MptcpOption::Dss(Dss { data_ack, mapping, data_fin }));
                    forms += 1;
                }
            }
        }
    }
    assert_eq!(forms, 3 * (1 + 2 * 4));
}

//= https://www.rfc-editor.org/rfc/rfc8684#section-3.3
//= type=test
//# The flags "a" and "m" only have meaning if the corresponding "A" or
//# "M" flags are set; otherwise, they will be ignored.
#[test]
fn size_flags_without_what_they_size_are_ignored_and_so_are_reserved_ones() {
    let empty = MptcpOption::Dss(Dss::default());
    for flags in [0x00, 0x02, 0x08, 0x0a, 0x10, 0x1a, 0xe0] {
        assert_eq!(MptcpOption::parse(&[0x20, flags]), Ok(empty.clone()), "{flags:#x}");
    }
    let ack = MptcpOption::Dss(Dss { data_ack: Some(DataAck::Short(7)), ..Dss::default() });
    assert_eq!(MptcpOption::parse(&[0x2f, 0xe1 | 0x08, 0, 0, 0, 7]), Ok(ack));
}

//= rfc8684 3.4.1-07
#[test]
fn add_addr_with_and_without_port_and_as_an_echo() {
    let add = |echo, address: &str, port, hmac| {
        let address = address.parse().expect("an address");
        MptcpOption::AddAddr(AddAddr { echo, address_id: 9, address, port, hmac })
    };
    let v6 = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for (address, octets) in [("192.0.2.7", &[192, 0, 2, 7][..]), ("2001:db8::1", &v6)] {
        let bytes = |first, fields: &[&[u8]]| {
            let mut bytes = vec![30, 0, first, 9];
            bytes.extend(octets);
            bytes.extend(fields.concat());
            bytes[1] = bytes.len() as u8;
            bytes
        };
        is_mptcp(&bytes(0x30, &[&KEY]), add(false, address, None, Some(KEY)));
        is_mptcp(&bytes(0x30, &[&[0x1f, 0x90], &KEY]), add(false, address, Some(8080), Some(KEY)));
        is_mptcp(&bytes(0x31, &[]), add(true, address, None, None));
        is_mptcp(&bytes(0x31, &[&[0x1f, 0x90]]), add(true, address, Some(8080), None));

        for reserved in [0x2, 0x4, 0x8, 0xe] {
            let bytes = bytes(0x30 | reserved, &[&KEY]);
            let read = MptcpOption::parse(&bytes[2..]);
            assert_eq!(read, Ok(add(false, address, None, Some(KEY))), "{reserved:#x}");
        }

        let without_hmac = bytes(0x30, &[]);
        assert_eq!(MptcpOption::parse(&without_hmac[2..]), Err(Malformed::OptionLength));
        let echo_with_hmac = bytes(0x31, &[&KEY]);
        assert_eq!(MptcpOption::parse(&echo_with_hmac[2..]), Err(Malformed::OptionLength));
    }
}

#[test]
fn the_small_mptcp_options() {
    is_mptcp(&[30, 4, 0x40, 7], MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[7] }));
    is_mptcp(&[30, 6, 0x40, 7, 0, 255], MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[7, 0, 255] }));
    is_mptcp(&[30, 3, 0x50], MptcpOption::Prio(MpPrio { backup: false }));
    is_mptcp(&[30, 3, 0x51], MptcpOption::Prio(MpPrio { backup: true }));
    is_mptcp(
        &[30, 12, 0x60, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        MptcpOption::Fail(MpFail { dsn: 0x0102_0304_0506_0708 }),
    );
    is_mptcp(
        &[30, 12, 0x70, 0, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7],
        MptcpOption::FastClose(FastClose { receiver_key: KEY }),
    );
}

//= rfc8684 3.6-03
#[test]
fn mp_tcprst_with_every_reason() {
    let named = [
        ResetReason::Unspecified,
        ResetReason::Mptcp,
        ResetReason::LackOfResources,
        ResetReason::Prohibited,
        ResetReason::TooMuchOutstanding,
        ResetReason::UnacceptablePerformance,
        ResetReason::MiddleboxInterference,
    ];
    for code in 0..=255u8 {
        let reason = named.get(usize::from(code)).copied().unwrap_or(ResetReason::Other(code));
        is_mptcp(&[30, 4, 0x80, code], MptcpOption::Reset(MpReset { transient: false, reserved: 0, reason }));
        is_mptcp(&[30, 4, 0x8d, code], MptcpOption::Reset(MpReset { transient: true, reserved: 6, reason }));
    }
}

#[test]
fn unknown_subtypes_are_kept() {
    for subtype in 0x9..=0xf_u8 {
        is_mptcp(&[30, 3, subtype << 4 | 5], MptcpOption::Unknown { subtype, low_bits: 5, data: &[] });
        is_mptcp(
            &[30, 7, subtype << 4, 0xf0, 1, 2, 3],
            MptcpOption::Unknown { subtype, low_bits: 0, data: &[0xf0, 1, 2, 3] },
        );
    }
}

/// For every kind and subtype with a layout: the lengths that exist, and no other.
#[test]
fn each_option_is_read_in_exactly_the_lengths_it_has() {
    let sack = [10, 18, 26, 34];
    let remove_addr: Vec<usize> = (4..=MAX).collect();
    let forms: [(&[u8], &[usize]); 18] = [
        (&[2], &[4]),
        (&[3], &[3]),
        (&[4], &[2]),
        (&[5], &sack),
        (&[8], &[10]),
        (&[30, 0x01, 0x01], &[4, 12, 20, 22, 24]),
        (&[30, 0x10], &[12, 16, 24]),
        (&[30, 0x20, 0x00], &[4]),
        (&[30, 0x20, 0x01], &[8]),
        (&[30, 0x20, 0x03], &[12]),
        (&[30, 0x20, 0x04], &[14, 16]),
        (&[30, 0x20, 0x1f], &[26, 28]),
        (&[30, 0x30], &[16, 18, 28, 30]),
        (&[30, 0x31], &[8, 10, 20, 22]),
        (&[30, 0x40], &remove_addr),
        (&[30, 0x50], &[3]),
        (&[30, 0x60], &[12]),
        (&[30, 0x80], &[4]),
    ];
    for (start, lengths) in forms {
        for length in start.len() + 1..=MAX {
            let mut bytes = vec![start[0], length as u8];
            bytes.extend(&start[1..]);
            bytes.resize(length, 0);
            bytes.extend([4, 2]);
            let read: Vec<_> = options(&bytes).collect();
            let expected = if lengths.contains(&length) { Ok(()) } else { Err(Malformed::OptionLength) };
            assert_eq!(read[0].clone().map(drop), expected, "{start:02x?} in {length} bytes");
            assert_eq!(read[1], Ok(TcpOption::SackPermitted), "the walk goes on behind it");
        }
    }
}

const MAX: usize = 40;

#[test]
fn the_empty_mptcp_option_is_an_error() {
    assert_eq!(options(&[30, 2]).collect::<Vec<_>>(), [Err(Malformed::OptionLength)]);
    assert_eq!(MptcpOption::parse(&[]), Err(Malformed::OptionLength));
}

#[test]
fn nops_are_skipped_and_eol_ends_the_walk() {
    let read: Vec<_> = options(&[1, 1, 4, 2, 1, 3, 3, 7, 0, 4, 2]).collect();
    assert_eq!(read, [Ok(TcpOption::SackPermitted), Ok(TcpOption::WindowScale(7))]);
    assert_eq!(options(&[]).count(), 0);
    assert_eq!(options(&[1; 40]).count(), 0);
}

#[test]
fn an_option_that_cannot_be_delimited_ends_the_walk_with_an_error() {
    for end in [&[2][..], &[2, 0], &[2, 1], &[2, 5, 0, 0], &[99, 255], &[30, 3]] {
        let mut bytes = vec![4, 2];
        bytes.extend(end);
        let read: Vec<_> = options(&bytes).collect();
        assert_eq!(read, [Ok(TcpOption::SackPermitted), Err(Malformed::OptionLength)], "{end:?}");
    }
}

#[test]
fn an_option_without_room_is_not_written_in_part() {
    let timestamps = TcpOption::Timestamps { value: 1, echo: 2 };
    for used in 0..=40 {
        let mut out: OptionBytes = core::iter::repeat_n(1, used).collect();
        assert_eq!(timestamps.emit(&mut out), used <= 30);
        assert_eq!(out.len(), if used <= 30 { used + 10 } else { used });
    }
    let mut out = OptionBytes::new();
    assert!(!TcpOption::Unknown { kind: 9, data: &[0; 300] }.emit(&mut out), "longer than a length can say");
    assert!(!TcpOption::Unknown { kind: 0, data: &[] }.emit(&mut out), "EOL has no length");
    assert!(!TcpOption::Unknown { kind: 1, data: &[] }.emit(&mut out), "nor has NOP");
    assert!(out.is_empty());
}

#[test]
fn a_list_of_options_is_padded_to_whole_words() {
    let list = [TcpOption::Mss(1400), TcpOption::WindowScale(8)];
    assert_eq!(option_bytes(list).expect("room")[..], [2, 4, 0x05, 0x78, 3, 3, 8, 1]);
    assert_eq!(option_bytes([]).expect("room")[..], []);
    let timestamps = TcpOption::Timestamps { value: 1, echo: 2 };
    assert_eq!(
        option_bytes([timestamps.clone(), timestamps.clone(), timestamps.clone()]).map(|o| o.len()),
        Some(32)
    );
    assert_eq!(option_bytes(core::iter::repeat_n(timestamps.clone(), 4)).map(|o| o.len()), Some(40));
    assert_eq!(option_bytes(core::iter::repeat_n(timestamps, 5)), None);
}
