//! Replays the corpus of known servers without a fuzzer.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

#[test]
fn known_servers_are_read_as_they_are_written() {
    let effort = Effort { bytes: 400, step: 3 };
    replay("known-servers", 3, &effort, properties::known_servers);
}
