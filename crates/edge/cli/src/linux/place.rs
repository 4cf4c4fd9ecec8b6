//! The address and port at which `serve` accepts clients.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use plait_proxy::url::DEFAULT_PORT;

/// The ports that accept clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Default for Place {
    fn default() -> Self {
        Self { address: None, port: DEFAULT_PORT }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => self.port.fmt(f),
        }
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = match (text.parse::<SocketAddr>(), text.parse::<IpAddr>(), text.parse::<u16>()) {
            (Ok(at), _, _) => Self { address: Some(at.ip()), port: at.port() },
            (_, Ok(ip), _) => Self { address: Some(ip), port: DEFAULT_PORT },
            (_, _, Ok(port)) => Self { address: None, port },
            _ => return Err("not a port, an address, or ADDR:PORT"),
        };
        let is_anywhere = place.address.is_some_and(|ip| ip.is_unspecified());
        if place.port == 0 {
            return Err("not a port");
        }
        Ok(Self { address: place.address.filter(|_| !is_anywhere), ..place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_port_and_maybe_an_address() {
        for (text, shown) in [
            ("443", "443"),
            ("192.0.2.1", "192.0.2.1:7443"),
            ("192.0.2.1:443", "192.0.2.1:443"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("2001:db8::1", "[2001:db8::1]:7443"),
            ("[::]:7443", "7443"),
            ("0.0.0.0:7443", "7443"),
        ] {
            assert_eq!(text.parse::<Place>().expect(text).to_string(), shown, "{text}");
        }
        for bad in ["", "0", "65536", "host:7443", "192.0.2.1:0"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
