//! Prerequisites of a machine for plait: none that could be tried.

use std::convert::Infallible;

use crate::options::Options;

/// A prerequisite that is never missing.
pub(crate) type MissingPrerequisite = Infallible;

/// Nothing to try.
pub(crate) type Check = Infallible;

impl Options {
    /// The prerequisites to try.
    pub(crate) fn checks(&self) -> &'static [Check] {
        &[]
    }
}

/// `error`, which says all there is to say.
pub(crate) fn explain(error: anyhow::Error, _checks: &[Check]) -> anyhow::Error {
    error
}
