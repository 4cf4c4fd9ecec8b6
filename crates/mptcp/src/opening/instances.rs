//! Which run of the server may have bytes of the application.
//!
//! A server names its instance in front of its handshake, and each attempt may have found another one: several servers share the name, or
//! one was started again. A claim counts at one instance only, so bytes that may have reached one are repeated to that one only. Where
//! several instances are known, no attempt is told bytes before it is certain which attempt is the connection.

use plait_protect::handshake::Instance;

/// What one opening knows of the instances that it has found.
#[derive(Debug, Default)]
pub(super) struct Instances {
    first: Option<Instance>,
    /// There are several, as far as is known: of this opening, of earlier ones, or the server says so (flag C).
    are_several: bool,
    /// The one that may have bytes of the application.
    told: Option<Instance>,
}

impl Instances {
    /// An attempt has found this one.
    pub(super) fn note(&mut self, instance: Instance) {
        let first = *self.first.get_or_insert(instance);
        self.are_several |= first != instance;
    }

    /// There are several.
    pub(super) fn expect_several(&mut self) {
        self.are_several = true;
    }

    pub(super) fn are_several(&self) -> bool {
        self.are_several
    }

    /// From now on this one may have bytes of the application. The first to have any stays the only one.
    pub(super) fn tell(&mut self, instance: Instance) {
        self.told.get_or_insert(instance);
    }

    /// Whether this one may be told the bytes of the application.
    pub(super) fn may_tell(&self, instance: Instance) -> bool {
        self.told.is_none_or(|told| told == instance)
    }

    /// Whether one may have bytes of the application.
    pub(super) fn is_any_told(&self) -> bool {
        self.told.is_some()
    }

    /// The peer has said, in a way that can be believed, that it has delivered nothing.
    pub(super) fn retract(&mut self) {
        self.told = None;
    }
}
