//! Replays the seeds of the fuzz targets for handshakes.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

/// Each try makes keys, and a hash covers every byte: a sample is enough.
const EFFORT: Effort = Effort { bytes: 200, step: 7 };

#[test]
fn bytes_of_strangers() {
    replay("handshake", 7, &EFFORT, properties::from_a_stranger);
}

#[test]
fn edits_on_the_path() {
    replay("edited-handshake", 6, &EFFORT, properties::on_the_path);
}
