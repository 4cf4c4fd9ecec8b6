//! CHECK, the records of a subflow's life and the secrets of signals against known answers: `life.json`, written by `scripts/decode`, which
//! derives them from docs/protocol.md alone.

use plait_base::Instant;
use serde_json::Value;

use super::{
    Check, ConnectionSecrets, Exchange, GoneReason, MasterSecret, Opener, Record, Records, RefusalReason,
    Role, Sealer, SubflowTag, Suite,
};
use crate::handshake::Transcript;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/life.json")).expect("valid JSON")
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("a string");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn subflow(hex: &Value) -> SubflowTag {
    SubflowTag(u64::from_str_radix(hex.as_str().expect("a string"), 16).expect("hex"))
}

/// Returns the sealer and opener of an end when both directions are in this generation, and the peer has acknowledged that.
fn end(role: Role, generation: u64) -> (Sealer, Opener) {
    let ms = bytes(&vectors()["ms"]);
    let master = MasterSecret::filled_by::<()>(|out| {
        out.copy_from_slice(&ms);
        Ok(())
    });
    let secrets = ConnectionSecrets::derive(master.expect("cannot fail"), 0x23);
    let suite = Suite::Aes128Gcm;
    let (_, mut sealer, mut opener) = secrets.start(role, suite, suite.limits(), Instant::ZERO);
    for closed in 0..generation {
        sealer.update_keys(Instant::ZERO).expect("the one before is acknowledged");
        sealer.handle_data_ack(sealer.next_dsn());
        opener.handle_key_update(closed).expect("in order");
    }
    (sealer, opener)
}

fn role(way: &Value) -> Role {
    match way.as_str() {
        Some("ab") => Role::A,
        Some("ba") => Role::B,
        other => panic!("{other:?} is no direction"),
    }
}

#[test]
fn checks_of_each_generation_and_direction_are_the_known_ones() {
    let vectors = vectors();
    let checks = vectors["checks"].as_array().expect("a list");
    assert_eq!(checks.len(), 12);
    for known in checks {
        let (mut sealer, _) = end(role(&known["way"]), known["generation"].as_u64().expect("a number"));
        for (name, check) in [("question", Check::Question as fn(u64) -> Check), ("answer", Check::Answer)] {
            let option =
                sealer.tag_check(subflow(&known["subflow"]), check(0x1122_3344_5566_7788)).to_option();
            assert_eq!(option, *bytes(&known[name]), "{known}");
        }
    }
}

#[test]
fn secrets_beside_the_stream_of_each_generation_are_the_known_ones() {
    let vectors = vectors();
    let known = vectors["beside_the_stream"].as_array().expect("a list");
    assert_eq!(known.len(), 3);
    for (generation, known) in (0..).zip(known) {
        let [(a, _), (b, _)] = [Role::A, Role::B].map(|role| end(role, generation));
        for (sealer, path, fast_close) in [(&a, "path_ab", "fclose_a"), (&b, "path_ba", "fclose_b")] {
            let (wire, secret) = sealer.path_secret();
            assert_eq!(u64::from(wire), generation);
            assert_eq!(secret.expose(), &*bytes(&known[path]), "{path} {generation}");
            assert_eq!(sealer.fast_close(), &*bytes(&known[fast_close]), "{fast_close} {generation}");
        }
        let joins = a.join_keys().expect("joins follow A's direction");
        for (role, name) in [(Role::A, "join_a"), (Role::B, "join_b")] {
            assert_eq!(joins.of(role).expose(), &*bytes(&known[name]), "{name} {generation}");
        }
    }
}

#[test]
fn records_of_the_life_of_a_subflow_are_the_known_ones() {
    let known = &vectors()["records"];
    let subflow = subflow(&known["subflow"]);
    let number = known["number"].as_u64().and_then(|number| u32::try_from(number).ok()).expect("32 bits");
    let reason =
        GoneReason(known["reason"].as_u64().and_then(|reason| u8::try_from(reason).ok()).expect("a byte"));
    let exchange = Exchange { subflow, number };
    let records = [
        ("gone", Record::Gone { subflow, reason }),
        ("void", Record::Void(exchange)),
        ("agreed", Record::Agreed(exchange)),
        ("mix", Record::Mix(exchange)),
    ];
    for (name, record) in records {
        assert_eq!(record.to_bytes()[..], bytes(&known[name]), "{name}");
    }
}

#[test]
fn refusals_are_the_known_ones() {
    let known = &vectors()["records"];
    let reasons = [
        RefusalReason::Other,
        RefusalReason::NotAuthorized,
        RefusalReason::Full,
        RefusalReason::Draining,
        RefusalReason::Expired,
        RefusalReason::TooMany,
    ];
    for (number, reason) in reasons.into_iter().enumerate() {
        assert_eq!(Record::Refused(reason).to_bytes()[..], bytes(&known[format!("refused_{number}")]));
    }
    // A number without a reason is another one.
    let read: Vec<_> = Records::new(&bytes(&known["refused_6"])).collect();
    assert_eq!(read, [Ok(Record::Refused(RefusalReason::Other))]);
}

#[test]
fn the_context_of_the_exporter_is_the_known_one() {
    let known = &vectors()["tls"];
    let of = |name: &str| bytes(&known[name]);
    let said = Transcript::new(&of("mp_capable_a"), &of("eno_a"), &of("mp_capable_b"), &of("eno_b"));
    assert_eq!(said.bind(&of("prologue_a"), &of("prologue_b")).hash(), *of("th"));
}
