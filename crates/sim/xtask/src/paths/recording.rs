//! Recorded rates, replayed on a link of the simulator.

use plait_base::Instant;
use plait_bench::Recording;
use plait_sim::{Direction, Element, Frame, Link, Outlet};
use std::sync::Arc;

/// A link with the rates of a recording, from its first frame on.
pub(crate) struct Replay {
    recording: Arc<Recording>,
    link: Link,
    began: Option<Instant>,
    /// Number of the next step.
    next: u32,
}

impl Replay {
    pub(crate) fn new(recording: Arc<Recording>, link: Link) -> Self {
        Self { recording, link, began: None, next: 0 }
    }
}

impl Element for Replay {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let began = *self.began.get_or_insert(now);
        loop {
            let at = began + self.recording.step() * self.next;
            if at > now {
                break;
            }
            self.link.set_rate(at, Some(self.recording.rate(self.next.into())));
            self.next += 1;
        }
        self.link.pass(now, direction, frame, out);
    }
}
