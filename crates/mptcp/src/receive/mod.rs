//! The incoming stream: what the peer has sent, from mappings to the application.

pub(crate) mod buffer;
pub(crate) mod coalescing;
pub(crate) mod early;
pub(crate) mod mapping;
pub(crate) mod reassembly;
