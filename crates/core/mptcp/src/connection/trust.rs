//! Which subflow may carry which bytes: path classes of both sides, and the number of trusted paths left.

use crate::config::{Protect, WithoutTrusted};
use crate::subflows::Subflow;
use crate::{Connection, Host, Path, PathClass, TrustedPaths};

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

    /// Whether the subflow may carry the bytes from data offset `start` to `end`, for the first time or again.
    pub(crate) fn may_carry(&self, subflow: &Subflow, start: u64, end: u64) -> bool {
        let trusted = self.trusted_paths();
        self.protection.may_carry(subflow.state.trust(), trusted, start)
            && self
                .exposure_limit(trusted)
                .is_none_or(|limit| self.outgoing.exposure_allows(&subflow.state, start, end, limit))
    }

    /// Returns the largest number of bytes in a row that an untrusted path may carry now. Without a trusted path, an untrusted path has to
    /// carry the rest.
    pub(crate) fn exposure_limit(&self, trusted: TrustedPaths) -> Option<u64> {
        let is_limited = self.protection.is_readable_in_rows() && trusted != TrustedPaths::Gone;
        let max_exposure = self.config.scheduler.max_exposure().filter(|_| is_limited)?;
        Some(max_exposure.get().into())
    }

    /// Notes that a subflow is about to carry these bytes.
    pub(crate) fn note_carried(&mut self, index: usize, start: u64, length: u64) {
        let trusted = self.trusted_paths();
        let state = &self.subflows[index].state;
        if trusted == TrustedPaths::Gone && state.trust() != PathClass::Trusted {
            self.protection.note_degraded(length);
        }
        if self.protection.is_readable_in_rows() && self.config.scheduler.max_exposure().is_some() {
            self.outgoing.note_exposed(state, start, start + length);
        }
    }

    /// Handles a new class that the user has given to the path of a subflow. The subflow is left if its class decides what it may carry: on
    /// a scrambled connection, and if untrusted paths carry only a limited number of bytes in a row. Its retransmissions must not go over a
    /// path that has become untrusted. The peer learns the new class when the path is joined again. Returns `false` if nothing changes.
    pub(crate) fn leave_for_class(&mut self, index: usize, class: PathClass) -> bool {
        let is_other = self.subflows.touch(index).state.set_class(class);
        let is_bound = self.protection.is_bound_to_classes()
            || (self.protection.is_readable_in_rows() && self.config.scheduler.max_exposure().is_some());
        is_other && is_bound
    }
}

/// Whether a first subflow may be opened over this path, which then carries the keys and the first data.
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
