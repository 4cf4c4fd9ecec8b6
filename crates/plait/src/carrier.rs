//! Carriers of segments.

use std::fmt;
use std::str::FromStr;

/// The carrier of the segments of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Carrier {
    /// TCP, in IP packets through a TUN device.
    Tcp,
    /// UDP with the same in it, through sockets.
    Udp,
}

/// The carriers of a host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Carriers {
    /// TCP and, for paths that do not let it pass, UDP; UDP alone where this user may have no TUN device.
    #[default]
    Auto,
    /// TCP alone: root or CAP_NET_ADMIN, and nothing that strips its options on the way.
    Tcp,
    /// UDP alone: no privilege is needed.
    Udp,
}

impl From<::plait_host::Carrier> for Carrier {
    fn from(carrier: ::plait_host::Carrier) -> Self {
        match carrier {
            ::plait_host::Carrier::Tcp => Self::Tcp,
            ::plait_host::Carrier::Udp => Self::Udp,
        }
    }
}

impl From<Carriers> for ::plait_host::Carriers {
    fn from(carriers: Carriers) -> Self {
        match carriers {
            Carriers::Auto => Self::Auto,
            Carriers::Tcp => Self::Tcp,
            Carriers::Udp => Self::Udp,
        }
    }
}

/// `tcp` or `udp`.
impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// `auto`, `tcp` or `udp`.
impl FromStr for Carriers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            _ => Err("not one of auto, tcp, udp"),
        }
    }
}
