//! Log macros. Without the feature `tracing` they are empty, and their arguments are not evaluated.

#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, error, info, trace, warn};

#[cfg(not(feature = "tracing"))]
macro_rules! nothing {
    ($($field:tt)*) => {{}};
}

#[cfg(not(feature = "tracing"))]
pub(crate) use {nothing as debug, nothing as error, nothing as info, nothing as trace, nothing as warn};
