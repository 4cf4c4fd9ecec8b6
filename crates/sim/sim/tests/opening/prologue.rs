//! Prologues that an attacker on the first path changes: that costs the attempt there, and nothing more.

use plait_mptcp::AttemptOutcome;
use plait_sim::{Direction, Workload};
use plait_wire::Segment;

use crate::fixture::{Fate, Fixture, TEPS, assert_complete, sealed};

const UP: u64 = 30_000;
const DOWN: u64 = 20_000;

/// What becomes of the first bytes of one end.
type Change = fn(&mut [u8]);

const CHANGES: [(&str, Change); 5] = [
    ("a longer one is announced", |bytes| bytes[0] += 1),
    ("a shorter one is announced", |bytes| bytes[0] -= 1),
    ("a capability is taken out", |bytes| bytes[4] ^= 4),
    ("an unknown capability is put in", |bytes| bytes[1] ^= 0x80),
    ("the last byte, of a server that of its instance, is another", |bytes| {
        let last = usize::from(bytes[0]);
        bytes[last] ^= 1;
    }),
];

/// Changes the prologue of one end on the first path, in each repetition alike.
fn change_on(fixture: &mut Fixture, of: Direction, change: Change) {
    let mut first = None;
    fixture.meddle(0, move |_, direction, segment: &mut Segment| {
        if direction == of && !segment.payload.is_empty() {
            let key = (segment.source, segment.destination, segment.seq);
            if *first.get_or_insert(key) == key {
                let mut payload = segment.payload.to_vec();
                change(&mut payload);
                segment.payload = payload.into();
            }
        }
        Fate::Pass
    });
}

#[test]
fn a_changed_prologue_costs_the_attempt_of_its_path_and_everything_arrives_once() {
    for tep in TEPS {
        for of in [Direction::Forward, Direction::Backward] {
            for (what, change) in CHANGES {
                let mut fixture = Fixture::new(7);
                change_on(&mut fixture, of, change);
                let id = fixture.open(&sealed(tep), Workload::of(UP), Workload::of(DOWN));
                let client = assert_complete(&mut fixture, id, (UP, DOWN));
                let attempts = &client.status.attempts;
                let chosen = attempts.iter().position(|attempt| attempt.outcome == AttemptOutcome::Chosen);
                assert_eq!(chosen, Some(1), "{tep:?}, {of:?}, {what}: {attempts:?}");
            }
        }
    }
}
