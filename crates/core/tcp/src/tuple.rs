//! The two addresses of a connection.

use core::net::SocketAddr;

/// Local and remote address, as seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FourTuple {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's; same address family.
    pub remote: SocketAddr,
}
