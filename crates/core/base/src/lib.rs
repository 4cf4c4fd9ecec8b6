//! Time, sequence numbers, ids, seedable randomness and limits of logs, for all other crates.
//!
//! Nothing here depends on a protocol. [`Instant`] is a count of nanoseconds. [`SeqNum`] and [`Dsn`] are positions in two number spaces
//! that must never mix. [`Random`] is the source of unpredictable bytes. Nothing here calls the operating system.

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
pub use id::{NetworkId, PathId, SubflowId};
pub use log_limit::{LOG_INTERVAL, LogLimit, LogLimits};
pub use random::{Random, SecretRandom, SeededRandom};
pub use seq::{SeqNum, SeqRange};
pub use time::{Duration, Instant, WallClock};
