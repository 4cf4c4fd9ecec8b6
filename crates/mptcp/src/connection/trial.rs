//! Subflows on trial. A completed join alone does not end an outage: an attacker that cuts all paths may let joins pass, and a block after
//! each of them. An outage ends with a subflow that is verified later than that.

use plait_base::{Duration, Instant};

use crate::Connection;
use crate::protection::Mode;
use crate::subflows::{Subflow, Trial};

/// Age at which an arrival shows that a subflow lasts. The connection asks for an answer then, because the peer may have nothing to send.
const LASTING: Duration = Duration::from_secs(1);
/// How long the answer may take.
const ANSWER: Duration = Duration::from_secs(3);

impl Connection {
    /// Begins the trial of a subflow with a complete join. Without sealing the join is the only proof needed.
    pub(crate) fn begin_trial(&mut self, now: Instant, index: usize) {
        self.closing.on_subflow();
        if self.protection.believes_join() {
            self.subflows[index].state.trial = Trial::Over;
            self.closing.on_way();
        } else {
            self.subflows[index].state.trial = Trial::Since { joined: now, is_probed: false };
        }
    }

    /// Notes that a verified arrival has come on this subflow.
    pub(crate) fn follow_trial(&mut self, now: Instant, index: usize) {
        let state = &mut self.subflows[index].state;
        if let Trial::Since { joined, .. } = state.trial
            && joined + LASTING <= now
        {
            state.trial = Trial::Over;
            self.closing.on_way();
        }
    }

    /// Asks subflows on trial for an answer, or gives up.
    pub(crate) fn run_no_way(&mut self, now: Instant) -> bool {
        let asks = self.protection.verifies_life();
        for subflow in &mut self.subflows {
            if subflow.state.is_present()
                && let Trial::Since { joined, is_probed } = &mut subflow.state.trial
                && !*is_probed
                && *joined + LASTING <= now
            {
                *is_probed = true;
                subflow.state.life.hurry();
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
        let trials = || self.subflows.iter().filter(|subflow| subflow.state.is_present()).filter_map(trial);
        let probe = trials().filter(|(_, is_probed)| !is_probed).map(|(joined, _)| joined + LASTING).min();
        // A subflow that has joined in time gets the time to prove itself.
        let last = trials().map(|(joined, _)| joined).filter(|joined| *joined <= end).max();
        let end = last.map_or(end, |joined| end.max(joined + LASTING + ANSWER));
        let is_multipath = self.mode() == Mode::Multipath;
        Some(probe.filter(|_| is_multipath).map_or(end, |probe| probe.min(end)))
    }
}

fn trial(subflow: &Subflow) -> Option<(Instant, bool)> {
    match subflow.state.trial {
        Trial::Since { joined, is_probed } => Some((joined, is_probed)),
        Trial::Pending | Trial::Over => None,
    }
}
