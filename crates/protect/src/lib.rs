//! What happens to the bytes of a connection: plain, scrambled, sealed.

#[cfg(feature = "aws-lc")]
pub mod sealed;
