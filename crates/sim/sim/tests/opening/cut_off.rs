//! A connection is open for its client, and then every path keeps from it what the server says. What the client says gets
//! through, and so do the handshakes of TCP.

use plait_base::{Duration, PathId};
use plait_handshake::Tep;
use plait_mptcp::{ConnectionError, PathReport};
use plait_sim::{Direction, Workload};
use plait_wire::Segment;
use std::collections::BTreeSet;

use crate::fixture::{Fate, Fixture, MINUTE, TEPS, alter, is_block, sealed};

/// So that the end of the connection is not the end of what is to be said.
const MANY: u64 = 1 << 20;
/// A minute until the paths are known to be dead, and another for one that may come back; and a moment for the last join.
const LIMIT: Duration = Duration::from_secs(122);

/// What becomes of the server's segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// Nothing passes behind the first block of each subflow.
    BehindFirstBlock,
    /// Each block is changed.
    Altered,
}

impl Cut {
    fn on(self, fixture: &mut Fixture, path: usize) {
        let mut silent = BTreeSet::new();
        fixture.meddle(path, move |_, direction, segment: &mut Segment| {
            if direction == Direction::Forward {
                return Fate::Pass;
            }
            match self {
                Self::BehindFirstBlock => {
                    if silent.contains(&segment.destination) {
                        return Fate::Drop;
                    }
                    if is_block(segment) {
                        silent.insert(segment.destination);
                    }
                }
                Self::Altered if is_block(segment) => alter(segment),
                Self::Altered => {}
            }
            Fate::Pass
        });
    }
}

#[test]
fn a_connection_whose_every_path_is_cut_behind_the_first_block_is_an_error_within_two_minutes() {
    for tep in TEPS {
        for seed in 0..3 {
            fails_in_time(tep, Cut::BehindFirstBlock, 40 + seed);
        }
    }
}

#[test]
fn so_is_one_whose_every_block_is_altered_on_every_path() {
    for tep in TEPS {
        fails_in_time(tep, Cut::Altered, 50);
    }
}

fn fails_in_time(tep: Tep, cut: Cut, seed: u64) {
    let mut fixture = Fixture::new(seed);
    (0..2).for_each(|path| cut.on(&mut fixture, path));
    let id = fixture.open(&sealed(tep), Workload::of(MANY), Workload::of(MANY));
    let client = fixture.client;
    let begin = fixture.world.now();
    fixture.world.run_until(10 * MINUTE, |world| world.application(client, id).outcome().is_some());
    let outcome = fixture.world.application(client, id).outcome().expect("the client has ended").clone();
    let took = outcome.at.saturating_since(begin);
    println!("{tep:?}, {cut:?}: {:?} after {took:?}: {:?}", outcome.result, outcome.status.path_reports());
    assert!(took <= LIMIT, "{took:?}");
    assert!(matches!(outcome.result, Err(ConnectionError::AllPathsLost | ConnectionError::FastClose)));
    let reports = outcome.status.path_reports();
    assert_eq!(reports.iter().map(|report| report.path).collect::<Vec<_>>(), [PathId(0), PathId(1)]);
    let says = |report: &PathReport| match cut {
        Cut::BehindFirstBlock => report.silent > 0,
        Cut::Altered => report.blocks_failed > 0,
    };
    assert!(reports.iter().any(says), "{reports:?}");
    assert!(reports.iter().all(|report| says(report) || !report.to_string().is_empty()));
}

/// An attacker that cuts the second path later keeps a subflow that has joined in vain present all the time.
#[test]
fn it_is_an_error_two_minutes_after_the_last_path_was_cut_also_where_they_are_cut_one_after_the_other() {
    const LATER: Duration = Duration::from_secs(20);
    let mut fixture = Fixture::new(70);
    Cut::BehindFirstBlock.on(&mut fixture, 0);
    let begin = fixture.world.now();
    // The server has still something to say then.
    let client = Workload::of(MANY).reading_from(begin + LATER + LATER / 4);
    let id = fixture.open(&sealed(Tep::Tls13), client, Workload::of(MANY));
    let client = fixture.client;
    fixture.world.run_for(LATER);
    assert!(fixture.world.application(client, id).outcome().is_none());
    Cut::BehindFirstBlock.on(&mut fixture, 1);
    fixture.world.run_until(10 * MINUTE, |world| world.application(client, id).outcome().is_some());
    let outcome = fixture.world.application(client, id).outcome().expect("the client has ended").clone();
    let took = outcome.at.saturating_since(begin);
    println!("{:?} after {took:?}: {:?}", outcome.result, outcome.status.path_reports());
    assert_eq!(outcome.result, Err(ConnectionError::AllPathsLost));
    // What was read then has let the server's last blocks pass.
    assert!(took <= LIMIT + LATER + LATER / 4, "{took:?}");
}
