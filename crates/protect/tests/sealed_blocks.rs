//! Blocks on the wire: known answers, forgery, order, generations.

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
    serde_json::from_str(include_str!("vectors/mptcpsec_ms1.json")).expect("valid JSON")
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
fn blocks_of_a_new_generation_may_overtake_the_update() {
    let (mut a, mut b) = connect(Suite::Aes256Gcm);
    let mut old = a.sealer.seal(Kind::Data, (&b"old"[..]).into()).expect("fresh");
    let mut update = a.sealer.update_keys(Instant::ZERO).expect("nothing outstanding");
    let mut new = a.sealer.seal(Kind::Data, (&b"new"[..]).into()).expect("fresh");
    assert_eq!((old.generation(), update.generation(), new.generation()), (0, 0, 1));
    assert_eq!(a.sealer.update_keys(Instant::ZERO).map(drop), Err(UpdateRefused::PreviousInUse));

    let payloads =
        [&mut new, &mut update, &mut old].map(|block| (block.dsn(), sent(&mut a.sealer, block, &CONTEXT)));
    let [new_payload, update_payload, old_payload] = payloads;
    // The new one first; a forged claim to be of a new generation changes nothing before it.
    let mut forged = new_payload.1.to_vec();
    forged[5] ^= 1;
    assert!(b.opener.open(new_payload.0, &CONTEXT, forged.into()).is_err());
    assert_eq!(b.opener.generation(), 0);
    assert_eq!(b.opener.open(new_payload.0, &CONTEXT, new_payload.1).expect("true").plain, "new");
    assert_eq!(b.opener.generation(), 1);
    // The old one is not lost.
    assert_eq!(b.opener.open(old_payload.0, &CONTEXT, old_payload.1.clone()).expect("true").plain, "old");
    let opened = b.opener.open(update_payload.0, &CONTEXT, update_payload.1).expect("true");
    assert_eq!(Records::new(&opened.plain).collect::<Vec<_>>(), [Ok(Record::KeyUpdate)]);
    b.opener.handle_key_update(opened.generation).expect("in order");
    assert_eq!(
        b.opener.open(old_payload.0, &CONTEXT, old_payload.1).map(drop),
        Err(OpenError::Generation(0))
    );
    assert_eq!(b.opener.handle_key_update(7), Err(OpenError::Generation(7)));

    // The sender can tag old blocks until they are acknowledged, and then no more.
    assert!(a.sealer.transmit(&mut old, &CONTEXT).is_some());
    a.sealer.handle_data_ack(update.dsn());
    assert!(a.sealer.transmit(&mut update, &CONTEXT).is_some(), "the update itself is not acknowledged");
    a.sealer.handle_data_ack(update.end());
    assert!(a.sealer.transmit(&mut update, &CONTEXT).is_none());
    assert!(a.sealer.transmit(&mut new, &CONTEXT).is_some());
    assert!(a.sealer.update_keys(Instant::ZERO).is_ok());
}

#[test]
fn the_update_may_also_come_first_and_acks_follow_the_generation() {
    let (mut a, mut b) = connect(Suite::Aes128Gcm);
    let mut update = a.sealer.update_keys(Instant::ZERO).expect("nothing outstanding");
    let payload = sent(&mut a.sealer, &mut update, &CONTEXT);
    let opened = b.opener.open(update.dsn(), &CONTEXT, payload).expect("true");
    b.opener.handle_key_update(opened.generation).expect("in order");
    assert_eq!(b.opener.generation(), 1);
    let context = AckContext {
        subflow: SubflowTag::FIRST,
        data_ack: Some(Dsn::new(5)),
        data_fin: None,
        options: ProtectedOptions::NONE,
    };
    let tag = a.sealer.tag_ack(&context);
    assert_eq!(tag.to_option()[3], 1, "the generation of the tag");
    assert_eq!(b.opener.check_ack(&context, &tag), Ok(()));
    let mut altered = tag.to_option();
    altered[3] = 2;
    let altered = AckTag::parse(&altered[3..]).expect("well-formed");
    assert_eq!(b.opener.check_ack(&context, &altered), Err(OpenError::OptionTag));
}

/// The shared result of an exchange over one path.
fn mixed(a: &End, b: &End, number: u32) -> [MixSecret; 2] {
    let exchange = Exchange { subflow: SubflowTag(9), number };
    let mut random = SeededRandom::from_number(u64::from(number));
    let (offer, question) = b
        .identity
        .offer_path(PathKeys::new(&b.sealer, &b.opener), Speaker::Listener, exchange, &mut random)
        .expect("keys");
    let opener = Speaker::Opener(PathNumber(1));
    let (answer, ours) = a
        .identity
        .answer_path(
            PathKeys::new(&a.sealer, &a.opener),
            (opener, exchange),
            &question,
            (&mut random, &|_, _| ()),
        )
        .expect("genuine");
    let theirs = b
        .identity
        .finish_path(PathKeys::new(&b.sealer, &b.opener), offer, &answer, &|_, _| ())
        .expect("genuine");
    [ours, theirs].map(|share| share.secret)
}

#[test]
fn what_paths_have_given_is_in_the_next_generation_once_the_peer_has_acknowledged_it() {
    let (mut a, mut b) = connect(Suite::Aes128Gcm);
    let [sent_one, got_one] = mixed(&a, &b, 0);
    let [sent_two, got_two] = mixed(&a, &b, 1);
    let mut said = a.sealer.seal_mixing((&b"MIX, MIX"[..]).into(), [sent_one, sent_two]).expect("fresh keys");
    assert!(!a.sealer.is_update_due(Instant::ZERO), "the peer may not know yet");
    assert_eq!(a.sealer.update_keys(Instant::ZERO).map(|_| ()), Err(UpdateRefused::MixUnacknowledged));
    // An attacker makes the receiver derive the next generation before it knows its inputs.
    let early = Bytes::from_static(&[1; 80]);
    assert_eq!(
        b.opener.open(a.sealer.next_dsn(), &CONTEXT, early).map(|_| ()),
        Err(OpenError::FirstOptionTag)
    );

    let opened =
        b.opener.open(said.dsn(), &CONTEXT, sent(&mut a.sealer, &mut said, &CONTEXT)).expect("genuine");
    for mix in [got_one, got_two] {
        b.opener.handle_mix(opened.generation, mix).expect("in its generation");
    }
    a.sealer.handle_data_ack(a.sealer.next_dsn());
    assert!(a.sealer.is_update_due(Instant::ZERO));
    a.sealer.update_keys(Instant::ZERO).expect("acknowledged");
    let mut block = a.sealer.seal(Kind::Data, (&b"behind"[..]).into()).expect("fresh keys");
    let payload = sent(&mut a.sealer, &mut block, &CONTEXT);
    let opened = b.opener.open(block.dsn(), &CONTEXT, payload).expect("the same keys");
    assert_eq!((&opened.plain[..], opened.generation), (&b"behind"[..], 1));
    assert!(!a.sealer.is_update_due(Instant::ZERO), "each is used once");
    let [_, late] = mixed(&a, &b, 2);
    assert_eq!(b.opener.handle_mix(0, late), Err(OpenError::Generation(0)), "said when its time was over");
}

#[test]
fn another_secret_none_or_another_order_opens_nothing_of_the_next_generation() {
    for case in 0..4 {
        let (mut a, mut b) = connect(Suite::ChaCha20Poly1305);
        let [sent_one, got_one] = mixed(&a, &b, 0);
        let [sent_two, got_two] = mixed(&a, &b, 1);
        let _said =
            a.sealer.seal_mixing((&b"MIX, MIX"[..]).into(), [sent_one, sent_two]).expect("fresh keys");
        let [_, other] = mixed(&a, &b, 2);
        let heard = match case {
            0 => vec![],
            1 => vec![got_two, got_one],
            2 => vec![got_one, other],
            _ => vec![got_one, got_two],
        };
        for mix in heard {
            b.opener.handle_mix(0, mix).expect("in its generation");
        }
        a.sealer.handle_data_ack(a.sealer.next_dsn());
        a.sealer.update_keys(Instant::ZERO).expect("acknowledged");
        let mut block = a.sealer.seal(Kind::Data, (&b"behind"[..]).into()).expect("fresh keys");
        let payload = sent(&mut a.sealer, &mut block, &CONTEXT);
        assert_eq!(b.opener.open(block.dsn(), &CONTEXT, payload).is_ok(), case == 3, "case {case}");
    }
}

#[test]
fn seventy_generations_pass_the_end_of_the_six_bits() {
    let (mut a, mut b) = connect(Suite::ChaCha20Poly1305);
    for generation in 0..70u64 {
        let mut block = a.sealer.seal(Kind::Data, (&b"x"[..]).into()).expect("fresh");
        let mut update = a.sealer.update_keys(Instant::ZERO).expect("all acknowledged");
        for block in [&mut block, &mut update] {
            let payload = sent(&mut a.sealer, block, &CONTEXT);
            assert_eq!(u64::from(payload[0] & 0x3f), generation % 64);
            assert_eq!(b.opener.open(block.dsn(), &CONTEXT, payload).expect("true").generation, generation);
        }
        b.opener.handle_key_update(generation).expect("in order");
        a.sealer.handle_data_ack(update.end());
    }
    assert_eq!(b.opener.generation(), 70);
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
