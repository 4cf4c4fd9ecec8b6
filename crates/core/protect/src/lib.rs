//! Protection of the bytes of a connection: scrambling and sealing.

pub mod handshake;
pub mod scramble;
pub mod scrub;
pub mod sealed;
