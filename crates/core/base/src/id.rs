//! Names of things that live as long as a host or a connection.

/// One way out of this host: a device with its addresses. Given by the configuration, the same for all
/// connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u8);

/// One network that paths leave by. Given from outside: paths with the same number share a network, such as the router behind two devices,
/// and count as one wherever disjoint paths are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NetworkId(pub u8);

/// One subflow of a connection. Counts up from zero, the first subflow, and is never used again within
/// the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubflowId(pub u32);
