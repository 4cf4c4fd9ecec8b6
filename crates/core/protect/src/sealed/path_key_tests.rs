use super::*;
use crate::sealed::{ConnectionSecrets, MasterSecret, Role};
use plait_base::SeededRandom;

/// The opener, over its second path.
const OPENER: Speaker = Speaker::Opener(PathNumber(1));
const EXCHANGE: Exchange = Exchange { subflow: SubflowTag(0x1234_5678_9abc), number: 7 };

/// One end of a connection.
struct End {
    identity: ConnectionIdentity,
    sealer: Sealer,
    opener: Opener,
}

impl End {
    fn new(role: Role, seed: u8) -> Self {
        let master = MasterSecret::filled_by::<()>(|bytes| {
            bytes.fill(seed);
            Ok(())
        });
        Self::of(role, ConnectionSecrets::derive(master.expect("it was filled"), 0x23))
    }

    fn of(role: Role, secrets: ConnectionSecrets) -> Self {
        let now = plait_base::Instant::ZERO;
        let (identity, sealer, opener) =
            secrets.start(role, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), now);
        Self { identity, sealer, opener }
    }

    fn keys(&self) -> PathKeys<'_> {
        PathKeys::new(&self.sealer, &self.opener)
    }

    fn offer(&self, us: Speaker, exchange: Exchange, seed: u64) -> (PathOffer, Vec<u8>) {
        self.identity.offer_path(self.keys(), us, exchange, &mut random(seed)).expect("keys")
    }

    fn answer(
        &self,
        us: Speaker,
        exchange: Exchange,
        message: &[u8],
        seed: u64,
    ) -> Result<(Vec<u8>, Share), PathKeyError> {
        self.identity.answer_path(self.keys(), (us, exchange), message, (&mut random(seed), &|_, _| ()))
    }

    fn finish(&self, offer: PathOffer, message: &[u8]) -> Result<Share, PathKeyError> {
        self.identity.finish_path(self.keys(), offer, message, &|_, _| ())
    }
}

/// A and B of one connection.
fn ends(seed: u8) -> [End; 2] {
    [End::new(Role::A, seed), End::new(Role::B, seed)]
}

fn random(seed: u64) -> SeededRandom {
    SeededRandom::from_number(seed)
}

#[test]
fn both_ends_come_to_the_same_secret_and_each_exchange_to_another() {
    let [a, b] = ends(1);
    let mut seen = Vec::new();
    for (number, seed) in [(0, 1), (1, 1), (u32::MAX, 2)] {
        let exchange = Exchange { number, ..EXCHANGE };
        let (offer, question) = b.offer(Speaker::Listener, exchange, seed);
        assert_eq!(question.len(), OFFER_LEN);
        assert_eq!(exchange_of(exchange.subflow, &question), Some(exchange));
        let (answer, theirs) = a.answer(OPENER, exchange, &question, seed + 10).expect("it is genuine");
        assert_eq!(answer.len(), ANSWER_LEN);
        let ours = b.finish(offer, &answer).expect("it is genuine");
        assert_eq!(ours.secret.expose(), theirs.secret.expose());
        assert_eq!([ours.path, theirs.path], [PathNumber(1); 2]);
        assert!(!seen.contains(ours.secret.expose()));
        seen.push(*ours.secret.expose());
    }
}

#[test]
fn a_message_is_good_for_its_exchange_its_sender_and_its_connection_only() {
    let [a, b] = ends(1);
    let (_, question) = b.offer(Speaker::Listener, EXCHANGE, 1);
    let answer = |end: &End, us, exchange, message: &[u8]| end.answer(us, exchange, message, 2).map(|_| ());
    assert_eq!(answer(&a, OPENER, EXCHANGE, &question), Ok(()));
    let forged = Err(PathKeyError::Forged);
    assert_eq!(answer(&b, Speaker::Listener, EXCHANGE, &question), forged, "sent back to where it came from");
    let next = Exchange { number: 8, ..EXCHANGE };
    assert_eq!(answer(&a, OPENER, next, &question), forged, "replayed into the next exchange");
    let elsewhere = Exchange { subflow: SubflowTag(1), ..EXCHANGE };
    assert_eq!(answer(&a, OPENER, elsewhere, &question), forged, "replayed on another subflow");
    assert_eq!(answer(&ends(2)[0], OPENER, EXCHANGE, &question), forged, "another connection");
    for at in (0..question.len()).step_by(97).chain([question.len() - 1]).chain(0..HEADER_LEN) {
        let mut altered = question.clone();
        altered[at] ^= 1;
        assert_eq!(answer(&a, OPENER, EXCHANGE, &altered), forged, "byte {at} altered");
    }
    for length in [0, 2, 3, 18, 19, HEADER_LEN, question.len() - 1] {
        assert_eq!(answer(&a, OPENER, EXCHANGE, &question[..length]), forged);
    }
}

#[test]
fn the_same_exchange_twice_has_other_keys_each_time() {
    // Both nonces of a join have 32 bits: an attacker that waits long enough sees an exchange with the same name begun again.
    let [a, b] = ends(1);
    let (first, question) = b.offer(Speaker::Listener, EXCHANGE, 1);
    let (second, again) = b.offer(Speaker::Listener, EXCHANGE, 2);
    let clear = |message: &[u8]| message[HEADER_LEN..HEADER_LEN + 65].to_vec();
    let texts = [first.text().expect("keys"), second.text().expect("keys")];
    let apart = |one: &[u8], other: &[u8]| one.iter().zip(other).map(|(a, b)| a ^ b).collect::<Vec<_>>();
    assert_ne!(
        apart(&clear(&question), &clear(&again)),
        apart(&texts[0][..65], &texts[1][..65]),
        "one key stream would give away what both texts differ by"
    );
    let (answer, _) = a.answer(OPENER, EXCHANGE, &question, 3).expect("it is genuine");
    assert_eq!(
        b.finish(second, &answer).map(|_| ()),
        Err(PathKeyError::Forged),
        "an answer to another offer"
    );
}

#[test]
fn a_peer_whose_shares_are_no_keys_is_refused() {
    let [a, b] = ends(1);
    let (offer, _) = b.offer(Speaker::Listener, EXCHANGE, 1);
    let good = offer.text().expect("keys");
    for (what, range, value) in
        [("a point of small order", X25519_KEY, 0), ("no element of the ring", COMMON..200, 0xff)]
    {
        let mut text = good.clone();
        text[range].fill(value);
        let question = b.keys().seal(OFFER, EXCHANGE, &Fresh { offered: &[], own: &[9; FRESH_LEN] }, &text);
        let answered = a.answer(OPENER, EXCHANGE, &question, 2);
        assert_eq!(answered.map(|_| ()), Err(PathKeyError::Weak), "{what}");
    }
}

#[test]
fn the_opener_says_of_which_path_a_share_is_in_both_directions_and_the_listener_numbers_none() {
    let [a, b] = ends(1);
    for path in [PathNumber(0), PathNumber(3), PathNumber(255)] {
        let (offer, question) = a.offer(Speaker::Opener(path), EXCHANGE, 1);
        let (answer, theirs) = b.answer(Speaker::Listener, EXCHANGE, &question, 2).expect("it is genuine");
        let ours = a.finish(offer, &answer).expect("it is genuine");
        assert_eq!([ours.path, theirs.path], [path; 2]);
    }
    let (offer, _) = b.offer(Speaker::Listener, EXCHANGE, 1);
    let mut text = offer.text().expect("keys");
    text[0] = 1;
    let question = b.keys().seal(OFFER, EXCHANGE, &Fresh { offered: &[], own: &[9; FRESH_LEN] }, &text);
    let answered = a.answer(OPENER, EXCHANGE, &question, 2);
    assert_eq!(answered.map(|_| ()), Err(PathKeyError::NumberedByListener));
}

#[test]
fn messages_follow_the_generations_of_their_direction() {
    let [a, mut b] = ends(1);
    let exchange = EXCHANGE;
    let (_, before) = b.offer(Speaker::Listener, exchange, 1);
    b.sealer.update_keys(plait_base::Instant::ZERO).expect("nothing is outstanding");
    let (_, unacknowledged) = b.offer(Speaker::Listener, exchange, 1);
    assert_eq!(before, unacknowledged, "A may not have heard of the next generation");
    b.sealer.handle_data_ack(b.sealer.next_dsn());
    let (_, after) = b.offer(Speaker::Listener, exchange, 1);
    assert_eq!((before[1], after[1]), (0, 1));
    assert_eq!(a.answer(OPENER, exchange, &after, 2).map(|_| ()), Err(PathKeyError::Forged), "not yet");
    let End { mut opener, sealer, identity } = a;
    opener.handle_key_update(0).expect("in order");
    let a = End { opener, sealer, identity };
    assert_eq!(a.answer(OPENER, exchange, &after, 2).map(|_| ()), Ok(()));
    assert_eq!(a.answer(OPENER, exchange, &before, 2).map(|_| ()), Ok(()), "it has crossed a slower path");
}

#[test]
fn without_the_bytes_of_the_path_there_is_no_secret() {
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
    let (offer, _) = ends(1)[1].offer(Speaker::Listener, EXCHANGE, 1);
    let hex = format!("{offer:?}");
    assert!(!hex.contains("random"), "{hex}");
}

/// Known bytes in the place of random ones.
struct Given(Vec<Vec<u8>>);

impl Random for Given {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.remove(0));
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
    let exchange = Exchange { subflow: SubflowTag(number("subflow")), number: number("number") as u32 };
    let secrets = || {
        let master = MasterSecret::filled_by::<()>(|out| {
            out.copy_from_slice(&known("ms"));
            Ok(())
        });
        ConnectionSecrets::derive(master.expect("cannot fail"), 0x23)
    };
    let b = End::of(Role::B, secrets());
    let mut drawn = Given(vec![known("fresh_b"), known("seed_b")]);
    let (offer, question) =
        b.identity.offer_path(b.keys(), Speaker::Listener, exchange, &mut drawn).expect("keys");
    assert_eq!(question, known("offer"));
    let share = b.finish(offer, &known("answer")).expect("it is genuine");
    assert_eq!(share.secret.expose(), &*known("mix"));
    assert_eq!(share.path, PathNumber(2));
    let mut mixes = vec![share.secret];
    let mut another = MixSecret::extract(&[]);
    another.overwrite(&known("another_mix"));
    for of in ["of_mix", "of_mix_and_another"] {
        for (direction, way) in [(Role::A, "ab"), (Role::B, "ba")] {
            let (data, option) = secrets().next_of(direction, &mixes);
            assert_eq!(data, *known(&format!("ts_{way}_1_{of}")), "{way} {of}");
            assert_eq!(option, *known(&format!("os_{way}_1_{of}")), "{way} {of}");
        }
        if of == "of_mix" {
            let signals = secrets().signals_of(&mixes);
            for (known_as, bytes) in signals {
                assert_eq!(bytes, known(&format!("{known_as}_1_of_mix")), "{known_as}");
            }
        }
        mixes.push(another.duplicate());
    }
}
