//! The service of a forwarder: `HOST:PORT`, or `unix:PATH` for a socket in the file system.

use std::fmt;
use std::str::FromStr;

use crate::convert::is_path;

/// A service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub(crate) place: Place,
    is_introduced: bool,
}

/// The place of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// `HOST:PORT`.
    Tcp(String),
    /// The path of a socket.
    Socket(String),
}

impl Target {
    /// The same, with the PROXY protocol or without it, the default.
    #[must_use]
    pub fn introduced(self, is_introduced: bool) -> Self {
        Self { is_introduced, ..self }
    }

    /// Whether the service learns its clients by the PROXY protocol.
    pub fn is_introduced(&self) -> bool {
        self.is_introduced
    }

    /// `HOST:PORT`, unless it is a socket.
    pub fn address(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp(text) => Some(text),
            Place::Socket(_) => None,
        }
    }

    /// The path of its socket, if it is one.
    pub fn socket(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp(_) => None,
            Place::Socket(path) => Some(path),
        }
    }
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = |place| Self { place, is_introduced: false };
        if let Some(path) = text.strip_prefix("unix:").filter(|rest| rest.starts_with('/')) {
            return match is_path(path) {
                true => Ok(at(Place::Socket(path.to_owned()))),
                false => Err("not the path of a socket, as in unix:/run/app.sock, of at most 107 bytes"),
            };
        }
        let has_port = text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
        if has_port { Ok(at(Place::Tcp(text.to_owned()))) } else { Err("neither HOST:PORT nor unix:/PATH") }
    }
}

/// As it is read.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(text) => f.write_str(text),
            Place::Socket(path) => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_an_address_or_a_socket() {
        for text in ["127.0.0.1:22", "web.example:80", "[::1]:443", "unix:/run/app.sock", "unix:80"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        for bad in ["", "host", "host:0", ":80", "unix:", "unix:/", "unix:/a/../b", "unix:run/app.sock"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
