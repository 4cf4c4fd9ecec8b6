//! The subflows of a connection.

pub(crate) mod flow;
