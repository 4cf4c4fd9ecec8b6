use proptest::prelude::*;

use super::*;

fn all(plain: &[u8]) -> Result<Vec<Record>, RecordError> {
    Records::new(plain).collect()
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        any::<u64>().prop_map(Record::MaxData),
        (any::<u8>(), any::<[u8; 4]>(), any::<u16>()).prop_map(|(id, octets, port)| Record::AddAddr {
            id,
            address: IpAddr::from(octets),
            port
        }),
        (any::<u8>(), any::<[u8; 16]>(), any::<u16>()).prop_map(|(id, octets, port)| Record::AddAddr {
            id,
            address: IpAddr::from(octets),
            port
        }),
        any::<u8>().prop_map(|id| Record::RemoveAddr { id }),
        (any::<u64>(), any::<bool>())
            .prop_map(|(subflow, backup)| Record::Prio { subflow: SubflowTag(subflow), backup }),
        any::<u32>().prop_map(Record::Token),
        (any::<[u8; OPENING_LEN]>(), any::<u8>()).prop_map(|(name, paths)| Record::Opening { name, paths }),
        (any::<u64>(), any::<u32>(), 0usize..3).prop_map(|(subflow, number, kind)| {
            let exchange = Exchange { subflow: SubflowTag(subflow), number };
            [Record::Mix, Record::Void, Record::Agreed][kind](exchange)
        }),
        (any::<u64>(), any::<u8>()).prop_map(|(subflow, reason)| Record::Gone {
            subflow: SubflowTag(subflow),
            reason: GoneReason(reason)
        }),
        any::<u64>().prop_map(Record::Date),
        any::<u8>().prop_map(Record::Require),
        (0u8..6).prop_map(|reason| Record::Refused(RefusalReason::from_byte(reason))),
        (0u32..1 << 30, proptest::collection::vec(any::<u8>(), 0..=MAX_DESTINATION))
            .prop_map(|(flow, destination)| Record::OpenFlow { flow, destination: destination.into() }),
        (0u32..1 << 30, any::<u64>()).prop_map(|(flow, sent)| Record::CloseFlow { flow, sent }),
        Just(Record::Look),
        (any::<u64>(), any::<[u8; 16]>(), any::<u16>(), any::<u16>(), any::<u8>()).prop_map(
            |(subflow, octets, port, mss, options)| Record::Seen {
                subflow: SubflowTag(subflow),
                seen: Seen { address: SocketAddr::new(octets.into(), port), mss, options },
            }
        ),
        any::<u32>().prop_map(Record::Opened),
        prop::collection::vec(any::<u8>(), 1..=MAX_TICKET)
            .prop_map(|bytes| Record::Ticket(SessionTicket::new(&bytes).expect("of a length that is fine"))),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        records in prop::collection::vec(any_record(), 0..20),
        last in prop_oneof![Just(None), Just(Some(Record::Eof)), Just(Some(Record::KeyUpdate))],
        padding in 0usize..4,
    ) {
        let records: Vec<_> = records.into_iter().chain(last).collect();
        let mut plain = Vec::new();
        for record in &records {
            plain.extend_from_slice(&record.to_bytes());
            plain.extend(core::iter::repeat_n(Record::PADDING, padding));
        }
        prop_assert_eq!(all(&plain), Ok(records));
    }

    #[test]
    fn random_bytes_never_panic_and_end(plain in prop::collection::vec(0u8..22, 0..300)) {
        let seen: Vec<_> = Records::new(&plain).collect();
        prop_assert!(seen.len() <= MAX_RECORDS + 1);
        let errors = seen.iter().filter(|record| record.is_err()).count();
        prop_assert!(errors == 0 || (errors == 1 && seen.last().is_some_and(Result::is_err)));
    }

    #[test]
    fn a_record_cut_short_is_an_error(record in any_record()) {
        let bytes = record.to_bytes();
        for end in 1..bytes.len() {
            prop_assert_eq!(all(&bytes[..end]), Err(RecordError::Truncated));
        }
    }
}

#[test]
fn each_record_has_its_known_bytes() {
    assert_eq!(&Record::Eof.to_bytes()[..], [1]);
    assert_eq!(&Record::KeyUpdate.to_bytes()[..], [2]);
    assert_eq!(&Record::MaxData(0x0102).to_bytes()[..], [4, 0, 0, 0, 0, 0, 0, 1, 2]);
    let add = Record::AddAddr { id: 3, address: IpAddr::from([192, 0, 2, 1]), port: 7443 };
    assert_eq!(&add.to_bytes()[..], [5, 3, 4, 192, 0, 2, 1, 0x1d, 0x13]);
    assert_eq!(&Record::RemoveAddr { id: 3 }.to_bytes()[..], [6, 3]);
    let prio = Record::Prio { subflow: SubflowTag(1), backup: true };
    assert_eq!(&prio.to_bytes()[..], [7, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(&Record::Token(0xaea2_16b1).to_bytes()[..], [8, 0xae, 0xa2, 0x16, 0xb1]);
    let opening = Record::Opening { name: [7; OPENING_LEN], paths: 2 };
    assert_eq!(&opening.to_bytes()[..], [&[10][..], &[7; OPENING_LEN], &[2]].concat());
    let exchange = Exchange { subflow: SubflowTag(1), number: 0x0203_0405 };
    for (record, kind) in
        [(Record::Mix(exchange), 3), (Record::Void(exchange), 17), (Record::Agreed(exchange), 20)]
    {
        assert_eq!(&record.to_bytes()[..], [kind, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
    }
    let gone = Record::Gone { subflow: SubflowTag(0x0102), reason: GoneReason::UNVERIFIED };
    assert_eq!(&gone.to_bytes()[..], [16, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(&Record::Require(2).to_bytes()[..], [12, 2]);
    assert_eq!(&Record::Refused(RefusalReason::NotAuthorized).to_bytes()[..], [0x12, 1]);
    assert_eq!(&Record::Look.to_bytes()[..], [14]);
    let date = Record::Date(0x6ab1_2345).to_bytes();
    assert_eq!((&date[..], date.len()), (&[24, 0, 0, 0, 0, 0x6a, 0xb1, 0x23, 0x45][..], Record::DATE_LEN));
    let seen = Seen {
        address: SocketAddr::from(([192, 0, 2, 1], 0x1234)),
        mss: 1460,
        options: Seen::SACK | Seen::TIMESTAMPS,
    };
    let bytes = [15, 0, 0, 0, 0, 0, 0, 0, 7, 4, 192, 0, 2, 1, 0x12, 0x34, 5, 0xb4, 6];
    assert_eq!(&Record::Seen { subflow: SubflowTag(7), seen }.to_bytes()[..], bytes);
    assert_eq!(&Record::Opened(0xaea2_16b1).to_bytes()[..], [11, 0xae, 0xa2, 0x16, 0xb1]);
    let ticket = SessionTicket::new(&[7, 8, 9]).expect("three bytes");
    assert_eq!(&Record::Ticket(ticket).to_bytes()[..], [13, 3, 7, 8, 9]);
}

#[test]
fn a_refusal_for_a_reason_of_a_later_version_is_a_refusal() {
    let reasons = [
        RefusalReason::Other,
        RefusalReason::NotAuthorized,
        RefusalReason::Full,
        RefusalReason::Draining,
        RefusalReason::Expired,
        RefusalReason::TooMany,
    ];
    for (byte, reason) in (0..).zip(reasons) {
        assert_eq!(all(&[0x12, byte]), Ok(vec![Record::Refused(reason)]));
    }
    for later in [6, 255] {
        assert_eq!(all(&[0x12, later]), Ok(vec![Record::Refused(RefusalReason::Other)]));
    }
}

#[test]
fn a_ticket_is_neither_empty_nor_longer_than_any_is() {
    assert_eq!(all(&[13, 0]), Err(RecordError::Value));
    let longest = [&[13, MAX_TICKET as u8][..], &[7; MAX_TICKET]].concat();
    assert_eq!(all(&longest).map(|records| records.len()), Ok(1));
    let longer = [&[13, MAX_TICKET as u8 + 1][..], &[7; MAX_TICKET + 1]].concat();
    assert_eq!(all(&longer), Err(RecordError::Value));
    assert_eq!(all(&longest[..longest.len() - 1]), Err(RecordError::Truncated));
}

#[test]
fn nothing_but_padding_follows_the_end() {
    assert_eq!(all(&[1, 9, 9]), Ok(vec![Record::Eof]));
    assert_eq!(all(&[1, 6, 3]), Err(RecordError::BehindTheLast));
    assert_eq!(all(&[2, 9, 1]), Err(RecordError::BehindTheLast));
}

#[test]
fn unknown_types_families_and_flags_are_errors() {
    for unknown in [0, 19, 25, 255] {
        assert_eq!(all(&[unknown]), Err(RecordError::Unknown(unknown)));
    }
    assert_eq!(all(&[5, 0, 5, 0, 0, 0, 0, 0, 0]), Err(RecordError::Value));
    assert_eq!(all(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 2]), Err(RecordError::Value));
}

#[test]
fn a_block_has_a_limit_of_records() {
    let mut plain = [6, 0].repeat(MAX_RECORDS);
    assert_eq!(all(&plain).map(|records| records.len()), Ok(MAX_RECORDS));
    plain.extend([6, 0]);
    assert_eq!(all(&plain), Err(RecordError::TooMany));
}

#[test]
fn a_datagram_in_the_stream_has_a_flow_a_codepoint_and_its_payload() {
    let payload = Bytes::from_static(b"voice");
    let record = Record::Datagram { flow: 6, ecn: 1, payload: payload.clone() };
    let bytes = [&record.to_bytes()[..], &payload].concat();
    assert_eq!(bytes, [&[0x17, 0, 0, 0, 6, 1, 0, 5][..], b"voice"].concat());
    assert_eq!(all(&bytes), Ok(vec![record]));
    assert_eq!(all(&bytes[..bytes.len() - 1]), Err(RecordError::Truncated));
    let mut wrong = bytes.clone();
    wrong[5] = 4;
    assert_eq!(all(&wrong), Err(RecordError::Value), "there are four codepoints");
    wrong = bytes;
    wrong[1] = 0x40;
    assert_eq!(all(&wrong), Err(RecordError::Value), "flows have 30 bits");
}
