//! The text form of a server: `plait://HOST:7443#FINGERPRINT`, or `HOST[:PORT]`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use plait_handshake::Fingerprint;

/// The default port of `plait serve`.
pub const DEFAULT_PORT: u16 = 7443;

/// A server, and its key if it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerUrl {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Fingerprint of its key: makes trust on first use unnecessary.
    pub pin: Option<Fingerprint>,
}

impl ServerUrl {
    /// `HOST:PORT`, with brackets around an IPv6 address: its name in the file of known peers.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plait://{}", self.authority())?;
        self.pin.map_or(Ok(()), |pin| write!(f, "#{}", pin.compact()))
    }
}

/// The reason that a text is not a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadUrl {
    text: String,
    reason: &'static str,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server '{}': {}; it looks like plait://HOST:7443#FINGERPRINT", self.text, self.reason)
    }
}

impl std::error::Error for BadUrl {}

impl FromStr for ServerUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason| BadUrl { text: text.to_owned(), reason };
        // As copied from a terminal or a mail; the case of a scheme does not matter (RFC 3986, section 3.1).
        let (is_url, rest) = match text.trim().split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("plait") => (true, rest),
            Some(_) => return Err(bad("only plait:// is known")),
            None => (false, text.trim()),
        };
        let (authority, pin) = match rest.split_once('#') {
            Some((authority, pin)) => {
                (authority, Some(pin.parse().map_err(|_| bad("what follows # is no fingerprint"))?))
            }
            None => (rest, None),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => {
                (host, Some(port.strip_prefix(':').ok_or_else(|| bad("no port behind ']'"))?))
            }
            Some(None) => return Err(bad("']' is missing")),
            // More than one colon without brackets: an IPv6 address alone. In a URL it could be one with a port.
            None if is_url && authority.matches(':').count() > 1 => {
                return Err(bad("an IPv6 address needs brackets, with or without a port behind them"));
            }
            None if authority.matches(':').count() > 1 => (authority, None),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
            return Err(bad("a host name is missing"));
        }
        if host.contains(['[', ']']) || (host.contains(':') && !is_ipv6(host)) {
            return Err(bad("neither a host name nor an address"));
        }
        let port = match port {
            Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(|| bad("not a port"))?,
            None => DEFAULT_PORT,
        };
        Ok(Self { host: host.to_owned(), port, pin })
    }
}

/// An address, with the name of a zone if need be (RFC 4007, section 11).
fn is_ipv6(host: &str) -> bool {
    let address = host.split_once('%').map_or(host, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_the_same_server() {
        let pin = Fingerprint::new([7; 32]);
        let full = format!("plait://gw.example.com:7443#{}", pin.compact());
        let server: ServerUrl = full.parse().expect("a server");
        assert_eq!((server.host.as_str(), server.port, server.pin), ("gw.example.com", 7443, Some(pin)));
        assert_eq!(server.to_string(), full);
        for short in [
            "gw.example.com",
            "gw.example.com:7443",
            "plait://gw.example.com/",
            " PLAIT://gw.example.com:7443\n",
        ] {
            assert_eq!(short.parse(), Ok(ServerUrl { pin: None, ..server.clone() }), "{short}");
        }
    }

    #[test]
    fn ipv6_addresses_need_brackets_only_with_a_port() {
        for (text, port) in [("2001:db8::1", 7443), ("[2001:db8::1]", 7443), ("[2001:db8::1]:99", 99)] {
            let server: ServerUrl = text.parse().expect(text);
            assert_eq!((server.host.as_str(), server.port), ("2001:db8::1", port));
            assert_eq!(server.authority(), format!("[2001:db8::1]:{port}"));
        }
    }

    #[test]
    fn an_address_may_name_its_zone() {
        let server: ServerUrl = "[fe80::1%eth0]:99".parse().expect("a server");
        assert_eq!(
            (server.host.as_str(), server.to_string().as_str()),
            ("fe80::1%eth0", "plait://[fe80::1%eth0]:99")
        );
    }

    #[test]
    fn what_cannot_be_a_server_says_why() {
        for (text, reason) in [
            ("https://gw", "only plait:// is known"),
            (
                "plait://2001:db8::10:7443",
                "an IPv6 address needs brackets, with or without a port behind them",
            ),
            ("gw:0", "not a port"),
            ("gw:http", "not a port"),
            (":7443", "a host name is missing"),
            ("gw#abc", "what follows # is no fingerprint"),
            ("[::1", "']' is missing"),
            ("2001:db8::1]:443", "neither a host name nor an address"),
            ("[gw:1]:443", "neither a host name nor an address"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().expect_err(text).reason, reason);
        }
    }
}
