//! Subflows on trial. A completed join alone does not end an outage: an attacker that cuts all paths may let joins pass, and a block after
//! each of them. An outage ends with a subflow that is verified later than that.

use plait_base::Instant;

use crate::Connection;
use crate::protection::Mode;
use crate::subflows::Trial;

impl Connection {
    /// Begins the trial of a subflow with a complete join. Without sealing the join is the only proof needed.
    pub(crate) fn begin_trial(&mut self, now: Instant, index: usize) {
        self.closing.on_subflow();
        let believes_join = self.protection.believes_join();
        self.subflows.touch(index).state.trial_mut().begin(now, believes_join);
        if believes_join {
            self.closing.on_way();
        }
    }

    /// Notes that a verified arrival has come on this subflow.
    pub(crate) fn follow_trial(&mut self, now: Instant, index: usize) {
        if self.subflows.touch(index).state.trial_mut().on_arrival(now) {
            self.closing.on_way();
        }
    }

    /// Asks subflows on trial for an answer, or gives up.
    pub(crate) fn run_no_way(&mut self, now: Instant) -> bool {
        let asks = self.protection.verifies_life();
        for subflow in self.subflows.touch_all() {
            if subflow.state.is_present() && subflow.state.trial_mut().on_time(now) {
                subflow.state.life_mut().hurry();
                if !asks {
                    subflow.tcp.probe();
                }
            }
        }
        self.no_way_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns when subflows on trial are asked, or when the connection fails because no subflow has lasted for too long.
    pub(crate) fn no_way_deadline(&self) -> Option<Instant> {
        let end = self.closing.no_way_since()? + self.config.no_subflow_timeout;
        let trials = || {
            let present = self.subflows.iter().filter(|subflow| subflow.state.is_present());
            present.map(|subflow| subflow.state.trial())
        };
        let probe = trials().filter_map(Trial::probe_at).min();
        // A subflow that has joined in time gets the time to prove itself.
        let last = trials().filter_map(Trial::joined).filter(|joined| *joined <= end).max();
        let end = last.map_or(end, |joined| end.max(Trial::end(joined)));
        let is_multipath = self.mode() == Mode::Multipath;
        Some(probe.filter(|_| is_multipath).map_or(end, |probe| probe.min(end)))
    }
}
