//! Opening by attempts: whoever sits on one path decides about that path, not about the connection.
//!
//! An *attempt* is a whole [`Connection`](crate::Connection) on one path to one address of the peer, with a first
//! subflow, keys and a handshake of its own (RFC 8305 calls it a connection attempt, RFC 9293 an active OPEN). An
//! [`ActiveOpen`] runs attempts beside each other: the next one begins when those before it make no progress, or at
//! once when one has failed. What one of them meets (silence, a refusal, stripped options, altered bytes) costs that
//! attempt. The connection is what the attempt that was chosen turns into.
//!
//! An [`Association`] is what an endpoint holds: a connection that is being opened, or one that is open.

mod active_open;
mod association;
mod attempt;
mod choice;
mod early;
mod instances;
mod ways;

pub use active_open::ActiveOpen;
pub use association::Association;
