//! Known answers: `life.json` is written by `scripts/decode`, which has them from docs/protocol.md alone.

use plait_protect::handshake::Transcript;
use serde_json::Value;

use super::*;

/// The entry of `life.json` for a handshake.
struct Known(Value);

impl Known {
    fn of(handshake: &str) -> Self {
        let life = include_str!("../../../protect/tests/vectors/life.json");
        let life: Value = serde_json::from_str(life).expect("valid JSON");
        Self(life[handshake].clone())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let hex = self.0[name].as_str().expect(name);
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    fn transcript(&self) -> BoundTranscript {
        let [capable_a, eno_a, capable_b, eno_b, prologue_a, prologue_b] =
            ["mp_capable_a", "eno_a", "mp_capable_b", "eno_b", "prologue_a", "prologue_b"]
                .map(|name| self.bytes(name));
        Transcript::new(&capable_a, &eno_a, &capable_b, &eno_b).bind(&prologue_a, &prologue_b)
    }
}

#[test]
fn the_confirmation_of_each_kind_of_secret_is_the_known_one() {
    // Exporter secrets of suites with SHA-256 and SHA-384, and the master secret of tcpcrypt.
    for (handshake, secret, known) in [
        ("tls", "exporter_secret_32", "confirmation_32"),
        ("tls", "exporter_secret_48", "confirmation_48"),
        ("tcpcrypt", "ms", "confirmation"),
    ] {
        let vectors = Known::of(handshake);
        let made = confirmation(&vectors.bytes(secret), &vectors.transcript()).expect("a short output");
        assert_eq!(made[..], vectors.bytes(known), "{handshake}, {known}");
    }
}

#[test]
fn a_confirmation_is_taken_whole_or_in_pieces_and_no_other_one_is() {
    let vectors = Known::of("tls");
    let known: [u8; LEN] = vectors.bytes("confirmation_48").try_into().expect("16 bytes");
    for split in 0..=LEN {
        let mut awaited = Awaited::new(known);
        assert_eq!(awaited.take(&known[..split]), Ok((split, split == LEN)));
        let behind = [&known[split..], b"mapped"].concat();
        assert_eq!(awaited.take(&behind), Ok((LEN - split, true)), "nothing behind it");
    }
    for bit in 0..8 * LEN {
        let mut other = known;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Awaited::new(known).take(&other), Err(HandshakeError::Unconfirmed), "bit {bit}");
    }
}
