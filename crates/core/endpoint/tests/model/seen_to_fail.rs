//! Each invariant that no search finds broken is seen to break: a record is altered, or the world does what an attacker cannot.

use plait_base::Duration;

use crate::applications::Application;
use crate::explorer::{Choices, Scenario, Trace, Violation};
use crate::joins::{self, End, Joins};
use crate::openings::{self, ONE_SERVER, Openings};
use crate::segments::Side;
use crate::settings::sealed;
use crate::world::World;

/// What an undisturbed opening is judged to be after its records were altered.
fn opening_altered(alter: impl Fn(&mut World<'_>)) -> Result<(), Violation> {
    let (mut choices, mut trace) = (Choices::by_default(), Trace::default());
    let mut world = World::new(ONE_SERVER, sealed(), &mut choices, &mut trace);
    openings::play(&mut world);
    alter(&mut world);
    openings::judge(&world)
}

fn invariant(judged: Result<(), Violation>) -> &'static str {
    judged.expect_err("an invariant is broken").invariant
}

fn client<'w>(world: &'w mut World<'_>) -> &'w mut Application {
    world.client.as_mut().expect("it was opened")
}

#[test]
fn an_undisturbed_opening_breaks_no_invariant() {
    assert_eq!(opening_altered(|_| {}), Ok(()));
    assert_eq!(Openings(ONE_SERVER).run(&mut Choices::by_default(), &mut Trace::default()), Ok(()));
}

#[test]
fn altered_records_of_an_opening_break_its_invariants() {
    let changed = opening_altered(|world| world.accepted[0].wrong_at = Some(3));
    assert_eq!(invariant(changed), "no byte is changed");
    let lost = opening_altered(|world| world.accepted[0].heard -= 1);
    assert_eq!(invariant(lost), "nothing is lost silently");
    let cut_short = opening_altered(|world| {
        world.accepted[0].heard -= 1;
        client(world).failed = Some(plait_mptcp::ConnectionError::Reset);
    });
    assert_eq!(invariant(cut_short), "nothing ends silently");
    let endless = opening_altered(|world| client(world).end = None);
    assert_eq!(invariant(endless), "the client is told an end");
    let failed = opening_altered(|world| {
        world.accepted[0].failed = Some(plait_mptcp::ConnectionError::AllPathsLost);
    });
    assert_eq!(invariant(failed), "no error while the honest path works");
}

/// A connection after its first second.
fn with_connection(act: impl FnOnce(&mut World<'_>) -> Result<(), Violation>) -> Result<(), Violation> {
    let (mut choices, mut trace) = (Choices::by_default(), Trace::default());
    let mut world = World::new(joins::SETUP, sealed(), &mut choices, &mut trace);
    world.connect(6, false);
    world.run_for(Duration::from_secs(1));
    act(&mut world)
}

#[test]
fn words_that_no_path_carries_are_missed() {
    let judged = with_connection(|world| {
        world.dead = [true; 3];
        joins::say_words(world, Duration::from_secs(2), "words")
    });
    assert_eq!(invariant(judged), "words");
    assert_eq!(with_connection(|world| joins::say_words(world, Duration::from_secs(2), "words")), Ok(()));
}

#[test]
fn a_block_that_is_altered_on_the_honest_path_is_noticed() {
    let judged = with_connection(|world| {
        world.corrupts_next_block = true;
        world.say(Side::Client, 100);
        world.run_for(Duration::from_secs(5));
        joins::compare_ends(world)
    });
    assert_eq!(invariant(judged), "each block verifies");
}

#[test]
fn ends_with_different_generations_are_told_apart() {
    let (mut choices, mut trace) = (Choices::by_default(), Trace::default());
    let mut world = World::new(joins::SETUP, sealed(), &mut choices, &mut trace);
    world.connect(6, false);
    world.run(Duration::from_secs(5), |world| !world.accepted.is_empty());
    // One end says KEY_UPDATE, and it takes 10 ms to the other one.
    let is_between = world.run(Duration::from_secs(5), |world| joins::compare_ends(world).is_err());
    assert!(is_between, "keys are mixed behind the first join");
    assert_eq!(invariant(joins::compare_ends(&world)), "keys are in step");
    world.run_for(Duration::from_secs(1));
    assert_eq!(joins::compare_ends(&world), Ok(()));
}

#[test]
fn keys_that_stay_the_same_are_noticed() {
    // Two minutes pass before the default settings ask a path for another share.
    let judged = with_connection(joins::keys_move);
    assert_eq!(invariant(judged), "keys move on");
    let ratchet = Joins { end: End::Ratchet, attack: Duration::from_secs(2), ..crate::EXCHANGES };
    assert_eq!(ratchet.run(&mut Choices::by_default(), &mut Trace::default()), Ok(()));
}
