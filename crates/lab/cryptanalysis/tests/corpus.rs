//! Replays the seeds of the fuzz target for captures.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 400, step: 11 };

#[test]
fn captures_of_strangers() {
    replay("captures", 3, &EFFORT, properties::capture);
}
