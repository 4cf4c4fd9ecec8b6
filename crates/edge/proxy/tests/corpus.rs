//! Replays the seeds of the fuzz targets for requests and for lines of allowed clients.

#[path = "properties/clients.rs"]
mod clients;
mod properties;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use plait_proxy::{clients as entry, convert, socks, url};
use replay::{Effort, replay};

const EFFORT: Effort = Effort { bytes: 300, step: 1 };

#[test]
fn requests_of_strangers() {
    replay("requests", 8, &EFFORT, properties::request);
}

#[test]
fn lines_of_allowed_clients() {
    replay("allowed-clients", 3, &EFFORT, clients::allowed_client);
}
