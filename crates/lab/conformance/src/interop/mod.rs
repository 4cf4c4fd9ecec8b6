//! The Linux kernel as the peer: scenarios in network namespaces, with the kernel's counters as evidence.
//!
//! Two hosts, each a network namespace, are joined by two paths. Each path has a router of its own in the middle, so that it can
//! be cut, slowed, corrupted or silenced without a signal to the hosts. One host runs `plait`, the other a program on the
//! kernel's `IPPROTO_MPTCP` sockets ([`peer`]). With `--baseline` the kernel takes both sides: this shows that the scenarios
//! hold for a peer known to be good, and gives the kernel's own figures.
//!
//! * [`plait_lab::wired`]: the hosts and paths; [`middlebox`]: what a path does to packets.
//! * [`peer`]: the kernel-side programs, run as `conformance peer ...` inside a namespace.
//! * [`session`]: one transfer between the two hosts.
//! * [`scenario`]: the register of scenarios and what one is given; [`scenarios`]: the scenarios.
//! * [`runner`]: one after the other, a line each, a table at the end.

mod middlebox;
pub(crate) mod peer;
pub(crate) mod runner;
mod scenario;
mod scenarios;
pub(crate) mod session;
