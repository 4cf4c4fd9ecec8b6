use super::*;
use crate::sealed::{ConnectionSecrets, MasterSecret};
use plait_base::SeededRandom;

/// The opener, over its second path.
const OPENER: Speaker = Speaker::Opener(PathNumber(1));
const EXCHANGE: Exchange = Exchange { subflow: SubflowTag(0x1234_5678_9abc), number: 7 };

fn identity(seed: u8) -> ConnectionIdentity {
    let master = MasterSecret::filled_by::<()>(|bytes| {
        bytes.fill(seed);
        Ok(())
    });
    let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0x23);
    let now = plait_base::Instant::ZERO;
    secrets.start(Role::A, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), now).0
}

fn random(seed: u64) -> SeededRandom {
    SeededRandom::from_number(seed)
}

#[test]
fn both_ends_come_to_the_same_secret_and_each_exchange_to_another() {
    let identity = identity(1);
    let mut seen = Vec::new();
    for (number, seed) in [(0, 1), (1, 1), (0, 2)] {
        let exchange = Exchange { number, ..EXCHANGE };
        let (offer, question) =
            identity.offer_path(Speaker::Listener, exchange, &mut random(seed)).expect("keys");
        assert_eq!(question.len(), OFFER_LEN);
        let answered =
            identity.answer_path(OPENER, exchange, &question, (&mut random(seed + 10), &|_, _| ()));
        let (answer, theirs) = answered.expect("it is genuine");
        assert_eq!(answer.len(), ANSWER_LEN);
        let ours = identity.finish_path(offer, &answer, &|_, _| ()).expect("it is genuine");
        assert_eq!(ours.secret.expose(), theirs.secret.expose());
        assert_eq!([ours.path, theirs.path], [PathNumber(1); 2]);
        assert!(!seen.contains(ours.secret.expose()));
        seen.push(*ours.secret.expose());
    }
}

#[test]
fn a_message_is_good_for_its_exchange_its_sender_and_its_connection_only() {
    let identity = identity(1);
    let (_, question) = identity.offer_path(Speaker::Listener, EXCHANGE, &mut random(1)).expect("keys");
    let answer = |identity: &ConnectionIdentity, us, exchange, message: &[u8]| {
        identity.answer_path(us, exchange, message, (&mut random(2), &|_, _| ())).map(|_| ())
    };
    assert_eq!(answer(&identity, OPENER, EXCHANGE, &question), Ok(()));
    let forged = Err(PathKeyError::Forged);
    assert_eq!(
        answer(&identity, Speaker::Listener, EXCHANGE, &question),
        forged,
        "sent back to where it came from"
    );
    let next = Exchange { number: 8, ..EXCHANGE };
    assert_eq!(answer(&identity, OPENER, next, &question), forged, "replayed into the next exchange");
    let elsewhere = Exchange { subflow: SubflowTag(1), ..EXCHANGE };
    assert_eq!(answer(&identity, OPENER, elsewhere, &question), forged, "replayed on another subflow");
    assert_eq!(answer(&self::identity(2), OPENER, EXCHANGE, &question), forged, "another connection");
    for at in (0..question.len()).step_by(97).chain([question.len() - 1]) {
        let mut altered = question.clone();
        altered[at] ^= 1;
        assert_eq!(answer(&identity, OPENER, EXCHANGE, &altered), forged, "byte {at} altered");
    }
    for length in [0, 2, 3, 18, 19, question.len() - 1] {
        assert_eq!(answer(&identity, OPENER, EXCHANGE, &question[..length]), forged);
    }
}

#[test]
fn a_peer_whose_shares_are_no_keys_is_refused() {
    let identity = identity(1);
    let (offer, _) = identity.offer_path(Speaker::Listener, EXCHANGE, &mut random(1)).expect("keys");
    let good = offer.text().expect("keys");
    for (what, range, value) in
        [("a point of small order", X25519_KEY, 0), ("no element of the ring", COMMON..200, 0xff)]
    {
        let mut text = good.clone();
        text[range].fill(value);
        let question = identity.seal_path(Role::B, OFFER, EXCHANGE, &text);
        let answered = identity.answer_path(OPENER, EXCHANGE, &question, (&mut random(2), &|_, _| ()));
        assert_eq!(answered.map(|_| ()), Err(PathKeyError::Weak), "{what}");
    }
}

#[test]
fn the_opener_says_of_which_path_a_share_is_whoever_speaks_first_and_the_listener_numbers_none() {
    let identity = identity(1);
    for path in [PathNumber(0), PathNumber(3), PathNumber(255)] {
        let us = Speaker::Opener(path);
        let (offer, question) = identity.offer_path(us, EXCHANGE, &mut random(1)).expect("keys");
        let with: (&mut dyn Random, ShareLog<'_>) = (&mut random(2), &|_, _| ());
        let (answer, theirs) =
            identity.answer_path(Speaker::Listener, EXCHANGE, &question, with).expect("it is genuine");
        let ours = identity.finish_path(offer, &answer, &|_, _| ()).expect("it is genuine");
        assert_eq!([ours.path, theirs.path], [path; 2]);
    }
    let (offer, _) = identity.offer_path(Speaker::Listener, EXCHANGE, &mut random(1)).expect("keys");
    let mut text = offer.text().expect("keys");
    text[0] = 1;
    let question = identity.seal_path(Role::B, OFFER, EXCHANGE, &text);
    let answered = identity.answer_path(OPENER, EXCHANGE, &question, (&mut random(2), &|_, _| ()));
    assert_eq!(answered.map(|_| ()), Err(PathKeyError::NumberedByListener));
}

#[test]
fn who_lacks_the_bytes_of_the_path_lacks_the_secret() {
    // Everything but the 32 random bytes of one side is the same: the agreement, the shares, the names.
    let mut texts = [[1; OFFER_TEXT].to_vec(), [1; OFFER_TEXT].to_vec()];
    texts[1][32] ^= 1;
    let [one, other] = texts.map(|text| mix(EXCHANGE, &text, &[2; ANSWER_TEXT], [&[3; 32], &[4; 32]]));
    assert_ne!(one.expose(), other.expose());
    // And everything but the agreement.
    let broken = mix(EXCHANGE, &[1; OFFER_TEXT], &[2; ANSWER_TEXT], [&[3; 32], &[5; 32]]);
    assert_ne!(one.expose(), broken.expose());
}

#[test]
fn a_secret_is_printed_nowhere() {
    let (offer, _) = identity(1).offer_path(Speaker::Listener, EXCHANGE, &mut random(1)).expect("keys");
    let hex = format!("{offer:?}");
    assert!(!hex.contains("random"), "{hex}");
}

/// Known bytes in the place of random ones.
struct Given(Vec<u8>);

impl Random for Given {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }
}

#[test]
fn messages_secret_and_next_generations_are_the_known_ones() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/vectors/path_mix.json")).expect("valid JSON");
    let known = |what: &str| {
        let hex = vectors[what].as_str().expect("a string");
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
            .collect::<Vec<_>>()
    };
    let number = |what: &str| vectors[what].as_u64().expect("a number");
    let exchange = Exchange { subflow: SubflowTag(number("subflow")), number: number("number") as u16 };
    let master = MasterSecret::filled_by::<()>(|out| {
        out.copy_from_slice(&known("ms"));
        Ok(())
    });
    let secrets = ConnectionSecrets::derive(master.expect("cannot fail"), 0x23);
    let identity = secrets.identity();
    let (offer, question) =
        identity.offer_path(Speaker::Listener, exchange, &mut Given(known("seed_b"))).expect("keys");
    assert_eq!(question, known("offer"));
    let share = identity.finish_path(offer, &known("answer"), &|_, _| ()).expect("it is genuine");
    assert_eq!(share.secret.expose(), &*known("mix"));
    assert_eq!(share.path, PathNumber(2));
    let mut mixes = vec![share.secret];
    let mut another = MixSecret::extract(&[]);
    another.overwrite(&known("another_mix"));
    for of in ["of_mix", "of_mix_and_another"] {
        for (direction, way) in [(Role::A, "ab"), (Role::B, "ba")] {
            let (data, option) = secrets.next_of(direction, &mixes);
            assert_eq!(data, *known(&format!("ts_{way}_1_{of}")), "{way} {of}");
            assert_eq!(option, *known(&format!("os_{way}_1_{of}")), "{way} {of}");
        }
        mixes.push(another.duplicate());
    }
}
