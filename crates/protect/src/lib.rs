//! What happens to the bytes of a connection: plain, scrambled, sealed.

pub mod scramble;
#[cfg(feature = "aws-lc")]
pub mod sealed;
