//! Option tags: what they bind, and how often somebody may guess at them.

mod sealing;
mod stranger;
mod visit;
mod world;

use plait_protect::sealed::Kind;
use visit::Visit;
use world::SERVER;

/// What was recorded 4 GiB earlier has the same 32 bits in its DSS option.
#[test]
fn a_block_of_another_4_gib_of_its_subflow_does_not_verify() {
    let mut visit = Visit::open();
    let honest = visit.peer.block(Kind::Data, b"here");
    visit.say(&honest);
    assert_eq!(visit.world.sides[SERVER].received, b"here");

    let here = visit.peer.sent;
    let elsewhere = visit.peer.block_of(Kind::Data, b"there", here + (1 << 32));
    visit.say(&elsewhere);
    assert_eq!(visit.world.status(SERVER).counters.blocks_failed, 1);
    assert_eq!(visit.world.sides[SERVER].received, b"here");
}
