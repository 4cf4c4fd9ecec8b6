//! The server instance that may have bytes of the application.
//!
//! A server names its instance before its handshake. Each attempt may find another instance, if several servers share the name or if a
//! server was restarted. A claim counts at one instance only. Bytes that may have reached one instance are therefore repeated only to that
//! instance. If several instances are known, no attempt gets bytes before one attempt is chosen.

use plait_protect::handshake::Instance;

/// The instances known to one opening.
#[derive(Debug, Default)]
pub(super) struct Instances {
    first: Option<Instance>,
    /// Whether several instances are known: from this opening, from earlier ones, or because the server says so (flag C).
    are_several: bool,
    /// The instance that may have bytes of the application.
    told: Option<Instance>,
}

impl Instances {
    /// Notes the instance that an attempt has found.
    pub(super) fn note(&mut self, instance: Instance) {
        let first = *self.first.get_or_insert(instance);
        self.are_several |= first != instance;
    }

    /// Notes that there are several instances.
    pub(super) fn expect_several(&mut self) {
        self.are_several = true;
    }

    pub(super) fn are_several(&self) -> bool {
        self.are_several
    }

    /// Notes that this instance may have bytes of the application from now on. The first such instance stays the only one.
    pub(super) fn tell(&mut self, instance: Instance) {
        self.told.get_or_insert(instance);
    }

    /// Whether this instance may get the bytes of the application.
    pub(super) fn may_tell(&self, instance: Instance) -> bool {
        self.told.is_none_or(|told| told == instance)
    }

    /// Whether any instance may have bytes of the application.
    pub(super) fn is_any_told(&self) -> bool {
        self.told.is_some()
    }

    /// Handles a trustworthy statement of the peer that it has delivered nothing.
    pub(super) fn retract(&mut self) {
        self.told = None;
    }
}
