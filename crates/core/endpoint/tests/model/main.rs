//! A bounded model checker over the real core: see docs/protocol.md, "What the model checks and what it leaves out".
//!
//! Each family is a small world, an alphabet of the attacker, and invariants. `PLAIT_MODEL_DEEPER=2` searches with two interventions
//! more than usual; `--nocapture` prints the runs that break an invariant.

mod applications;
mod attacker;
mod attacks;
mod explorer;
mod joins;
mod openings;
mod seen_to_fail;
mod segments;
mod settings;
mod toy;
mod world;

use explorer::{Bounds, EqualStates, Report, Scenario, explore};
use joins::{End, Joins, on_exchanges, on_joins};
use openings::Openings;
use plait_base::Duration;
use segments::Side;
use std::io::Write;

/// A broken invariant, and the fewest interventions that break it.
type Broken = (&'static str, usize);

/// The expected result of the search of a family, within its bound of interventions.
enum Expected {
    /// No invariant is broken.
    Holds,
    /// The family has a defect planted, or lacks a fix, and these invariants break: so the search is seen to find it.
    Planted(&'static [Broken]),
}

const TWICE: &str = "no byte is delivered twice";
const AGREE: &str = "both ends agree on which subflows live";
const HANDOVER: &str = "a handover is through in time";

/// Searches a family, and prints its bounds and the states visited.
fn check(name: &str, interventions: usize, scenario: &impl Scenario, expected: &Expected) {
    let bound = interventions + deeper();
    let report = search(name, bound, EqualStates::Cut, scenario);
    let broken = match expected {
        Expected::Holds => &[][..],
        Expected::Planted(broken) => broken,
    };
    let expected: Vec<Broken> = broken.iter().copied().filter(|(_, needed)| *needed <= bound).collect();
    let found: Vec<Broken> =
        report.found.iter().map(|found| (found.violation.invariant, found.interventions)).collect();
    assert_eq!(found, expected, "{name}: {report}");
    println!("{name}: {report}");
}

fn search(name: &str, interventions: usize, equal_states: EqualStates, scenario: &impl Scenario) -> Report {
    let report = explore(scenario, Bounds { interventions, runs: usize::MAX, equal_states });
    // Not by `println`: what a search has covered is said in each run of the tests.
    writeln!(std::io::stderr(), "model: {name}: {}", report.summary()).expect("the terminal takes it");
    report
}

/// Number of interventions beyond the usual.
#[allow(clippy::disallowed_methods, reason = "the caller of a test chooses how deep to search")]
fn deeper() -> usize {
    std::env::var("PLAIT_MODEL_DEEPER")
        .map_or(0, |number| number.parse().expect("PLAIT_MODEL_DEEPER is a number"))
}

#[test]
fn openings_over_an_attacked_path_deliver_each_byte_once() {
    check("opening, one server", 3, &Openings(openings::ONE_SERVER), &Expected::Holds);
}

#[test]
fn a_clock_that_stands_still_while_the_client_sleeps_delivers_bytes_twice() {
    let planted = Expected::Planted(&[(TWICE, 1)]);
    check("opening, clock that stands still", 1, &Openings(openings::CLOCK_STANDS_STILL), &planted);
}

#[test]
fn a_server_that_starts_again_is_not_told_the_bytes_of_its_predecessor() {
    check("opening, server started again", 3, &Openings(openings::STARTED_AGAIN), &Expected::Holds);
}

#[test]
fn bytes_reach_one_of_two_servers_with_one_name() {
    check("opening, two servers on both paths", 3, &Openings(openings::TWO_SERVERS), &Expected::Holds);
    check("opening, two servers apart", 3, &Openings(openings::TWO_SERVERS_APART), &Expected::Holds);
}

#[test]
fn servers_that_nothing_tells_apart_hear_bytes_twice() {
    check("opening, twin servers", 1, &Openings(openings::TWIN_SERVERS), &Expected::Planted(&[(TWICE, 1)]));
    check("opening, twin starts", 2, &Openings(openings::TWIN_STARTS), &Expected::Planted(&[(TWICE, 2)]));
}

/// Joins over path 1 of an idle connection are attacked until the back-off of the client has tried eight.
const JOINS: Joins = Joins {
    attacked: 1,
    attack: Duration::from_secs(45),
    alphabet: on_joins,
    sleeps: &[0],
    talkers: &[],
    verifies_life: true,
    end: End::Handover,
};

/// Exchanges of keys are attacked for longer than 64 joins take, a second each: more are not kept.
const EXCHANGES: Joins =
    Joins { attack: Duration::from_secs(80), alphabet: on_exchanges, end: End::Talk, ..JOINS };

#[test]
fn a_handover_is_not_locked_out_by_subflows_that_live_at_one_end() {
    check("joins, then a handover", 2, &JOINS, &Expected::Holds);
    check("first subflow, then a handover", 2, &Joins { attacked: 0, ..JOINS }, &Expected::Holds);
    let unverified = Joins { verifies_life: false, ..JOINS };
    check(
        "joins that only TCP verifies, then a handover",
        2,
        &unverified,
        &Expected::Planted(&[(HANDOVER, 2)]),
    );
}

#[test]
fn both_ends_agree_on_which_subflows_live() {
    let joins = Joins { end: End::Agreement, ..JOINS };
    check("joins, then agreement", 2, &joins, &Expected::Holds);
    check("first subflow, then agreement", 2, &Joins { attacked: 0, ..joins }, &Expected::Holds);
    let unverified = Joins { verifies_life: false, ..joins };
    check("joins that only TCP verifies, then agreement", 1, &unverified, &Expected::Planted(&[(AGREE, 1)]));
}

#[test]
fn words_arrive_over_the_honest_path_whatever_becomes_of_the_joins() {
    let joins = Joins { end: End::Talk, ..JOINS };
    check("joins, then talk", 2, &joins, &Expected::Holds);
    let sleepy = Joins { sleeps: &[0, 40, 70], ..joins };
    check("joins, sleep, then talk", 2, &sleepy, &Expected::Holds);
    let talkative = Joins { talkers: &[Side::Client, Side::Server], ..joins };
    check("joins amid talk", 1, &talkative, &Expected::Holds);
}

#[test]
fn an_exchange_that_is_held_back_or_forgotten_ends_nothing() {
    check("exchanges, then talk", 6, &EXCHANGES, &Expected::Holds);
    let talkative = Joins { talkers: &[Side::Client], ..EXCHANGES };
    check("exchanges amid talk", 3, &talkative, &Expected::Holds);
}

#[test]
fn keys_move_on_when_the_attack_is_over() {
    let ratchet = Joins { attack: Duration::from_secs(10), end: End::Ratchet, ..EXCHANGES };
    check("exchanges, then a ratchet", 3, &ratchet, &Expected::Holds);
}

#[test]
fn the_cut_of_equal_states_loses_no_defect() {
    let joins = Joins { end: End::Agreement, attack: Duration::from_secs(20), verifies_life: false, ..JOINS };
    compare("joins", 1, &joins);
    compare("opening, twin starts", 2, &Openings(openings::TWIN_STARTS));
}

/// A search finds the same with the cut of equal states and without.
fn compare(name: &str, interventions: usize, scenario: &impl Scenario) {
    let cut = search(&format!("{name}, equal states cut"), interventions, EqualStates::Cut, scenario);
    let whole =
        search(&format!("{name}, equal states followed"), interventions, EqualStates::Follow, scenario);
    assert_eq!(cut.broken(), whole.broken());
    assert!(!cut.broken().is_empty(), "a comparison of nothing with nothing says nothing: {cut}");
    assert!(cut.runs <= whole.runs, "{cut}\n{whole}");
}
