//! Network namespaces, veth pairs, routes, rules and rate limits, for the testbeds and for `plait run`.
//!
//! # Model
//!
//! A [`Namespace`] is a handle on one network stack, and all operations are methods of it. It makes [`Link`]s: veth pairs
//! with their ends in two namespaces from the start, so that no name ever appears in the host's own stack. It gives them
//! addresses, routes and rates, sets sysctls, installs nftables tables, tells the kernel's Multipath TCP path manager its
//! endpoints, reads counters, and runs closures and programs inside.
//!
//! What was made is undone on drop: the last handle of a [`Namespace`] deletes it, a [`nft::Table`] removes
//! itself, a [`LinkGuard`] removes the link. What a crashed process left behind is recognised by the name, which
//! carries the process id, and removed by [`sweep`].
//!
//! # Why programs and not netlink
//!
//! Links, routes, queues and rules are set through `ip`, `tc` and `nft` as child processes. Each call costs 2 to 5 ms,
//! a testbed needs some fifty once; in exchange the commands are those of the manuals, an error is the
//! kernel's text, and the same line can be typed by hand when something has to be looked into. What is read or
//! switched while data flows (counters, sysctls, offloads, `MPTCP_INFO`) takes no child process.
//!
//! # Threads
//!
//! A network namespace belongs to a thread, not to a process. [`Namespace::enter`] therefore works on a thread of its own
//! which ends with the closure; the caller's thread never changes its namespace.
//!
//! # Errors
//!
//! All operations need root, or root in a user namespace. [`Error`] says what was tried and what the kernel answered.

// This crate is the operating-system side: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod counters;
mod error;
mod leftovers;
mod link;
mod namespace;
mod offload;
mod program;
mod rate;
mod route;
mod sysctl;
mod sys {
    pub(crate) mod ethtool;
    pub(crate) mod mptcp_info;
}

pub mod mptcp;
pub mod nft;
pub mod tun;

pub use counters::{Counters, InterfaceCounters};
pub use error::Error;
pub use leftovers::sweep;
pub use link::{Cidr, Link, LinkGuard, veth};
pub use namespace::{NAME_PREFIX, Namespace};
pub use offload::Offload;
pub use rate::Rate;
pub use route::{Route, Rule, Target};

/// The result of every operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;
