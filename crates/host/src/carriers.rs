//! The carriers of segments: TCP in IP packets through a TUN device, or datagrams of UDP through
//! sockets.

use std::fmt;

use plait_base::PathId;

use crate::udp;

/// The carrier of the segments of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// IP packets with TCP in them, through a TUN device.
    Tcp,
    /// Datagrams of UDP with the same segments in them, through sockets.
    Udp,
}

/// The carriers of a host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Carriers {
    /// TCP and UDP if a TUN device is available, otherwise UDP alone.
    Auto,
    /// TCP only, or no host.
    #[default]
    Tcp,
    /// UDP only: no privilege is needed.
    Udp,
}

impl Carrier {
    /// The carrier of the path with this id.
    #[must_use]
    pub fn of(path: PathId) -> Self {
        if udp::is_udp(path) { Self::Udp } else { Self::Tcp }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}
