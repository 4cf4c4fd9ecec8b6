//! Opening by attempts: an attacker on one path decides about that path, not about the connection.
//!
//! An *attempt* is a whole [`Connection`](crate::Connection) on one path to one address of the peer, with a first subflow, keys and a
//! handshake of its own (RFC 8305 calls it a connection attempt, RFC 9293 an active OPEN). An [`ActiveOpen`] runs attempts in parallel. The
//! next attempt begins when the earlier ones make no progress, or at once when one has failed. Silence, a refusal, stripped options or
//! altered bytes cost only the attempt that meets them. The chosen attempt becomes the connection.
//!
//! An [`Association`] is what an endpoint holds: a connection that is being opened, or one that is open.

mod active_open;
mod association;
mod attempt;
mod changes;
mod choice;
mod early;
mod instances;
mod ways;

pub use active_open::ActiveOpen;
pub use association::Association;
