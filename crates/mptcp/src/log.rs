//! Logs, where the feature `tracing` is on; else the macros are empty, and what they would have said is not even computed.
//!
//! `debug` tells of decisions: what was negotiated, attempts, joins, addresses, resets and why, what is sent again; `trace` where each block goes.
//! The owner's span says of which connection. Values are fields. Payload, options, keys and tokens never are.

#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, trace};

#[cfg(not(feature = "tracing"))]
mod off {
    macro_rules! nothing {
        ($($field:tt)*) => {};
    }

    pub(crate) use {nothing as debug, nothing as trace};
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{debug, trace};
