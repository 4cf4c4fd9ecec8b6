//! Absences: this host did not run for a while, because its process was stopped or the machine was suspended.
//!
//! The silence of that time is not the peer's, so every limit of silence begins anew, and every subflow is asked at once. The peer has
//! counted all the same, and may have given the connection up. Only this host knows of its absence, and no packet can feign one.

use crate::log;
use plait_base::{Duration, Instant};

use crate::{Connection, ConnectionError, Host};

impl Connection {
    /// Handles the end of an absence of this host. The owner calls it before anything else that follows the absence.
    pub fn handle_absence(&mut self, now: Instant, absence: Duration, host: &mut dyn Host) {
        if self.closing.is_over() {
            return;
        }
        log::debug!(?absence, "this host goes on after an absence");
        self.subflows.touch_all().for_each(|subflow| subflow.resume(now));
        self.outgoing.resume(now);
        self.closing.resume(now);
        self.paths.hurry(now);
        // Without its absence this host would have ended the connection by now: an attacker on all paths gains nothing by ending it.
        if absence >= self.config.no_subflow_timeout {
            self.paths.begin_grace(now, now + self.config.no_subflow_timeout, host.paths());
        }
        self.settle(now, host);
    }

    /// Ends the connection after an absence if the peer has forgotten it.
    pub(crate) fn end_if_forgotten(&mut self, now: Instant, host: &dyn Host) {
        if !self.closing.is_over()
            && !self.subflows.has_unended()
            && self.paths.is_forgotten(now, host.paths())
        {
            self.fail(ConnectionError::Forgotten);
        }
    }
}
