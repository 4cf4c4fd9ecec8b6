//! The two ways along a path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A direction along a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }

    /// Its place in arrays.
    pub const fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::ToServer => "to-server",
            Self::ToClient => "to-client",
        })
    }
}

impl FromStr for Direction {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "server" | "to-server" => Ok(Self::ToServer),
            "client" | "to-client" => Ok(Self::ToClient),
            _ => Err(Error::Attack(format!("`{name}` is neither `server` nor `client`"))),
        }
    }
}
