//! Logs, where the feature `tracing` is on; else the macros are empty, and what they would have said is not even computed.
//!
//! `debug` tells of a decision off the usual path (a drop, a reset, a timeout, a recovery, another segment size), `trace` of
//! each segment. Values are fields. Payload and options never are: there are keys among them.

#[cfg(feature = "tracing")]
mod on {
    use crate::FourTuple;

    pub(crate) use tracing::{debug, trace};

    /// What is said until the guard is dropped is said of this connection.
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
