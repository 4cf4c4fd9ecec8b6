//! Which subflow may carry which bytes: path classes of both sides, and what is left of the trusted ones.

use crate::config::{Protect, WithoutTrusted};
use crate::subflows::subflow::{Subflow, SubflowState};
use crate::{Connection, Host, Path, PathClass, Scheduler, TrustedPaths};

impl SubflowState {
    /// The lower of what both sides think of the way.
    pub(crate) fn trust(&self) -> PathClass {
        self.class.max(self.class_theirs)
    }
}

impl Connection {
    pub(crate) fn trusted_paths(&self) -> TrustedPaths {
        let trusted =
            |subflow: &&Subflow| subflow.state.trust() == PathClass::Trusted && subflow.state.is_present();
        if self.subflows.iter().filter(trusted).any(Subflow::is_good) {
            TrustedPaths::Work
        } else if self.subflows.iter().any(|subflow| trusted(&subflow)) {
            TrustedPaths::Stalled
        } else {
            TrustedPaths::Gone
        }
    }

    /// Whether the subflow may carry the bytes from data offset `start` to `end`, be it for the first time or
    /// once more.
    pub(crate) fn may_carry(&self, subflow: &Subflow, start: u64, end: u64) -> bool {
        let trusted = self.trusted_paths();
        self.protection.may_carry(subflow.state.trust(), trusted, start)
            && self
                .exposure_limit(trusted)
                .is_none_or(|limit| self.outgoing.exposure_allows(&subflow.state, start, end, limit))
    }

    /// Most bytes in a row that an untrusted path may see now. Without a trusted path somebody has to see the
    /// rest.
    pub(crate) fn exposure_limit(&self, trusted: TrustedPaths) -> Option<u64> {
        match self.config.scheduler {
            _ if !self.protection.is_readable_in_rows() => None,
            Scheduler::Dispersed { max_exposure } if trusted != TrustedPaths::Gone => {
                Some(max_exposure.get().into())
            }
            Scheduler::Dispersed { .. }
            | Scheduler::LowestRtt
            | Scheduler::RoundRobin
            | Scheduler::Redundant => None,
        }
    }

    /// A subflow is about to carry these bytes.
    pub(crate) fn note_carried(&mut self, index: usize, start: u64, length: u64) {
        let trusted = self.trusted_paths();
        let state = &self.subflows[index].state;
        if trusted == TrustedPaths::Gone && state.trust() != PathClass::Trusted {
            self.protection.note_degraded(length);
        }
        if self.protection.is_readable_in_rows()
            && matches!(self.config.scheduler, Scheduler::Dispersed { .. })
        {
            self.outgoing.note_exposed(state, start, start + length);
        }
    }

    /// The user thinks otherwise of the path of a subflow. Where its class decides what it may carry (on a scrambled connection,
    /// and where untrusted paths see only so many bytes in a row) the subflow is left: what it still has to repeat is not for a path
    /// that has become untrusted, and the peer learns of the new class when the path is joined again. `false` if nothing changes
    /// by it.
    pub(crate) fn leave_for_class(&mut self, index: usize, class: PathClass) -> bool {
        let state = &mut self.subflows[index].state;
        let is_other = core::mem::replace(&mut state.class, class) != class;
        let is_bound = self.protection.is_bound_to_classes()
            || (self.protection.is_readable_in_rows()
                && matches!(self.config.scheduler, Scheduler::Dispersed { .. }));
        is_other && is_bound
    }
}

/// Whether a first subflow may be opened over this path: the keys go over it, and the first data.
pub(crate) fn may_open_over(protect: &Protect, path: &Path, host: &dyn Host) -> bool {
    match (path.class, protect) {
        (PathClass::Never, _) => false,
        (PathClass::Trusted, _) | (PathClass::Untrusted, Protect::Plain | Protect::Sealed(_)) => true,
        (PathClass::Untrusted, Protect::Scramble(settings)) => {
            let is_trusted = |path: &Path| path.up && path.class == PathClass::Trusted;
            settings.without_trusted == WithoutTrusted::Degrade && !host.paths().iter().any(is_trusted)
        }
    }
}
