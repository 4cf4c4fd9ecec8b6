//! Generations of keys, and the secrets of paths that are mixed into them.

use super::*;

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
