//! Time, sequence numbers, ids and seedable randomness: what all other crates count in.
//!
//! Nothing here knows a protocol: [`Instant`] is a plain count of nanoseconds, [`SeqNum`] and [`Dsn`]
//! are positions in two number spaces that must never mix, [`Random`] is where unpredictable bytes
//! come from. None of it asks the operating system for anything.

#![cfg_attr(not(test), no_std)]

mod dsn;
mod id;
mod random;
mod seq;
mod serial;
mod time;

pub use dsn::{Dsn, DsnRange};
pub use id::{PathId, SubflowId};
pub use random::{Random, SecretRandom, SeededRandom};
pub use seq::{SeqNum, SeqRange};
pub use time::{Duration, Instant};
