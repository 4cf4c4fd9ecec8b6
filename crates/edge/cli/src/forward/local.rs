//! The values of `-L`: where programs connect, and where the server connects them to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use plait_proxy::convert::{Destination, is_path, is_service};

const WRONG: &str = "not [udp:][ADDR:]PORT:HOST:PORT, as in 8080:web.example:80, [::1]:8080:[2001:db8::1]:80 or udp:53:10.0.0.1:53; a path in place of \
     [ADDR:]PORT or HOST:PORT is a socket, as in /run/user/1000/db:db.example:5432 or 5432:/run/postgresql/.s.PGSQL.5432; a name alone is a service of the server, as in 8080:web";
const BAD_PATH: &str = "not the path of a socket: absolute, without // and .., of at most 107 bytes";

/// A place here and its destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub(super) at: At,
    pub(super) to: Destination,
}

/// A place at which programs connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum At {
    Port(SocketAddr),
    /// A port of UDP.
    Datagrams(SocketAddr),
    Socket(PathBuf),
}

/// The socket that a value of `-L` makes here, if it does.
#[cfg(target_os = "linux")]
pub(crate) fn socket_of(text: &str) -> Option<PathBuf> {
    match text.parse::<Local>().ok()?.at {
        At::Port(_) | At::Datagrams(_) => None,
        At::Socket(path) => Some(path),
    }
}

impl Local {
    /// A port of UDP. Its destination is a host and a port: nothing else has datagrams.
    fn datagrams(text: &str) -> Result<Self, &'static str> {
        match text.parse::<Self>()? {
            Self { at: At::Port(at), to: to @ (Destination::Address(_) | Destination::Name(..)) } => {
                Ok(Self { at: At::Datagrams(at), to })
            }
            _ => Err(WRONG),
        }
    }
}

/// Permissions in octal.
pub(super) fn mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or("not permissions in octal, as in 600 or 660")?;
    // Without it this user could not connect either.
    if mode & 0o200 == 0 { Err("the owner must be able to write to the socket, as in 600") } else { Ok(mode) }
}

/// The place and the destination, between colons; IPv6 addresses, and paths with colons, are in brackets.
impl FromStr for Local {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(text) = text.strip_prefix("udp:") {
            return Self::datagrams(text);
        }
        let words = words(text).ok_or(WRONG)?;
        let port = |word: &str| word.parse::<u16>().ok();
        let (at, rest) = match words[..] {
            [path, ref rest @ ..] if path.starts_with('/') => (At::Socket(checked(path)?.into()), rest),
            [at, ref rest @ ..] if port(at).is_some() => {
                (At::Port(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port(at).ok_or(WRONG)?)), rest)
            }
            [address, at, ref rest @ ..] => {
                let address: IpAddr = address.parse().map_err(|_| WRONG)?;
                (At::Port(SocketAddr::new(address, port(at).ok_or(WRONG)?)), rest)
            }
            _ => return Err(WRONG),
        };
        Ok(Self { at, to: destination(rest)? })
    }
}

/// A destination behind the server: `HOST:PORT`, the path of a socket, or the name of a service.
pub(crate) fn destination_of(text: &str) -> Result<Destination, &'static str> {
    const WRONG: &str = "neither HOST:PORT, as in web.example:80, nor the path of a socket of the server, nor the name of a service";
    destination(&words(text).ok_or(WRONG)?).map_err(|why| if why == BAD_PATH { why } else { WRONG })
}

pub(super) fn destination(words: &[&str]) -> Result<Destination, &'static str> {
    match *words {
        [path] if path.starts_with('/') => Ok(Destination::Socket(checked(path)?.to_owned())),
        [name] if is_service(name) => Ok(Destination::Service(name.to_owned())),
        [host, port] => match (port.parse::<u16>().map_err(|_| WRONG)?, host.parse()) {
            (0, _) => Err(WRONG),
            (port, Ok(address)) => Ok(Destination::Address(SocketAddr::new(address, port))),
            (_, Err(_)) if host.is_empty() || host.len() > 255 || host.contains(['\0', '/']) => Err(WRONG),
            (port, Err(_)) => Ok(Destination::Name(host.to_owned(), port)),
        },
        _ => Err(WRONG),
    }
}

fn checked(path: &str) -> Result<&str, &'static str> {
    if is_path(path) { Ok(path) } else { Err(BAD_PATH) }
}

/// Splits at colons; colons in brackets do not count, and the brackets are removed. `None` if the brackets do not match.
pub(super) fn words(text: &str) -> Option<Vec<&str>> {
    let (mut words, mut rest) = (Vec::new(), text);
    loop {
        let (word, behind) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']')?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        words.push(word);
        match behind.strip_prefix(':') {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(words),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.at, self.to)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(at) => at.fmt(f),
            Self::Datagrams(at) => write!(f, "udp:{at}"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forwarded_is_written_as_for_ssh() {
        let parse = |text: &str| text.parse::<Local>().map(|local| local.to_string());
        for (text, meant) in [
            ("8080:web.example:80", "127.0.0.1:8080:web.example:80"),
            ("0:10.0.0.1:80", "127.0.0.1:0:10.0.0.1:80"),
            ("0.0.0.0:22:gw:2222", "0.0.0.0:22:gw:2222"),
            ("[::1]:80:[2001:db8::1]:443", "[::1]:80:[2001:db8::1]:443"),
            ("/run/db:db.example:5432", "unix:/run/db:db.example:5432"),
            ("5432:/run/db", "127.0.0.1:5432:unix:/run/db"),
            ("[::1]:5432:/run/db", "[::1]:5432:unix:/run/db"),
            ("8080:web", "127.0.0.1:8080:service:web"),
            ("[::1]:8080:web", "[::1]:8080:service:web"),
            ("/run/web:web", "unix:/run/web:service:web"),
            ("[/run/a:b]:/run/db", "unix:/run/a:b:unix:/run/db"),
            ("udp:53:10.0.0.1:53", "udp:127.0.0.1:53:10.0.0.1:53"),
            ("udp:[::1]:0:ns.example:53", "udp:[::1]:0:ns.example:53"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(meant));
        }
        for wrong in [
            "",
            "80",
            "80:80",
            "web:web",
            "80:web:0",
            "80::80",
            "x:web:80",
            "80:web:http",
            "a:b:c:d:e",
            "[::1:80:web:80",
            "here:80:web:80",
            "/run/db",
            "/run/../db:db:80",
            "80:/run//db",
            "80:/run/db:80",
            "run/db:db:80",
            "udp:",
            "udp:udp:53:10.0.0.1:53",
            "tcp:53:10.0.0.1:53",
            "udp:53:/run/db",
            "udp:/run/db:db:80",
            "udp:53:web",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_destination_alone_is_an_address_a_socket_or_a_service() {
        let parse = |text: &str| destination_of(text).map(|to| to.to_string());
        for (text, meant) in [
            ("web.example:80", "web.example:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("/run/db", "unix:/run/db"),
            ("db", "service:db"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(meant));
        }
        for wrong in ["", "80", "web:0", "8080:web:80", "/run/../db", "[::1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn permissions_of_a_socket_are_octal_and_leave_it_usable() {
        assert_eq!((mode("600"), mode("0660"), mode("777")), (Ok(0o600), Ok(0o660), Ok(0o777)));
        for bad in ["", "1000", "rw", "060", "689", "-600"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
