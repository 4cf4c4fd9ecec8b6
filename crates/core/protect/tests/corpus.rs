//! Replays the seeds of the fuzz targets for blocks, control records and datagrams.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 120, step: 1 };

#[test]
fn blocks() {
    replay("block", 8, &EFFORT, properties::block);
}

#[test]
fn control_records() {
    replay("records", 8, &EFFORT, properties::records);
}

#[test]
fn datagrams() {
    replay("datagram", 6, &EFFORT, properties::datagram);
}
