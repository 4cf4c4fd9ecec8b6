//! A server that is known already, and an attacker on the first path: each attempt resumes a session or does a full handshake, and
//! the connection is one.

use plait_handshake::Tep;
use plait_mptcp::{AttemptOutcome, Config};
use plait_sim::{Outcome, Workload};

use crate::fixture::{Attack, BYTES, Fixture, assert_complete, sealed};

fn meet(seed: u64, attack: Option<Attack>, config: &Config) -> Outcome {
    let mut fixture = Fixture::new(seed);
    if let Some(attack) = attack {
        attack.on(&mut fixture, 0);
    }
    let id = fixture.open(config, Workload::of(BYTES), Workload::of(BYTES));
    assert_complete(&mut fixture, id, (BYTES, BYTES))
}

fn is_resumed(outcome: &Outcome) -> bool {
    outcome.status.sealed.as_ref().is_some_and(|sealed| sealed.is_resumed)
}

#[test]
fn an_attempt_that_fails_takes_its_ticket_along_and_nothing_else() {
    for attack in [
        Attack::SynAckThenSilence,
        Attack::HandshakeAltered,
        Attack::HandshakeThenSilence,
        Attack::BlocksAltered,
    ] {
        let config = sealed(Tep::Tls13);
        assert!(!is_resumed(&meet(1, None, &config)));
        assert!(is_resumed(&meet(2, None, &config)));
        // The first attempt has the only ticket.
        let attacked = meet(3, Some(attack), &config);
        let attempts = &attacked.status.attempts;
        let chosen = attempts.iter().position(|attempt| attempt.outcome == AttemptOutcome::Chosen);
        assert_eq!(is_resumed(&attacked), chosen == Some(0), "{attack:?}: {attempts:?}");
        assert!(is_resumed(&meet(4, None, &config)), "{attack:?}: what has come through has given another");
    }
}
