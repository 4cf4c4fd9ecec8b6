//! Replays the seeds of the fuzz targets for sealed connections.

mod listener;
mod properties;
mod raw_peer;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod sealing;
mod world;

use replay::{Effort, replay};

/// Each try is a whole connection.
const EFFORT: Effort = Effort { bytes: 40, step: 5 };

#[test]
fn an_attacker_on_the_path() {
    replay("sealed-path", 8, &EFFORT, properties::meddling);
}

#[test]
fn a_peer_with_the_keys() {
    replay("sealed-peer", 8, &EFFORT, properties::peer_with_keys);
}
