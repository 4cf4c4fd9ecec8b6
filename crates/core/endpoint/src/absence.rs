//! Absences of this host.

use plait_base::{Duration, Instant};

use crate::entry::Stage;
use crate::{Endpoint, log};

impl Endpoint {
    /// Handles the end of an absence: for this time the host did not run, because its process was stopped or the machine was suspended.
    /// The driver calls it before the packets and the timers that follow, and `now` includes the absence. Each connection asks its peer at
    /// once whether the connection is still there, and none counts the absence as silence of its peer.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration) {
        let all: Vec<_> = self.connections.keys().copied().collect();
        for id in all {
            let Some(entry) = self.connections.get_mut(&id) else { continue };
            if let Stage::Orphan { check, .. } = &mut entry.stage {
                *check = now + self.config.orphan_timeout;
            }
            let around = &mut self.around.lend_to(id);
            log::of(id, entry.is_quiet, || entry.connection.handle_absence(now, absence, around));
            self.on_progress(now, id);
        }
    }
}
