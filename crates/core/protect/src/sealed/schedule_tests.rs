//! The key schedule against known answers.

use serde_json::Value;

use super::super::{JoinTranscript, Kind};
use super::*;
use crate::sealed::block::Header;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/mptcpsec_ms1.json")).expect("valid JSON")
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("a string");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn secrets() -> ConnectionSecrets {
    let ms = bytes(&vectors()["key_schedule"]["ms"]);
    let master = MasterSecret::filled_by::<()>(|out| {
        out.copy_from_slice(&ms);
        Ok(())
    });
    ConnectionSecrets::derive(master.expect("cannot fail"), 0x23)
}

const SUITES: [(Suite, &str); 3] = [
    (Suite::Aes128Gcm, "AES_128_GCM"),
    (Suite::Aes256Gcm, "AES_256_GCM"),
    (Suite::ChaCha20Poly1305, "CHACHA20_POLY1305"),
];

#[test]
fn names_and_secrets_of_a_connection_are_the_known_ones() {
    let vectors = &vectors()["key_schedule"];
    let secrets = secrets();
    let identity = secrets.identity();
    for (role, name) in [(Role::A, "a"), (Role::B, "b")] {
        let known = |what: &str| bytes(&vectors[format!("{what}_{name}")]);
        assert_eq!(identity.token(role).to_be_bytes(), *known("token"));
        assert_eq!(identity.idsn(role).bits().to_be_bytes(), *known("idsn"));
    }
    for (role, name) in [(Role::A, "a"), (Role::B, "b")] {
        let known = |what: &str| bytes(&vectors[format!("{what}_{name}")]);
        let (_, sealer, opener) =
            self::secrets().start(role, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), Instant::ZERO);
        let keys = sealer.join_keys().or(opener.join_keys()).expect("one of them follows A's direction");
        assert_eq!(keys.of(role).expose(), &*known("join"));
        assert_eq!(sealer.fast_close(), &*known("fclose"));
        assert!(!opener.is_fast_close(sealer.fast_close()), "each host has its own");
        let (_, _, peer) =
            self::secrets().start(role.peer(), Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), Instant::ZERO);
        assert!(peer.is_fast_close(sealer.fast_close()));
    }
    assert_eq!(identity.session_id()[0], 0x23);
    assert_eq!(identity.session_id()[1..], bytes(&vectors["session_id_part"]));
    assert_eq!(identity.exporter().expose(), &*bytes(&vectors["exporter"]));
    assert_eq!(identity.resume().expose(), &*bytes(&vectors["resume_secret"]));
}

#[test]
fn traffic_secrets_and_keys_are_the_known_ones_in_both_directions() {
    let vectors = &vectors()["key_schedule"];
    let secrets = secrets();
    for (direction, name) in [(&secrets.from_a, "ab"), (&secrets.from_b, "ba")] {
        let known = |what: String| bytes(&vectors[what]);
        assert_eq!(direction.data.expose(), &*known(format!("ts_{name}_0")));
        assert_eq!(direction.option.expose(), &*known(format!("os_{name}_0")));
        let next = direction.next(&[]);
        assert_eq!(next.data.expose(), &*known(format!("ts_{name}_1_after_key_update")));
        assert_eq!(next.option.expose(), &*known(format!("os_{name}_1_after_key_update")));
        for (suite, suite_name) in SUITES {
            let key = known(format!("key_{name}_0_{suite_name}"));
            let iv = known(format!("iv_{name}_0_{suite_name}"));
            let root = Hkdf::from_secret(direction.data.expose());
            let mut derived = vec![0; key.len()];
            root.labelled("key", &suite.number().to_be_bytes(), &mut derived);
            assert_eq!(derived, key);
            // Nonces start from the iv: at number 0 they are it.
            let zero = direction.block_key(suite).nonce(Header::new(Kind::Data, 0), Dsn::new(0));
            assert_eq!(zero, *iv);
        }
    }
}

#[test]
fn the_hmacs_of_a_join_are_the_known_ones() {
    let vectors = &vectors()["join"];
    let number = |what: &str| u32::from_be_bytes(bytes(&vectors[what]).try_into().expect("four bytes"));
    let small = |what: &str| u8::try_from(vectors[what].as_u64().expect("a number")).expect("a byte");
    let transcript = JoinTranscript {
        initiator_nonce: number("R_A"),
        responder_nonce: number("R_B"),
        initiator_flags: small("flags_A(low 4 bits of SYN byte 2: reserved+B)"),
        initiator_address: small("addr_id_A"),
        responder_flags: small("flags_B"),
        responder_address: small("addr_id_B"),
    };
    let (identity, sealer, _) =
        secrets().start(Role::A, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), Instant::ZERO);
    let join = |initiator, transcript: &_| {
        identity.join(sealer.join_keys().expect("A sends"), initiator, transcript)
    };
    let known = join(Role::A, &transcript);
    assert_eq!(known.syn_ack(), *bytes(&vectors["HMAC_B_synack_64"]));
    assert_eq!(known.ack(), *bytes(&vectors["HMAC_A_ack_160"]));
    assert_eq!(known.subflow().0.to_be_bytes(), *bytes(&vectors["subflow_id_u64"]));

    // Whatever a middlebox changes on the way makes both HMACs differ.
    let altered = [
        JoinTranscript { initiator_flags: transcript.initiator_flags ^ 1, ..transcript },
        JoinTranscript { responder_flags: 2, ..transcript },
        JoinTranscript { initiator_address: 3, ..transcript },
        JoinTranscript { responder_address: 1, ..transcript },
        JoinTranscript { initiator_nonce: 0, ..transcript },
        JoinTranscript { responder_nonce: 0, ..transcript },
    ];
    for other in altered {
        let other = join(Role::A, &other);
        assert!(!known.is_syn_ack(&other.syn_ack()) && !known.is_ack(&other.ack()));
    }
    let reverse = join(Role::B, &transcript);
    assert!(!known.is_ack(&reverse.ack()), "a join from the other side cannot be reflected");
}

#[test]
fn the_third_generation_follows_from_the_second() {
    let secrets = secrets();
    let (_, mut sealer, _) =
        secrets.start(Role::A, Suite::Aes128Gcm, Suite::Aes128Gcm.limits(), Instant::ZERO);
    let before = sealer.current().secrets().data.expose().to_owned();
    sealer.update_keys(Instant::ZERO).expect("nothing is outstanding");
    sealer.handle_data_ack(sealer.next_dsn());
    let between = sealer.current().secrets().data.expose().to_owned();
    sealer.update_keys(Instant::ZERO).expect("all is acknowledged");
    let after = sealer.current().secrets();
    assert!(before != between && between != *after.data.expose() && before != *after.data.expose());
}

#[test]
fn the_option_key_of_a_subflow_is_the_known_one() {
    let vectors = vectors();
    let secrets = secrets();
    let block = &vectors["data_blocks"][0];
    for which in ["sf_first", "sf_joined"] {
        let id = bytes(&block[which]["subflow_id"]);
        let key = secrets.from_a.option_key(SubflowTag(u64::from_be_bytes(id.try_into().expect("eight"))));
        assert_eq!(key.expose(), &*bytes(&block[which]["opt_key"]));
    }
}
