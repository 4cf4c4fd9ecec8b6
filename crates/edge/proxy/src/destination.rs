//! Connections from a server to the destinations of its clients.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::convert::{Destination, ErrorCode};
use crate::rules::{Rule, allow, allow_resolved};

/// How long a destination may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// The addresses of the one service of a forwarder, `HOST:PORT`, that the rules of the client allow, if there are
/// any.
pub(crate) async fn resolve_service(
    to: &str,
    own_rules: Option<&[Rule]>,
) -> Result<Vec<SocketAddr>, Unreached> {
    let found: Vec<_> = lookup_host(to).await.map_err(Unreached::by_name)?.collect();
    let name = to.rsplit_once(':').map_or(to, |(name, _)| name);
    let is_allowed =
        |at: &SocketAddr| own_rules.is_none_or(|own| allow_resolved(own, name, at.ip(), at.port()));
    let allowed: Vec<_> = found.iter().copied().filter(is_allowed).take(MAX_ADDRESSES).collect();
    match (found.is_empty(), allowed.is_empty()) {
        (true, _) => Err(UNREACHABLE),
        (false, true) => Err(Unreached::Refused(ErrorCode::NotAuthorized)),
        (false, false) => Ok(allowed),
    }
}

/// The addresses of a destination that all rules allow.
pub(crate) async fn resolve(
    destination: &Destination,
    rules: &[Rule],
    own_rules: Option<&[Rule]>,
    resolver: Option<SocketAddr>,
) -> Result<Vec<SocketAddr>, Unreached> {
    let is_allowed = |rules: &[Rule]| allow(rules, destination);
    if !is_allowed(rules) || !own_rules.is_none_or(is_allowed) {
        return Err(Unreached::Refused(ErrorCode::NotAuthorized));
    }
    match destination {
        Destination::Address(address) => Ok(vec![*address]),
        Destination::Resolver => resolver.map(|at| vec![at]).ok_or(UNREACHABLE),
        Destination::Nowhere => Ok(Vec::new()),
        Destination::Name(name, port) => {
            let found = lookup_host((name.as_str(), *port)).await;
            let found: Vec<_> = found.map_err(Unreached::by_name)?.collect();
            let resolved_allowed = |rules: &[Rule], ip: IpAddr| allow_resolved(rules, name, ip, *port);
            let allowed: Vec<_> = found
                .iter()
                .filter(|at| resolved_allowed(rules, at.ip()))
                .filter(|at| own_rules.is_none_or(|own| resolved_allowed(own, at.ip())))
                .take(MAX_ADDRESSES)
                .copied()
                .collect();
            match (found.is_empty(), allowed.is_empty()) {
                (true, _) => Err(UNREACHABLE),
                (false, true) => Err(Unreached::Refused(ErrorCode::NotAuthorized)),
                (false, false) => Ok(allowed),
            }
        }
    }
}

/// The first of `addresses` that answers.
pub(crate) async fn connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, Unreached> {
    let mut unreached = UNREACHABLE;
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Latency matters more than a few small segments on a local network.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => unreached = error.into(),
            Err(_) => unreached = UNREACHABLE,
        }
    }
    Err(unreached)
}

/// The reason of a failed connection to a destination.
pub(crate) enum Unreached {
    /// It is not available, or not allowed.
    Refused(ErrorCode),
    /// This host has no resource left for the connection.
    Exhausted(io::Error),
}

const UNREACHABLE: Unreached = Unreached::Refused(ErrorCode::DestinationUnreachable);

impl Unreached {
    /// A name was not found.
    pub(crate) fn by_name(error: io::Error) -> Self {
        match Self::from(error) {
            Self::Refused(_) => UNREACHABLE,
            exhausted @ Self::Exhausted(_) => exhausted,
        }
    }

    /// The error code for the client.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(code) => *code,
            Self::Exhausted(_) => ErrorCode::ResourceExceeded,
        }
    }
}

impl From<io::Error> for Unreached {
    fn from(error: io::Error) -> Self {
        match code_of(&error) {
            ErrorCode::ResourceExceeded => Self::Exhausted(error),
            code => Self::Refused(code),
        }
    }
}

/// The error code for a client after a failed connection to its destination.
pub fn code_of(error: &io::Error) -> ErrorCode {
    /// `EMFILE` and `ENFILE`, for which there is no kind; the same on every Unix.
    const OPEN_FILES: [Option<i32>; 2] = [Some(24), Some(23)];
    if cfg!(unix) && OPEN_FILES.contains(&error.raw_os_error()) {
        return ErrorCode::ResourceExceeded;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => ErrorCode::ConnectionReset,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => ErrorCode::NetworkFailure,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => ErrorCode::ResourceExceeded,
        _ => ErrorCode::DestinationUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_when_we_have_nothing_left_to_connect_with() {
        for (errno, code) in [
            (23, ErrorCode::ResourceExceeded),
            (24, ErrorCode::ResourceExceeded),
            (13, ErrorCode::DestinationUnreachable),
        ] {
            assert_eq!(code_of(&io::Error::from_raw_os_error(errno)), code, "error {errno}");
        }
    }
}
