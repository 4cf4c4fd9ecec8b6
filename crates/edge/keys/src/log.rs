//! Warnings. Without the feature `tracing` there are none, and their arguments are not evaluated.

#[cfg(feature = "tracing")]
pub(crate) use tracing::warn;

#[cfg(not(feature = "tracing"))]
macro_rules! nothing {
    ($($field:tt)*) => {{}};
}

#[cfg(not(feature = "tracing"))]
pub(crate) use nothing as warn;
