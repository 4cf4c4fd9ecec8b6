//! Replays the seeds of the fuzz target for requests.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use plait_proxy::{convert, socks, url};
use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 300, step: 1 };

#[test]
fn requests_of_strangers() {
    replay("requests", 8, &EFFORT, properties::request);
}
