//! Blocks on the wire: known answers, forgery, order, generations.

mod generations;
#[path = "../sealed_support/mod.rs"]
mod sealed_support;

use bytes::Bytes;
use plait_base::{Dsn, Duration, Instant, SeededRandom};
use plait_protect::sealed::{
    AckContext, AckTag, BLOCK_OVERHEAD, BlockBuffer, Exchange, Kind, MAX_PLAIN, MixSecret, OpenError,
    OptionContext, PathKeys, PathNumber, ProtectedOptions, Record, Records, Role, Speaker, SubflowTag, Suite,
    UpdateRefused,
};
use proptest::prelude::*;
use sealed_support::{CONTEXT, End, connect, connect_with, hex, sent};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/mptcpsec_ms1.json")).expect("valid JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    hex(value.as_str().expect("a string"))
}

fn number(value: &Value) -> u64 {
    u64::from_be_bytes(bytes(value).try_into().expect("eight bytes"))
}

fn context_of(subflow: &Value) -> OptionContext<'static> {
    assert_eq!(subflow["flags"], 6, "mapping and Data-ACK");
    OptionContext {
        subflow: SubflowTag(number(&subflow["subflow_id"])),
        offset: subflow["offset"].as_u64().expect("a number"),
        data_ack: Some(Dsn::new(number(&subflow["data_ack"]))),
        ..CONTEXT
    }
}

#[test]
fn blocks_are_the_known_ones_on_both_subflows() {
    let vectors = vectors();
    let ms = bytes(&vectors["key_schedule"]["ms"]);
    let blocks = vectors["data_blocks"].as_array().expect("a list");
    assert_eq!(blocks.len(), 9);
    for known in blocks {
        let suite =
            Suite::from_number(u16::try_from(known["suite_id"].as_u64().expect("id")).expect("16 bits"));
        let suite = suite.expect("one of ours");
        let (mut a, mut b) = connect_with(&ms, suite);
        let plain = bytes(&known["plaintext"]);
        let kind = if known["H"] == 0 { Kind::Data } else { Kind::Control };
        let mut block = a.sealer.seal(kind, (&plain[..]).into()).expect("fresh");
        assert_eq!(
            (block.dsn().bits(), block.len() as u64),
            (number(&known["dsn"]), known["dll"].as_u64().expect("dll"))
        );
        for name in ["sf_first", "sf_joined"] {
            let subflow = &known[name];
            let context = context_of(subflow);
            let header = u8::try_from(known["H"].as_u64().expect("H")).expect("a byte");
            let expected = [
                &[header][..],
                &bytes(&known["ciphertext"]),
                &bytes(&known["data_tag"]),
                &bytes(&subflow["tag_blake3"]),
            ]
            .concat();
            let payload = sent(&mut a.sealer, &mut block, &context);
            assert_eq!(payload, expected, "{} {name}", suite.name());
            let (shared, tag) = (block.shared(), a.sealer.tag(&block, &context).expect("held"));
            assert_eq!([&shared[..], &tag].concat(), expected, "in two pieces");
            let opened = b.opener.open(block.dsn(), &context, payload).expect("true");
            assert_eq!((opened.kind, &opened.plain[..], opened.end()), (kind, &plain[..], block.end()));
        }
    }
}

#[test]
fn the_tag_of_a_pure_data_ack_is_the_known_one() {
    let vectors = vectors();
    let known = &vectors["pure_ack"];
    let (mut a, mut b) = connect_with(&bytes(&vectors["key_schedule"]["ms"]), Suite::Aes128Gcm);
    let context = AckContext {
        subflow: SubflowTag(number(&known["subflow_id"])),
        data_ack: Some(Dsn::new(0x1122_3344_5566_7788)),
        data_fin: None,
        options: ProtectedOptions::NONE,
    };
    let option = a.sealer.tag_ack(&context).to_option();
    assert_eq!(option[..4], [30, 12, 0xf0, 0]);
    assert_eq!(option[4..], bytes(&known["tag8_blake3"]));
    let received = AckTag::parse(&option[3..]).expect("well-formed");
    assert_eq!(b.opener.check_ack(&context, &received), Ok(()));
    for forged in [
        AckContext { data_ack: Some(Dsn::new(0x1122_3344_5566_7789)), ..context },
        AckContext { data_ack: None, ..context },
        AckContext { subflow: SubflowTag::FIRST, ..context },
        AckContext { data_fin: Some(Dsn::new(9)), ..context },
        AckContext { options: ProtectedOptions::new(&[30, 4, 0x50, 1]).expect("short"), ..context },
    ] {
        assert_eq!(b.opener.check_ack(&forged, &received), Err(OpenError::FirstOptionTag));
    }
    assert_eq!(
        a.opener.check_ack(&context, &received),
        Err(OpenError::FirstOptionTag),
        "not its own direction"
    );
    for wrong in [&option[..], &option[3..11], &[], &[0x40; 9], &[0x80; 9]] {
        assert_eq!(AckTag::parse(wrong), None);
    }
}

/// Every byte and every field of the context, one at a time.
#[test]
fn a_forged_block_is_refused_by_the_check_that_sees_it() {
    for suite in Suite::ALL {
        let (mut a, mut b) = connect(suite);
        let mut block = a.sealer.seal(Kind::Data, (&b"attack at dawn"[..]).into()).expect("fresh");
        let good = sent(&mut a.sealer, &mut block, &CONTEXT);
        let dsn = block.dsn();
        b.opener.open(dsn, &CONTEXT, good.clone()).expect("the good one");

        for at in 0..good.len() {
            let mut forged = good.to_vec();
            forged[at] ^= 1;
            let text = 1..good.len() - 32;
            let expected = match at {
                // A neighbouring generation has other keys.
                0 => OpenError::OptionTag,
                at if text.contains(&at) => OpenError::DataTag,
                _ => OpenError::OptionTag,
            };
            assert_eq!(b.opener.open(dsn, &CONTEXT, forged.into()).map(drop), Err(expected), "byte {at}");
        }
        for (forged, at) in [
            (OptionContext { offset: 1701, ..CONTEXT }, dsn),
            (OptionContext { offset: CONTEXT.offset + (1 << 32), ..CONTEXT }, dsn),
            (OptionContext { subflow: SubflowTag(1), ..CONTEXT }, dsn),
            (OptionContext { data_ack: None, ..CONTEXT }, dsn),
            (OptionContext { data_ack: Some(Dsn::new(0)), ..CONTEXT }, dsn),
            (OptionContext { data_fin: true, ..CONTEXT }, dsn),
            (OptionContext { options: ProtectedOptions::new(&[1]).expect("short"), ..CONTEXT }, dsn),
            (CONTEXT, dsn + 1),
        ] {
            assert_eq!(b.opener.open(at, &forged, good.clone()).map(drop), Err(OpenError::OptionTag));
        }
        assert_eq!(
            a.opener.open(dsn, &CONTEXT, good.clone()).map(drop),
            Err(OpenError::FirstOptionTag),
            "reflected"
        );
        assert_eq!(b.opener.open(dsn, &CONTEXT, good).expect("unharmed").plain, "attack at dawn");
    }
}

#[test]
fn what_is_no_block_at_all_is_named() {
    let (_, mut b) = connect(Suite::Aes128Gcm);
    let mut open = |bytes: Vec<u8>| b.opener.open(Dsn::new(1), &CONTEXT, bytes.into()).map(drop);
    assert_eq!(open(vec![]), Err(OpenError::Length));
    assert_eq!(open(vec![0; BLOCK_OVERHEAD - 1]), Err(OpenError::Length));
    assert_eq!(open(vec![0; 65_536]), Err(OpenError::Length));
    assert_eq!(open(vec![0x40; BLOCK_OVERHEAD]), Err(OpenError::Type));
    assert_eq!(open(vec![0xc0; 100]), Err(OpenError::Type));
    assert_eq!(open(vec![0x02; 100]), Err(OpenError::Generation(2)));
    assert_eq!(open(vec![0x3f; 100]), Err(OpenError::Generation(63)), "nothing is before generation 0");
}

#[test]
fn the_longest_block_fits_its_length_field_with_a_data_fin() {
    let (mut a, mut b) = connect(Suite::Aes128Gcm);
    let mut buffer = BlockBuffer::with_capacity(MAX_PLAIN);
    assert_eq!(buffer.put(&vec![7; MAX_PLAIN + 100]), MAX_PLAIN);
    assert_eq!((buffer.room(), buffer.put(b"more")), (0, 0));
    let mut block = a.sealer.seal(Kind::Data, buffer).expect("fresh");
    assert_eq!(block.len(), 65_534);
    let context = OptionContext { data_fin: true, ..CONTEXT };
    let payload = sent(&mut a.sealer, &mut block, &context);
    assert_eq!(b.opener.open(block.dsn(), &context, payload).expect("true").plain.len(), MAX_PLAIN);
}

#[test]
fn a_first_transmission_copies_nothing_and_neither_does_opening() {
    let (mut a, mut b) = connect(Suite::Aes128Gcm);
    let mut buffer = BlockBuffer::with_capacity(1000);
    buffer.put(&[1; 1000]);
    let mut block = a.sealer.seal(Kind::Data, buffer).expect("fresh");
    let first = a.sealer.transmit(&mut block, &CONTEXT).expect("held");
    assert_eq!(first.copied, 0);
    let address = first.bytes.as_ptr();
    assert_eq!(block.shared().as_ptr(), address, "the block is the same memory");
    let other = OptionContext { subflow: SubflowTag(9), ..CONTEXT };
    let second = a.sealer.transmit(&mut block, &other).expect("held");
    assert_eq!(second.copied, 1033, "the first transmission is still held");
    drop((first, second));
    let third = a.sealer.transmit(&mut block, &CONTEXT).expect("held");
    assert_eq!(third.copied, 0, "the block has no other holder any more");
    let (dsn, payload) = (block.dsn(), third.bytes);
    drop(block);
    let address = payload.as_ptr();
    let opened = b.opener.open(dsn, &CONTEXT, payload).expect("true");
    assert_eq!((opened.copied, opened.plain.as_ptr()), (0, address.wrapping_add(1)), "decrypted in place");
}

#[test]
fn jobs_that_finish_out_of_order_give_the_same_blocks() {
    let (mut a, mut b) = connect(Suite::ChaCha20Poly1305);
    let texts: Vec<Vec<u8>> = (0..5u8).map(|at| vec![at; 10 * usize::from(at) + 1]).collect();
    let jobs: Vec<_> =
        texts.iter().map(|text| a.sealer.begin(Kind::Data, (&text[..]).into()).expect("fresh")).collect();
    let mut blocks: Vec<_> = jobs.into_iter().rev().map(plait_protect::sealed::SealJob::run).collect();
    blocks.reverse();
    let mut expected = a.identity.idsn(Role::A) + 1;
    let mut opening = Vec::new();
    for block in &mut blocks {
        assert_eq!(block.dsn(), expected);
        expected = block.end();
        let payload = sent(&mut a.sealer, block, &CONTEXT);
        opening.push(b.opener.begin(block.dsn(), &CONTEXT, payload).expect("tagged"));
    }
    for (job, text) in opening.into_iter().zip(&texts).rev() {
        let opened = job.run().expect("true");
        b.opener.finish(&opened);
        assert_eq!(&opened.plain[..], &text[..]);
    }
}

#[test]
fn an_update_is_due_by_bytes_calls_or_age_and_sealing_ends_where_it_never_comes() {
    let limits = plait_protect::sealed::KeyLimits { bytes: 1000, calls: 10, age: Duration::from_secs(60) };
    let start = || {
        let master = plait_protect::sealed::MasterSecret::filled_by::<()>(|_| Ok(())).expect("cannot fail");
        plait_protect::sealed::ConnectionSecrets::derive(master, 0x23).start(
            Role::A,
            Suite::Aes128Gcm,
            limits,
            Instant::from_millis(5),
        )
    };
    let (_, mut by_bytes, _) = start();
    by_bytes.seal(Kind::Data, (&[0; 999][..]).into()).expect("fresh");
    assert!(!by_bytes.is_update_due(Instant::from_millis(5)));
    by_bytes.seal(Kind::Data, (&[0; 1][..]).into()).expect("fresh");
    assert!(by_bytes.is_update_due(Instant::from_millis(5)));

    let (_, mut by_calls, _) = start();
    for _ in 0..10 {
        by_calls.seal(Kind::Data, (&[][..]).into()).expect("fresh");
    }
    assert!(by_calls.is_update_due(Instant::ZERO));
    by_calls.update_keys(Instant::ZERO).expect("nothing outstanding");
    assert!(!by_calls.is_update_due(Instant::ZERO), "a new generation starts at zero");
    let sealed = (0..100).take_while(|_| by_calls.seal(Kind::Data, (&[][..]).into()).is_ok()).count();
    assert_eq!(sealed, 20, "twice the limit, and no further");
    assert!(by_calls.update_keys(Instant::ZERO).is_err());

    let (_, by_age, _) = start();
    assert!(!by_age.is_update_due(Instant::from_millis(60_004)));
    assert!(by_age.is_update_due(Instant::from_millis(60_005)));
}

#[test]
fn the_limits_are_those_of_the_wire_format() {
    for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm] {
        assert_eq!((suite.limits().bytes / 16, suite.limits().calls), (1 << 33, 1 << 23));
    }
    assert_eq!(Suite::ChaCha20Poly1305.limits().bytes, 1 << 48);
    assert!(Suite::ALL.iter().all(|suite| suite.limits().age == Duration::from_secs(3600)));
}

#[test]
fn nothing_shows_its_secrets_or_its_text() {
    let (mut a, b) = connect(Suite::Aes128Gcm);
    let buffer: BlockBuffer = (&b"payload"[..]).into();
    let shown = format!("{buffer:?} {:?} {:?} {:?}", a.identity, a.sealer, b.opener);
    let block = a.sealer.seal(Kind::Data, buffer).expect("fresh");
    let shown = format!("{shown} {block:?} {:?}", a.identity.exporter());
    assert!(!shown.contains("payload") && !shown.contains("112, 97, 121"), "{shown}");
    assert!(shown.contains("ExporterSecret(..)"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_order_of_arrival_gives_the_text(
        suite in prop::sample::select(&Suite::ALL[..]),
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let (mut a, mut b) = connect(suite);
        let mut payloads = Vec::new();
        for text in &texts {
            let mut block = a.sealer.seal(Kind::Data, (&text[..]).into()).expect("fresh");
            payloads.push((block.dsn(), sent(&mut a.sealer, &mut block, &CONTEXT)));
        }
        for index in order {
            let at = index.index(texts.len());
            let (dsn, payload) = payloads[at].clone();
            let opened = b.opener.open(dsn, &CONTEXT, payload).expect("true");
            prop_assert_eq!(&opened.plain[..], &texts[at][..]);
        }
    }

    #[test]
    fn no_mutation_opens_and_none_panics(
        suite in prop::sample::select(&Suite::ALL[..]),
        text in prop::collection::vec(any::<u8>(), 0..300),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3, 1u8..), 1..4),
    ) {
        let (mut a, mut b) = connect(suite);
        let mut block = a.sealer.seal(Kind::Data, (&text[..]).into()).expect("fresh");
        let good = sent(&mut a.sealer, &mut block, &CONTEXT);
        let mut bad = good.to_vec();
        for (at, change, by) in edits {
            if bad.is_empty() {
                break;
            }
            let at = at.index(bad.len());
            match change {
                0 => bad[at] ^= by,
                1 => bad.truncate(at),
                _ => bad.insert(at, by),
            }
        }
        prop_assume!(bad != good);
        prop_assert!(b.opener.open(block.dsn(), &CONTEXT, bad.into()).is_err());
        prop_assert!(!b.opener.has_opened());
    }

    #[test]
    fn random_bytes_never_open_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), dsn in any::<u64>()) {
        let (_, End { mut opener, .. }) = connect(Suite::Aes128Gcm);
        prop_assert!(opener.open(Dsn::new(dsn), &CONTEXT, Bytes::from(bytes.clone())).is_err());
        if let Some(tag) = AckTag::parse(&bytes) {
            let context = AckContext {
                subflow: SubflowTag::FIRST,
                data_ack: Some(Dsn::new(dsn)),
                data_fin: None,
                options: ProtectedOptions::NONE,
            };
            prop_assert!(opener.check_ack(&context, &tag).is_err());
        }
    }
}
