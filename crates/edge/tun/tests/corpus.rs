//! Replays the seeds of the fuzz target for packets of TUN devices.

mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 80, step: 1 };

#[test]
fn packets_of_devices() {
    replay("virtio", 6, &EFFORT, properties::packet);
}
