//! Protection of the bytes of a connection: scrambling and sealing.

#[cfg(feature = "alternatives")]
pub mod alternatives;
pub mod handshake;
pub mod scramble;
pub mod scrub;
pub mod sealed;
