//! Two `plait` programs under attack, in network namespaces.
//!
//! Each *case* starts a lab (crate `lab`): a client, a server, two paths with an eavesdropper and an injector on each. Its
//! programs are started as a user starts them; nothing here is linked with the stack, and the attackers know only the packets on
//! their path. A case passes with evidence or fails with a reason; cases of other systems are recorded as they happen.
//!
//! * [`case`]: the register and what a case is given; [`runner`]: one after the other, a line each, a table at the end.
//! * [`fixture`]: the lab and the programs in it.
//! * [`exchange`]: a known stream each way, and what arrives of it; [`peer`]: the same programs of the kernel's Multipath TCP.
//! * [`wiretap`]: what is in the captures; [`secrets`] and [`memory`]: which keys there are, and whether a process still has them.
//! * [`cases`]: the cases.

pub(crate) mod case;
pub(crate) mod cases;
#[cfg(test)]
mod documents;
pub(crate) mod exchange;
pub(crate) mod fixture;
mod memory;
pub(crate) mod peer;
pub(crate) mod runner;
mod secrets;
mod wiretap;
