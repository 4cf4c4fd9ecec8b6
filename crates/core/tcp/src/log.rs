//! Log macros. Without the feature `tracing` they are empty, and their arguments are not evaluated.
//!
//! `debug` reports a decision off the usual path (a drop, a reset, a timeout, a recovery, another segment size). `trace` reports each
//! segment. Values are fields. Payload and options are never logged, because options may contain keys.

#[cfg(feature = "tracing")]
mod on {
    use crate::FourTuple;

    pub(crate) use tracing::{debug, trace};

    /// Enters the log span of this connection until the guard is dropped.
    pub(crate) fn enter(tuple: &FourTuple) -> tracing::span::EnteredSpan {
        tracing::debug_span!("subflow", local = %tuple.local, remote = %tuple.remote).entered()
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::FourTuple;

    macro_rules! nothing {
        ($($field:tt)*) => {};
    }

    pub(crate) use {nothing as debug, nothing as trace};

    /// Nothing to leave again.
    pub(crate) struct Nothing;

    pub(crate) fn enter(_: &FourTuple) -> Nothing {
        Nothing
    }
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{debug, enter, trace};
#[cfg(feature = "tracing")]
pub(crate) use on::{debug, enter, trace};
