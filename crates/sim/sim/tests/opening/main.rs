//! Opening with an attacker on a path: the attacker controls that path, and not the connection.

mod cut_off;
mod fixture;
mod garbage;
mod messages;
mod path_gone;
mod prologue;
mod resuming;

use fixture::{Attack, BYTES, Fixture, TEPS, assert_complete, first_byte, sealed};
use plait_base::{Duration, PathId};
use plait_handshake::Tep;
use plait_mptcp::{AttemptOutcome, AttemptStage, Config, ConnectionError, Fallback, PathClass};
use plait_sim::{CloseMode, Workload};

/// The sending sides: the client alone, the server alone (the client finishes at once), both.
const TALKS: [(u64, u64); 3] = [(BYTES, 0), (0, BYTES), (BYTES, BYTES)];

/// The transfer is complete although an attacker is on the first path, and begins little later than
/// undisturbed.
fn costs_a_moment(attack: Attack, config: &Config, reached: &[AttemptStage], moment: Duration) {
    for (up, down) in TALKS {
        let mut undisturbed = Fixture::new(1);
        let id = undisturbed.open(config, Workload::of(up), Workload::of(down));
        let usual = first_byte(&mut undisturbed, id, 0);
        let mut fixture = Fixture::new(1);
        attack.on(&mut fixture, 0);
        let id = fixture.open(config, Workload::of(up), Workload::of(down));
        let time = first_byte(&mut fixture, id, 0);
        println!("{attack:?}, {up} up, {down} down: first byte after {time:?}, undisturbed after {usual:?}");
        assert!(time < usual + moment, "{time:?}, undisturbed {usual:?}");
        let client = assert_complete(&mut fixture, id, (up, down));
        let attempts = &client.status.attempts;
        assert_eq!(attempts[0].path, PathId(0));
        assert!(reached.contains(&attempts[0].stage), "{attempts:?}");
        // The first attempt is as good as the second if it was joined over the other path.
        let chosen = attempts.iter().position(|attempt| attempt.outcome == AttemptOutcome::Chosen);
        assert_eq!(chosen, Some(usize::from(attempts[0].stage != AttemptStage::Confirmed)), "{attempts:?}");
        // The next connection does not begin with the path that has failed.
        let id = fixture.open_again(config, Workload::of(up));
        let time = first_byte(&mut fixture, id, 1);
        assert!(time <= usual + Duration::from_millis(20), "{time:?}, undisturbed {usual:?}");
    }
}

const LET_THROUGH: [AttemptStage; 2] = [AttemptStage::Authenticated, AttemptStage::Confirmed];
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_first_path_that_does_not_let_the_handshake_through_costs_less_than_a_second() {
    use AttemptStage::{Established, Handshake, SynSent};
    for tep in TEPS {
        let config = sealed(tep);
        for (attack, fixture) in [
            (Attack::Silence, SynSent),
            (Attack::Reset, SynSent),
            (Attack::NoEno, SynSent),
            (Attack::SynCrossing, SynSent),
            (Attack::SynAckBare, SynSent),
            (Attack::SynAckThenSilence, Established),
        ] {
            costs_a_moment(attack, &config, &[fixture], SECOND);
        }
    }
    for tep in TEPS {
        costs_a_moment(Attack::HandshakeAltered, &sealed(tep), &[Established, Handshake], SECOND);
    }
}

#[test]
fn a_first_path_that_lets_the_handshake_through_costs_less_than_two_seconds() {
    for tep in TEPS {
        let config = sealed(tep);
        for attack in [Attack::HandshakeThenSilence, Attack::BlocksAltered] {
            costs_a_moment(attack, &config, &LET_THROUGH, 2 * SECOND);
        }
    }
}

#[test]
fn a_first_path_that_delays_each_message_and_claims_long_round_trips_costs_less_than_two_seconds() {
    // What is late is sent again before another attempt begins.
    let config = Config { attempt_delay: Duration::from_millis(400), ..sealed(Tep::TcpcryptCurve25519) };
    costs_a_moment(Attack::DelaysThenSilence, &config, &LET_THROUGH, 2 * SECOND);
}

#[test]
fn the_same_holds_without_a_seal_where_plain_tcp_is_refused() {
    let config = Config { fallback: Fallback::Refuse, ..Config::default() };
    for (attack, fixture) in [
        (Attack::Silence, AttemptStage::SynSent),
        (Attack::Reset, AttemptStage::SynSent),
        (Attack::SynCrossing, AttemptStage::SynSent),
        (Attack::SynAckBare, AttemptStage::SynSent),
    ] {
        costs_a_moment(attack, &config, &[fixture], SECOND);
    }
}

#[test]
fn where_no_path_is_honest_the_error_tells_what_each_did_and_nothing_was_said() {
    for tep in TEPS {
        for (one, other, error) in [
            (Attack::Silence, Attack::Silence, ConnectionError::TimedOut),
            (Attack::Reset, Attack::Silence, ConnectionError::Refused),
            (Attack::SynAckBare, Attack::Reset, ConnectionError::NotSealed),
            (Attack::Silence, Attack::SynAckBare, ConnectionError::NotSealed),
            (Attack::SynAckThenSilence, Attack::NoEno, ConnectionError::HandshakeFailed),
            (Attack::SynCrossing, Attack::SynCrossing, ConnectionError::NotSealed),
            (Attack::HandshakeThenSilence, Attack::HandshakeThenSilence, ConnectionError::PerhapsDelivered),
            (Attack::HandshakeThenSilence, Attack::Silence, ConnectionError::PerhapsDelivered),
            (Attack::BlocksAltered, Attack::Reset, ConnectionError::PerhapsDelivered),
            (Attack::BlocksAltered, Attack::BlocksAltered, ConnectionError::PerhapsDelivered),
        ] {
            let mut fixture = Fixture::new(2);
            one.on(&mut fixture, 0);
            other.on(&mut fixture, 1);
            let mut config = sealed(tep);
            config.tcp.syn_retries = 3;
            let id = fixture.open(&config, Workload::of(BYTES), Workload::of(BYTES));
            let (client, shown) = fixture.run(id);
            assert_eq!((client.result, shown.len()), (Err(error), 0), "{one:?} {other:?}");
            let attempts = &client.status.attempts;
            let paths: Vec<_> = attempts.iter().map(|attempt| attempt.path).collect();
            assert_eq!(paths, [PathId(0), PathId(1)]);
            for attempt in attempts {
                assert!(matches!(attempt.outcome, AttemptOutcome::Failed(_)), "{attempt:?}");
            }
        }
    }
}

#[test]
fn trusted_paths_come_first_and_backups_last() {
    for (change, rest) in [(0, 1), (1, 0)] {
        for is_backup in [false, true] {
            let mut fixture = Fixture::new(3);
            let path = fixture.paths[change];
            fixture.world.change_path(fixture.client, path, |path| {
                if is_backup {
                    path.backup = true;
                } else {
                    path.class = PathClass::Untrusted;
                }
            });
            let config = sealed(Tep::TcpcryptCurve25519);
            let id = fixture.open(&config, Workload::of(BYTES), Workload::of(0).leaving(CloseMode::Polite));
            let client = assert_complete(&mut fixture, id, (BYTES, 0));
            let paths: Vec<_> = client.status.attempts.iter().map(|attempt| attempt.path).collect();
            assert_eq!(paths, [PathId(rest)]);
        }
    }
}
