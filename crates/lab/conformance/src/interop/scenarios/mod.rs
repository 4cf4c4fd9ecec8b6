//! The scenarios, by what they are about. Each is a function that builds its testbed, runs one or more
//! sessions in it, and returns the evidence or an error that says what was wrong.

pub(crate) mod carriers;
pub(crate) mod closing;
pub(crate) mod corruption;
pub(crate) mod crowd;
pub(crate) mod decoding;
pub(crate) mod ecn;
pub(crate) mod fallback;
pub(crate) mod hostile;
pub(crate) mod joining;
pub(crate) mod outage;
pub(crate) mod path_mtu;
pub(crate) mod scramble;
pub(crate) mod served_crowd;
pub(crate) mod throughput;
pub(crate) mod transfer;
