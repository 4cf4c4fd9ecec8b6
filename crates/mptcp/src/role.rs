//! Which side of a connection is ours.

/// Which side opened the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Active,
    Passive,
}
