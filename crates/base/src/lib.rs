//! Time, sequence numbers, ids, seedable randomness and the limits of logs: what all other crates count in.
//!
//! Nothing here knows a protocol: [`Instant`] is a plain count of nanoseconds, [`SeqNum`] and [`Dsn`]
//! are positions in two number spaces that must never mix, [`Random`] is where unpredictable bytes
//! come from. None of it asks the operating system for anything.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod dsn;
mod id;
mod log_limit;
mod random;
mod seq;
mod serial;
mod time;

pub use dsn::{Dsn, DsnRange};
pub use id::{PathId, SubflowId};
pub use log_limit::{LOG_INTERVAL, LogLimit, LogLimits};
pub use random::{Random, SecretRandom, SeededRandom};
pub use seq::{SeqNum, SeqRange};
pub use time::{Duration, Instant, WallClock};
