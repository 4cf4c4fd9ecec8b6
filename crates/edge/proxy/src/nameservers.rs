//! The nameservers of a server, which answer the DNS queries of its clients' programs.
//!
//! All of them are tried, the one that answered last first. The file that names them is read again at each use: it may change while the
//! server runs, and each use serves all queries of a client for a while.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// The port of nameservers.
const PORT: u16 = 53;
/// Time after which the next nameserver is tried.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Most nameservers that are tried: a query waits ten seconds.
const MOST: usize = 6;

/// The nameservers for the queries of clients.
#[derive(Clone, Debug)]
pub struct Nameservers {
    source: Source,
    /// The nameserver that answered last.
    last: Arc<Mutex<Option<SocketAddr>>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    Given(Vec<SocketAddr>),
    /// A file in the format of resolv.conf(5).
    File(PathBuf),
}

impl Nameservers {
    /// These nameservers, in this order; without any, queries fail.
    pub fn given(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::of(Source::Given(servers.into_iter().collect()))
    }

    /// The nameservers in this file in the format of resolv.conf(5), as they are when they are needed.
    pub fn in_file(file: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(file.into()))
    }

    fn of(source: Source) -> Self {
        Self { source, last: Arc::default() }
    }

    /// The nameservers in the order in which they are tried now.
    #[must_use]
    pub fn in_order(&self) -> Vec<SocketAddr> {
        let mut servers = match &self.source {
            Source::Given(servers) => servers.clone(),
            Source::File(file) => configured(&fs::read_to_string(file).unwrap_or_default()),
        };
        let last = *self.last();
        // The others keep their order.
        servers.sort_by_key(|server| Some(*server) != last);
        servers.truncate(MOST);
        servers
    }

    /// A connection to the first nameserver that answers; `None` if no nameserver does.
    pub(crate) async fn connect(&self) -> Option<TcpStream> {
        for server in self.in_order() {
            match timeout(PATIENCE, TcpStream::connect(server)).await {
                Ok(Ok(stream)) => {
                    *self.last() = Some(server);
                    let _ = stream.set_nodelay(true);
                    return Some(stream);
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "a nameserver cannot be reached"),
                Err(_) => tracing::debug!(%server, "a nameserver does not answer"),
            }
        }
        None
    }

    fn last(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nameservers in the text of a `resolv.conf`.
fn configured(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next().and_then(address))?
    };
    text.lines().filter_map(server).collect()
}

/// An address, for IPv6 maybe with a zone: `fe80::1%eth0`.
fn address(word: &str) -> Option<SocketAddr> {
    match word.split_once('%') {
        None => word.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT)),
        // The system knows the number of the device. Without a name there, it does not ask DNS.
        Some((ip, _)) => {
            ip.parse::<Ipv6Addr>().ok()?;
            (word, PORT).to_socket_addrs().ok()?.next()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn all_nameservers_of_a_file_are_found() {
        let text = "# made by hand\nsearch example.org\nnameserver nonsense\nnameserver 192.0.2.53 # the first\n\
                    nameserver\t2001:db8::53\nnameservers 192.0.2.1\nnameserver fe80::1%lo\nnameserver fe80::1%none\n";
        let found: Vec<_> = configured(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.53:53", "[2001:db8::53]:53", "[fe80::1%1]:53"]);
        assert_eq!(configured("search x\n"), []);
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let directory = std::env::temp_dir().join(format!("plait-nameservers-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("resolv.conf");
        let servers = Nameservers::in_file(&file);
        assert_eq!(servers.in_order(), [], "there is no file");
        for address in ["192.0.2.53", "192.0.2.54"] {
            fs::write(&file, format!("nameserver {address}\n")).expect("written");
            assert_eq!(servers.in_order(), [SocketAddr::new(address.parse().expect("one"), PORT)]);
        }
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[tokio::test]
    async fn a_nameserver_that_does_not_answer_is_passed_over_and_tried_last_from_then_on() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("bound");
        // A listener whose backlog is full does not answer.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("one")).expect("a port");
        let full = socket.listen(1).expect("listens");
        let silent = full.local_addr().expect("bound");
        let mut waiting = Vec::new();
        while let Ok(Ok(one)) = timeout(Duration::from_millis(200), TcpStream::connect(silent)).await {
            waiting.push(one);
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        let servers = Nameservers::given([closed, silent, here]);
        let begun = Instant::now();
        let reached = servers.connect().await.expect("the third");
        assert_eq!(reached.peer_addr().expect("connected"), here);
        assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(servers.in_order(), [here, closed, silent]);
        assert!(Nameservers::given([closed]).connect().await.is_none());
    }
}
