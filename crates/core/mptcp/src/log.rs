//! Log macros. Without the feature `tracing` they are empty, and their arguments are not evaluated.
//!
//! `debug` reports decisions: negotiation, attempts, joins, addresses, resets with their reason, repeated blocks. `trace` reports the
//! subflow of each block. The owner's span names the connection. Values are fields. Payload, options, keys and tokens are never logged.

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
