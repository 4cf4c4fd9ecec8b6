//! The role of this host in a connection.

/// The side that opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Active,
    Passive,
}
