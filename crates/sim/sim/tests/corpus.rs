//! Replays the seeds of the fuzz targets for connections over simulated paths.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

/// Each try is a whole connection.
const EFFORT: Effort = Effort { bytes: 24, step: 13 };

#[test]
fn an_attacker_on_one_path_of_two() {
    replay("two-paths", 8, &EFFORT, properties::one_path_of_two);
}

#[test]
#[should_panic(expected = "is not the one that was said")]
fn the_same_flips_are_heard_where_nothing_is_sealed() {
    let flips = include_bytes!("../../../../fuzz/corpus/two-paths/flips-payload-behind-the-opening");
    properties::hold_one_path(&plait_mptcp::Config::default(), flips);
}
