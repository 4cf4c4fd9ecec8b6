//! The explorer on a world that fits on a page: a sender repeats a message until it is acknowledged, an attacker on the way may drop or
//! repeat each of both. With the planted defect the receiver does not remember what it has taken.

use crate::explorer::{Bounds, Choices, Coverage, EqualStates, Scenario, Trace, Violation, explore};

const MESSAGES: u8 = 2;
/// Transmissions after which the sender gives up.
const TRIES: u8 = 3;

struct Toy {
    remembers: bool,
    gives_up_aloud: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Pass,
    Drop,
    Twice,
}

impl Scenario for Toy {
    fn run(&self, choices: &mut Choices, trace: &mut Trace) -> Result<(), Violation> {
        let mut taken = [0_u8; MESSAGES as usize];
        for message in 0..MESSAGES {
            let mut is_acknowledged = false;
            for try_number in 0..TRIES {
                let state = |what: &str| format!("{what} {message} {try_number} {taken:?}");
                let way = choices.pick(&[Way::Pass, Way::Drop, Way::Twice], || state("message"));
                trace.line(|| format!("message {message}: {way:?}"));
                let arrivals = match way {
                    Way::Pass => 1,
                    Way::Drop => continue,
                    Way::Twice => 2,
                };
                let count = &mut taken[usize::from(message)];
                *count = if self.remembers { 1 } else { *count + arrivals };
                let state = format!("answer {message} {try_number} {taken:?}");
                let way = choices.pick(&[Way::Pass, Way::Drop], || state);
                trace.line(|| format!("answer {message}: {way:?}"));
                if way == Way::Pass {
                    is_acknowledged = true;
                    break;
                }
            }
            if choices.is_cut() {
                return Ok(());
            }
            if !is_acknowledged {
                let detail = format!("message {message} was given up");
                return if self.gives_up_aloud {
                    Ok(())
                } else {
                    Err(Violation { invariant: "silence", detail })
                };
            }
        }
        match taken.iter().position(|&count| count != 1) {
            None => Ok(()),
            Some(at) => Err(Violation { invariant: "once", detail: format!("message {at}: {}", taken[at]) }),
        }
    }
}

const SOUND: Toy = Toy { remembers: true, gives_up_aloud: true };

fn bounds(interventions: usize, equal_states: EqualStates) -> Bounds {
    Bounds { interventions, runs: usize::MAX, equal_states }
}

#[test]
fn a_planted_defect_is_found_with_the_fewest_interventions() {
    let report = explore(&Toy { remembers: false, ..SOUND }, bounds(9, EqualStates::Cut));
    assert_eq!(report.broken(), ["once"]);
    assert_eq!(report.found[0].interventions, 1, "{report}");
    assert_eq!(report.found[0].trace[..2], ["message 0: Twice", "answer 0: Pass"], "{report}");
}

#[test]
fn a_defect_behind_more_interventions_than_the_bound_is_not_claimed_to_be_absent() {
    let silent = Toy { gives_up_aloud: false, ..SOUND };
    let shallow = explore(&silent, bounds(2, EqualStates::Cut));
    assert_eq!(shallow.broken(), [""; 0]);
    assert!(matches!(shallow.coverage, Coverage::Bounded { left } if left > 0), "{shallow}");
    assert!(!shallow.to_string().contains("all states"), "{shallow}");
    let deep = explore(&silent, bounds(3, EqualStates::Cut));
    assert_eq!(deep.broken(), ["silence"]);
    assert_eq!(deep.found[0].interventions, 3, "{deep}");
}

#[test]
fn a_sound_world_is_searched_to_its_end_and_the_cut_of_equal_states_loses_no_defect() {
    let most = 2 * usize::from(MESSAGES * TRIES);
    for (toy, broken) in
        [(SOUND, &[][..]), (Toy { remembers: false, gives_up_aloud: false }, &["once", "silence"])]
    {
        let cut = explore(&toy, bounds(most, EqualStates::Cut));
        let whole = explore(&toy, bounds(most, EqualStates::Follow));
        assert_eq!(cut.broken(), broken);
        assert_eq!(whole.broken(), broken);
        assert_eq!((cut.coverage, whole.coverage), (Coverage::AllStates, Coverage::AllStates));
        assert!(cut.runs < whole.runs && cut.states == whole.states, "{cut}\n{whole}");
        assert!(cut.to_string().contains("all states"));
    }
}

#[test]
fn a_bound_of_runs_is_reported() {
    let report = explore(&SOUND, Bounds { runs: 5, ..bounds(12, EqualStates::Cut) });
    assert_eq!(report.runs, 5);
    assert!(matches!(report.coverage, Coverage::Bounded { left } if left > 0), "{report}");
}
