//! What happens to the bytes of a connection: plain, scrambled, sealed.

#[cfg(feature = "alternatives")]
pub mod alternatives;
pub mod handshake;
pub mod scramble;
pub mod scrub;
pub mod sealed;
