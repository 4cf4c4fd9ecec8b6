//! Replays the seeds of the fuzz targets, as they are, with every bit flipped, and truncated at every
//! length; so a build without cargo-fuzz walks over the same ground.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

/// Headers and options lie within the first bytes; behind them is payload.
const EFFORT: Effort = Effort { bytes: 160, step: 1 };

#[test]
fn packets() {
    replay("packet", 70, &EFFORT, properties::packet);
}

#[test]
fn option_fields() {
    replay("options", 30, &EFFORT, properties::options_field);
}

#[test]
fn eno_contents() {
    replay("eno", 8, &EFFORT, properties::suboptions);
}
