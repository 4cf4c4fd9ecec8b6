//! Datagrams: published vectors, and what an attacker on one path can do to them.

use plait_base::{Duration, Instant};

use super::super::{
    BlockBuffer, ConnectionSecrets, Kind, MasterSecret, OpenError, Opener, OptionContext, ProtectedOptions,
    Report, ReportTag, Role, Sealer, SubflowTag, Suite,
};
use super::*;

const SUBFLOW: SubflowTag = SubflowTag(5);

fn ends(suite: Suite) -> (Sealer, Opener, Opener) {
    let end = |role| {
        let master = MasterSecret::filled_by::<()>(|bytes| {
            bytes.fill(7);
            Ok(())
        });
        let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0x23);
        let (_, sealer, opener) = secrets.start(role, suite, suite.limits(), Instant::ZERO);
        (sealer, opener)
    };
    let ((sealer, of_a), (_, of_b)) = (end(Role::A), end(Role::B));
    (sealer, of_a, of_b)
}

fn head(flow: u32) -> DatagramHead {
    DatagramHead { flow, ecn: 2, number: None, piece: None }
}

fn sealed(sealer: &mut Sealer, head: &DatagramHead, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    sealer.seal_datagram(SUBFLOW, head, &[payload], &mut out).expect("the keys are new");
    out
}

/// The next generation begins, and the other end has its first block.
fn update(sealer: &mut Sealer, opener: &mut Opener) {
    let now = Instant::ZERO + Duration::from_secs(1);
    let mut blocks = vec![sealer.update_keys(now).expect("nothing is in flight")];
    let closed = blocks[0].generation();
    blocks.push(sealer.seal(Kind::Data, BlockBuffer::from(&b"x"[..])).expect("new keys"));
    for block in &mut blocks {
        let options = ProtectedOptions::NONE;
        let context = OptionContext { subflow: SUBFLOW, offset: 1, data_ack: None, data_fin: false, options };
        let bytes = sealer.transmit(block, &context).expect("its keys are kept").bytes;
        opener.open(block.dsn(), &context, bytes).expect("it is the peer's");
    }
    opener.handle_key_update(closed).expect("the peer follows the rules");
    sealer.handle_data_ack(sealer.next_dsn());
}

#[test]
fn a_datagram_arrives_once_as_what_it_is() {
    for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        let (mut sealer, mut own, mut opener) = ends(suite);
        for (flow, number, piece) in [
            (0, None, None),
            (63, Some(7), None),
            (64, None, None),
            (MAX_FLOW, Some(u32::MAX), Some(Piece { index: 3, of: 4 })),
        ] {
            let head = DatagramHead { flow, ecn: 3, number, piece };
            for payload in [&b""[..], b"payload"] {
                let bytes = sealed(&mut sealer, &head, payload);
                assert_eq!(bytes.len(), head.wire_length() + payload.len() + 16);
                assert_eq!(
                    own.open_datagram(SUBFLOW, bytes.clone()).err(),
                    Some(DatagramError::Forged),
                    "reflected"
                );
                let elsewhere = opener.open_datagram(SubflowTag(6), bytes.clone());
                assert_eq!(elsewhere.err(), Some(DatagramError::Forged), "on another subflow");
                for at in 0..bytes.len() {
                    let mut altered = bytes.clone();
                    altered[at] ^= 0x04;
                    assert!(opener.open_datagram(SUBFLOW, altered).is_err(), "byte {at} of {head:?}");
                }
                let (generation, opened) =
                    opener.open_datagram(SUBFLOW, bytes.clone()).expect("it is genuine");
                assert_eq!((generation, opened.head, &opened.payload[..]), (0, head, payload));
                assert_eq!(opener.open_datagram(SUBFLOW, bytes).err(), Some(DatagramError::Repeated));
            }
        }
        assert_eq!(opener.datagrams_on(SUBFLOW), (8, 8));
    }
}

#[test]
fn a_datagram_around_a_key_update_is_opened_under_its_own_keys() {
    let (mut sealer, _, mut opener) = ends(Suite::Aes128Gcm);
    let before: Vec<_> = (0..4).map(|_| sealed(&mut sealer, &head(0), b"old")).collect();
    let now = Instant::ZERO;
    let next = {
        // Of the next generation, before its first block has arrived.
        let (mut other, _, _) = ends(Suite::Aes128Gcm);
        for _ in 0..4 {
            sealed(&mut other, &head(0), b"old");
        }
        other.update_keys(now).expect("nothing is in flight");
        sealed(&mut other, &head(0), b"new")
    };
    let opens = |opener: &mut Opener, bytes: &BytesMut| {
        opener.open_datagram(SUBFLOW, bytes.clone()).map(|(generation, _)| generation)
    };
    assert_eq!(opens(&mut opener, &next), Ok(1));
    assert_eq!(opener.generation(), 0, "a datagram begins no generation");
    assert_eq!(opens(&mut opener, &before[0]), Ok(0));
    update(&mut sealer, &mut opener);
    assert_eq!(opens(&mut opener, &before[1]), Ok(0), "its block keys are gone, those of datagrams are not");
    update(&mut sealer, &mut opener);
    assert_eq!(opens(&mut opener, &before[2]), Err(DatagramError::Generation));
    sealed(&mut sealer, &head(0), b"counter 4 was the other sealer's");
    let last = sealed(&mut sealer, &head(0), b"counters go on");
    assert_eq!(opens(&mut opener, &last), Ok(2));
}

#[test]
fn a_datagram_of_the_generation_before_the_previous_one_is_none_of_the_previous_one() {
    let (mut sealer, _, mut opener) = ends(Suite::Aes128Gcm);
    let first: Vec<_> = (0..2).map(|_| sealed(&mut sealer, &head(0), b"old")).collect();
    let opens = |opener: &mut Opener, bytes: &BytesMut| {
        opener.open_datagram(SUBFLOW, bytes.clone()).map(|(generation, _)| generation)
    };
    assert_eq!(opens(&mut opener, &first[0]), Ok(0));
    update(&mut sealer, &mut opener);
    // The first block of generation 2 overtakes the last one of generation 1.
    sealer.update_keys(Instant::ZERO + Duration::from_secs(2)).expect("nothing is in flight");
    let mut block = sealer.seal(Kind::Data, BlockBuffer::from(&b"x"[..])).expect("new keys");
    let options = ProtectedOptions::NONE;
    let context = OptionContext { subflow: SUBFLOW, offset: 1, data_ack: None, data_fin: false, options };
    let bytes = sealer.transmit(&mut block, &context).expect("its keys are kept").bytes;
    opener.open(block.dsn(), &context, bytes).expect("it is the peer's");
    assert_eq!((opener.generation(), opens(&mut opener, &first[1])), (2, Ok(0)));
}

#[test]
fn no_datagram_can_be_taken_for_stun() {
    let (mut sealer, _, mut opener) = ends(Suite::Aes128Gcm);
    // The flow completes the cookie if the counter ends with its first half.
    let flow = u32::from_be_bytes([0x24, 0x42, 0, 0]);
    let mut skipped = 0;
    for expected in 0..0x2200_u64 {
        let bytes = sealed(&mut sealer, &head(flow), b"");
        assert_ne!(bytes[4..8], STUN_COOKIE);
        let (_, opened) = opener.open_datagram(SUBFLOW, bytes).expect("it is genuine");
        skipped = opened.counter - expected;
    }
    assert_eq!(skipped, 1, "one counter was left out");
    let mut cookie = sealed(&mut sealer, &head(flow), b"");
    cookie[4..8].copy_from_slice(&STUN_COOKIE);
    assert_eq!(opener.open_datagram(SUBFLOW, cookie).err(), Some(DatagramError::Malformed));
}

#[test]
fn a_header_has_one_form() {
    let (mut sealer, _, mut opener) = ends(Suite::Aes128Gcm);
    let good = sealed(&mut sealer, &head(1), b"");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.to_vec();
        change(&mut bytes);
        BytesMut::from(&bytes[..])
    };
    for bad in [
        with(&|bytes| bytes.truncate(good.len() - 1)),
        with(&|bytes| bytes[0] = 0x08),
        with(&|bytes| bytes[0] = 0x03),
        with(&|bytes| bytes[6] = 0xc0),
        with(&|bytes| drop(bytes.splice(6..7, [0x40, 1]))),
        with(&|bytes| {
            bytes[1] |= IS_PIECE;
            bytes.insert(7, 2);
        }),
    ] {
        assert_eq!(opener.open_datagram(SUBFLOW, bad).err(), Some(DatagramError::Malformed));
    }
}

#[test]
fn a_report_is_right_on_its_subflow_with_all_of_its_64_bits() {
    const WRAP: u64 = 1 << 32;
    let (_, _, mut opener) = ends(Suite::Aes128Gcm);
    let (mut sealer, ..) = ends(Suite::Aes128Gcm);
    let report = Report { next: WRAP + 9, count: WRAP - 3, delay: 77 };
    let option = sealer.tag_report(SUBFLOW, &report).to_option();
    let tag = ReportTag::parse(&option[3..]).expect("a report");
    let sent = WRAP + 20;
    assert_eq!(opener.check_report(SUBFLOW, &tag, sent), Ok(report));
    let wrong = Err(OpenError::FirstOptionTag);
    assert_eq!(opener.check_report(SUBFLOW, &tag, sent + WRAP), wrong, "recorded 2^32 datagrams before");
    assert_eq!(opener.check_report(SUBFLOW, &tag, WRAP + 8), wrong, "of datagrams that were not sent");
    assert_eq!(opener.check_report(SubflowTag(6), &tag, sent), wrong);
    for at in 3..option.len() {
        let mut altered = option;
        altered[at] ^= 1;
        let altered = ReportTag::parse(&altered[3..]);
        assert!(altered.is_none_or(|tag| opener.check_report(SUBFLOW, &tag, sent).is_err()), "byte {at}");
    }
    assert_eq!(ReportTag::parse(&[0; 18]), None);
    assert_eq!(ReportTag::parse(&[0; 20]), None);
}

#[test]
fn datagrams_and_reports_are_the_published_ones() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/vectors/datagrams.json")).expect("valid JSON");
    let bytes = |hex: &serde_json::Value| -> Vec<u8> {
        let hex = hex.as_str().expect("a string");
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    };
    let number = |value: &serde_json::Value| value.as_u64().map(|number| number as u32);
    let found = vectors["found"].as_array().expect("a list");
    assert_eq!(found.len(), 24);
    for known in found {
        let suite = Suite::from_number(number(&known["suite"]).expect("a number") as u16).expect("it exists");
        let master = MasterSecret::filled_by::<()>(|out| {
            out.copy_from_slice(&bytes(&vectors["ms"]));
            Ok(())
        });
        let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0x23);
        let role = if known["way"] == "ab" { Role::A } else { Role::B };
        let (_, mut sealer, _) = secrets.start(role, suite, suite.limits(), Instant::ZERO);
        if known["generation"] == 1 {
            sealer.update_keys(Instant::ZERO).expect("nothing is in flight");
        }
        let subflow = u64::from_str_radix(known["subflow"].as_str().expect("a string"), 16).expect("hex");
        let subflow = SubflowTag(subflow);
        for (sent, expected) in vectors["sent"]
            .as_array()
            .expect("a list")
            .iter()
            .zip(known["sealed"].as_array().expect("a list"))
        {
            let piece = sent["piece"].as_array().map(|piece| {
                let of = |at: usize| number(&piece[at]).expect("a number") as u8;
                Piece { index: of(0), of: of(1) }
            });
            let head = DatagramHead {
                flow: number(&sent["flow"]).expect("a number"),
                ecn: number(&sent["ecn"]).expect("a number") as u8,
                number: number(&sent["number"]),
                piece,
            };
            let mut out = BytesMut::new();
            let payload = bytes(&sent["payload"]);
            sealer.seal_datagram(subflow, &head, &[&payload], &mut out).expect("the keys are new");
            assert_eq!(&out[..], bytes(expected), "{known}");
        }
        let report = Report { next: 4, count: 3, delay: 250 };
        assert_eq!(sealer.tag_report(subflow, &report).to_option()[..], bytes(&known["report"]));
    }
}
