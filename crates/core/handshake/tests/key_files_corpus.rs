//! Replays the seeds of the fuzz target for key files.

mod key_files;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 700, step: 3 };

#[test]
fn texts_of_identities() {
    replay("key-files", 5, &EFFORT, key_files::key_file);
}
