//! A deterministic model of one direction of a link.
//!
//! [`Link`] decides and does not transport. It gets the time and the length of a packet, and returns whether and when the packet arrives.
//! The simulator and the lab's emulator hold the bytes; both get the same answers for the same seed. It depends on no protocol above it.
//!
//! A packet passes, in this order: the MTU, the queue in front of the bottleneck (drop-tail, in bytes), the bottleneck itself (a token
//! bucket), loss, delay with jitter, reordering, duplication, corruption. Each kind of chance has its own generator, so that adding one to
//! a configuration does not change the decisions of the others.
//!
//! ```
//! use plait_base::{Duration, Instant};
//! use plait_link::{Link, LinkConfig, Decision, megabits};
//!
//! let config = LinkConfig { rate: megabits(100), delay: Duration::from_millis(20), ..LinkConfig::default() };
//! let mut link = Link::new(config, 7);
//! let Decision::Deliver { at, .. } = link.offer(Instant::ZERO, 1250) else { panic!("nothing drops it") };
//! assert_eq!(at, Instant::from_micros(20_100), "0.1 ms to put it on the wire, 20 ms to cross it");
//! ```

#![cfg_attr(not(test), no_std)]

mod bottleneck;
mod config;
mod jitter;
mod link;
mod loss;

pub use config::{LinkConfig, Reordering, megabits};
pub use link::{Decision, DropReason, Link, LinkStats};
pub use loss::Loss;
