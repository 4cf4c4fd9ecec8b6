//! A deterministic model of one direction of a link.
//!
//! [`Link`] decides and never carries: it is told when a packet is offered and how long it is, and says
//! whether and when the packet arrives. The simulator and the lab's emulator hold the bytes; both get the
//! same answers for the same seed. Knows nothing of any protocol above it.
//!
//! A packet meets, in this order: the MTU, the queue in front of the bottleneck (drop-tail, in bytes), the
//! bottleneck itself (a token bucket), loss on the way, delay with jitter, being held back (reordering),
//! duplication, corruption. Each kind of chance has a generator of its own, so that adding one to a
//! configuration leaves the decisions of the others as they were.
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
