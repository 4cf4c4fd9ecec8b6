//! The trial of a subflow after its join.

use plait_base::Instant;

/// Whether a subflow has shown that it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    /// Its join is not complete.
    Pending,
    /// Nothing has arrived after its first moment.
    Since {
        joined: Instant,
        /// Whether it was asked for an answer.
        is_probed: bool,
    },
    /// It has lasted.
    Over,
}
