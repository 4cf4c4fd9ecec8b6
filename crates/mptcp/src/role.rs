//! The role of this host in a connection.

/// Which side opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Active,
    Passive,
}
