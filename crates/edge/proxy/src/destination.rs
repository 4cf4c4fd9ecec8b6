//! Connections from a server to the destinations of its clients.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::convert::{Destination, ErrorCode};
use crate::look_up::{Family, look_up};
use crate::nameservers::Nameservers;
use crate::rules::{Rule, allow, allow_resolved};
use crate::socket::prepare;

/// How long an address may take to answer.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time from the beginning of an attempt to the next one (RFC 8305, section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How long it may take to look up the names of an address.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(8);
/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Places for attempts beside the first one, of all connections together. They are half of the descriptors that the server keeps for other
/// purposes than connections. Without a place, the next attempt begins after the earlier one has failed.
static PLACES: Semaphore = Semaphore::const_new(64);

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
    let allowed = alternating(found.iter().copied().filter(is_allowed));
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
    nameservers: &Nameservers,
) -> Result<Vec<SocketAddr>, Unreached> {
    let is_allowed = |rules: &[Rule]| allow(rules, destination);
    if !is_allowed(rules) || !own_rules.is_none_or(is_allowed) {
        return Err(Unreached::Refused(ErrorCode::NotAuthorized));
    }
    match destination {
        Destination::Address(address) => Ok(vec![*address]),
        Destination::Named(address, names) => {
            let is_allowed = |destination: &Destination| {
                allow(rules, destination) && own_rules.is_none_or(|own| allow(own, destination))
            };
            if is_allowed(&Destination::Address(*address)) {
                return Ok(vec![*address]);
            }
            let is_allowed = |name: &str, ip: IpAddr| {
                let allows = |rules: &[Rule]| allow_resolved(rules, name, ip, address.port());
                allows(rules) && own_rules.is_none_or(allows)
            };
            let found = timeout(LOOK_UP_TIMEOUT, by_name(*address, names, is_allowed, nameservers)).await;
            found.ok().filter(|found| !found.is_empty()).ok_or(Unreached::Refused(ErrorCode::NotAuthorized))
        }
        Destination::Resolver => nameservers.in_order().first().map(|at| vec![*at]).ok_or(UNREACHABLE),
        Destination::Nowhere
        | Destination::Socket(_)
        | Destination::Service(_)
        | Destination::Remote(_)
        | Destination::Datagrams => Ok(Vec::new()),
        Destination::Name(name, port) => {
            let found = lookup_host((name.as_str(), *port)).await;
            let found: Vec<_> = found.map_err(Unreached::by_name)?.collect();
            let resolved_allowed = |rules: &[Rule], ip: IpAddr| allow_resolved(rules, name, ip, *port);
            let is_allowed = |at: &SocketAddr| {
                resolved_allowed(rules, at.ip()) && own_rules.is_none_or(|own| resolved_allowed(own, at.ip()))
            };
            let allowed = alternating(found.iter().copied().filter(is_allowed));
            match (found.is_empty(), allowed.is_empty()) {
                (true, _) => Err(UNREACHABLE),
                (false, true) => Err(Unreached::Refused(ErrorCode::NotAuthorized)),
                (false, false) => Ok(allowed),
            }
        }
    }
}

/// The address, if it is one of a name for which it is allowed. Some names have other addresses at each look: then the allowed ones of
/// those that the name has now.
async fn by_name(
    address: SocketAddr,
    names: &[String],
    is_allowed: impl Fn(&str, IpAddr) -> bool,
    nameservers: &Nameservers,
) -> Vec<SocketAddr> {
    let mut others = Vec::new();
    // A name that would not help is not looked up.
    for name in names.iter().filter(|name| is_allowed(name, address.ip())) {
        let found = look_up(nameservers, name, Family::of(address.ip())).await;
        if found.contains(&address.ip()) {
            return vec![address];
        }
        let allowed = found.into_iter().filter(|ip| is_allowed(name, *ip));
        others.extend(allowed.map(|ip| SocketAddr::new(ip, address.port())));
    }
    alternating(others)
}

/// Connects to the first of `addresses` that answers.
pub(crate) async fn connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, Unreached> {
    let stream = race(addresses, TcpStream::connect).await?;
    prepare(&stream);
    Ok(stream)
}

/// Returns the result of the first attempt that succeeds, and drops the others (Happy Eyeballs, RFC 8305, section 5). The next attempt begins
/// when one has failed, or after [`ATTEMPT_DELAY`].
async fn race<T, F>(addresses: Vec<SocketAddr>, attempt: impl Fn(SocketAddr) -> F) -> Result<T, Unreached>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let (mut rest, mut attempts, mut unreached) = (addresses.into_iter(), JoinSet::new(), UNREACHABLE);
    loop {
        let place = match attempts.is_empty() {
            true => Ok(None),
            false => PLACES.try_acquire().map(Some),
        };
        if let Ok(place) = place
            && let Some(address) = rest.next()
        {
            let answer = timeout(CONNECT_TIMEOUT, attempt(address));
            attempts.spawn(async move {
                let _place = place;
                answer.await
            });
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(Ok(stream)))) => return Ok(stream),
                Some(Ok(Ok(Err(error)))) => unreached = error.into(),
                // The error of an address that has answered says more.
                Some(Ok(Err(_)) | Err(_)) => {}
                None => return Err(unreached),
            },
            () = sleep(ATTEMPT_DELAY), if rest.len() > 0 => {}
        }
    }
}

/// The addresses in the order of the attempts: that of the resolver, but the families alternate (RFC 8305, section 4). The number of addresses
/// is limited.
fn alternating(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut seen = BTreeSet::new();
    let all: Vec<_> = addresses.into_iter().filter(|address| seen.insert(*address)).collect();
    let is_v6 = all.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, other): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|address| address.is_ipv6() == is_v6);
    let mut queues = [preferred.into_iter(), other.into_iter()];
    let mut ordered = Vec::new();
    while ordered.len() < MAX_ADDRESSES && queues.iter().any(|queue| queue.len() > 0) {
        ordered.extend(queues.iter_mut().filter_map(Iterator::next));
    }
    ordered.truncate(MAX_ADDRESSES);
    ordered
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
    use tokio::time::Instant;

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

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().expect(text), 443)
    }

    /// Attempts at addresses: those of 192.0.2.0/24 never answer, those of 203.0.113.0/24 refuse, all others answer after 30 ms.
    async fn attempt(at: SocketAddr) -> io::Result<SocketAddr> {
        match at.ip() {
            IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2] => std::future::pending().await,
            IpAddr::V4(ip) if ip.octets()[..3] == [203, 0, 113] => {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => {
                sleep(Duration::from_millis(30)).await;
                Ok(at)
            }
        }
    }

    /// The first address that answers, or the error code, and the time in milliseconds.
    async fn raced(texts: &[&str]) -> (Result<SocketAddr, ErrorCode>, u128) {
        let begun = Instant::now();
        let outcome = race(texts.iter().copied().map(address).collect(), attempt).await;
        (outcome.map_err(|unreached| unreached.code()), begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_first_address_costs_a_quarter_of_a_second() {
        let (found, millis) = raced(&["192.0.2.1", "2001:db8::1"]).await;
        assert_eq!(found, Ok(address("2001:db8::1")));
        assert!((280..300).contains(&millis), "{millis} ms");
        let (found, millis) = raced(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1"]).await;
        assert_eq!(found, Ok(address("198.51.100.1")));
        assert!((780..800).contains(&millis), "{millis} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_costs_nothing() {
        let (found, millis) = raced(&["203.0.113.1", "203.0.113.2", "2001:db8::1"]).await;
        assert_eq!(found, Ok(address("2001:db8::1")));
        assert!((30..50).contains(&millis), "{millis} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_all_fail_cost_one_time_limit_and_the_error_is_that_of_an_answer() {
        let (found, millis) = raced(&["192.0.2.1", "203.0.113.1", "192.0.2.2"]).await;
        assert_eq!(found, Err(ErrorCode::ConnectionReset));
        assert!((20_000..20_600).contains(&millis), "{millis} ms");
        assert_eq!(raced(&["192.0.2.1"]).await.0, Err(ErrorCode::DestinationUnreachable));
        assert_eq!(raced(&[]).await, (Err(ErrorCode::DestinationUnreachable), 0));
    }

    #[test]
    fn families_alternate_and_the_number_of_addresses_is_limited() {
        let order = |texts: &[&str]| alternating(texts.iter().copied().map(address));
        let all = |texts: &[&str]| texts.iter().copied().map(address).collect::<Vec<_>>();
        assert_eq!(
            order(&["2001:db8::1", "2001:db8::2", "2001:db8::2", "192.0.2.1", "192.0.2.2", "192.0.2.3"]),
            all(&["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "192.0.2.3"])
        );
        let many: Vec<_> = (1..=20).map(|n| format!("2001:db8::{n}")).chain(["192.0.2.1".into()]).collect();
        let ordered = order(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((ordered.len(), ordered[1]), (MAX_ADDRESSES, address("192.0.2.1")));
        assert_eq!(order(&[]), []);
    }
}
