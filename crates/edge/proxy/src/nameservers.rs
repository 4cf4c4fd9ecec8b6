//! The nameservers of a server, which answer the DNS queries of its clients' programs.
//!
//! All of them are tried, the one that answered last first. Those that did not answer come last. A nameserver has answered when its first
//! byte arrives: one that hangs may still accept connections. The file that names them is read at each use: it may change while the server
//! runs, and each use serves all queries of a client for a while.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use crate::relay::Abort;

/// The port of nameservers.
const PORT: u16 = 53;
/// Time after which the next nameserver is tried.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Time after which a nameserver that was asked and has said nothing counts as silent: before the client asks again over another stream.
const SILENCE: Duration = Duration::from_secs(3);
/// Most nameservers that are tried: a query waits ten seconds.
const MOST: usize = 6;

/// The nameservers for the queries of clients.
#[derive(Clone, Debug)]
pub struct Nameservers {
    source: Source,
    met: Arc<Mutex<Met>>,
}

/// What was seen of the nameservers. It is forgotten when the list changes: the order of a new list is the wish of its author.
#[derive(Debug, Default)]
struct Met {
    list: Vec<SocketAddr>,
    /// The nameserver that answered last.
    first: Option<SocketAddr>,
    /// Those that did not answer, the latest last.
    silent: Vec<SocketAddr>,
}

/// A stream to a nameserver, which notes whether the nameserver answers.
#[derive(Debug)]
pub(crate) struct Asking {
    stream: TcpStream,
    server: SocketAddr,
    met: Arc<Mutex<Met>>,
    answer: Answer,
}

/// The first byte of a nameserver.
#[derive(Debug)]
enum Answer {
    NotAsked,
    /// It counts as silent at the end of this time.
    Awaited(Pin<Box<Sleep>>),
    /// It has not come in time. It still counts when it comes: some names take long.
    Missed,
    Noted,
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
        Self { source, met: Arc::default() }
    }

    /// The nameservers in the order in which they are tried now.
    #[must_use]
    pub fn in_order(&self) -> Vec<SocketAddr> {
        let mut servers = match &self.source {
            Source::Given(servers) => servers.clone(),
            Source::File(file) => configured(&fs::read_to_string(file).unwrap_or_default()),
        };
        let mut met = lock(&self.met);
        if met.list != servers {
            *met = Met { list: servers.clone(), ..Met::default() };
        }
        // The others keep their order.
        servers.sort_by_key(|server| met.rank(*server));
        servers.truncate(MOST);
        servers
    }

    /// A connection to the first nameserver that accepts one; `None` if no nameserver does.
    pub(crate) async fn connect(&self) -> Option<Asking> {
        for server in self.in_order() {
            match timeout(PATIENCE, TcpStream::connect(server)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    let met = Arc::clone(&self.met);
                    return Some(Asking { stream, server, met, answer: Answer::NotAsked });
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "a nameserver cannot be reached"),
                Err(_) => tracing::debug!(%server, "a nameserver does not accept a connection"),
            }
            lock(&self.met).is_silent(server);
        }
        None
    }
}

fn lock(met: &Mutex<Met>) -> MutexGuard<'_, Met> {
    met.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Met {
    fn rank(&self, server: SocketAddr) -> usize {
        let silent = self.silent.iter().position(|silent| *silent == server);
        match silent {
            _ if self.first == Some(server) => 0,
            None => 1,
            Some(place) => 2 + place,
        }
    }

    fn answers(&mut self, server: SocketAddr) {
        if self.list.contains(&server) {
            self.first = Some(server);
            self.silent.retain(|silent| *silent != server);
        }
    }

    fn is_silent(&mut self, server: SocketAddr) {
        if self.list.contains(&server) {
            self.first = self.first.filter(|first| *first != server);
            self.silent.retain(|silent| *silent != server);
            self.silent.push(server);
        }
    }
}

impl Asking {
    fn note_answer(&mut self) {
        self.answer = Answer::Noted;
        lock(&self.met).answers(self.server);
    }

    fn note_silence(&mut self) {
        self.answer = Answer::Missed;
        tracing::debug!(server = %self.server, "a nameserver does not answer");
        lock(&self.met).is_silent(self.server);
    }
}

impl AsyncRead for Asking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let has_said = matches!(&polled, Poll::Ready(Ok(())) if buffer.filled().len() > before);
        match &mut self.answer {
            Answer::Awaited(_) | Answer::Missed if has_said => self.note_answer(),
            Answer::Awaited(until) => {
                if polled.is_ready() || until.as_mut().poll(context).is_ready() {
                    self.note_silence();
                }
            }
            Answer::NotAsked | Answer::Missed | Answer::Noted => {}
        }
        polled
    }
}

impl AsyncWrite for Asking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, data);
        if matches!((&polled, &self.answer), (Poll::Ready(Ok(1..)), Answer::NotAsked)) {
            self.answer = Answer::Awaited(Box::pin(sleep(SILENCE)));
            // The reader may wait already, and not for this time.
            context.waker().wake_by_ref();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Abort for Asking {
    fn abort(&mut self) {
        self.stream.abort();
    }

    fn check(&self) -> io::Result<()> {
        self.stream.check()
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
        assert_eq!(reached.server, here);
        assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(servers.in_order(), [here, closed, silent]);
        assert!(Nameservers::given([closed]).connect().await.is_none());
    }

    /// Asks the first nameserver, and returns it with the first byte that it says, if any, before its stream ends or for so long.
    async fn ask(servers: &Nameservers, patience: Duration) -> (SocketAddr, Option<u8>) {
        let mut stream = servers.connect().await.expect("it accepts");
        stream.write_all(b"?").await.expect("taken");
        let said = timeout(patience, stream.read_u8()).await;
        (stream.server, said.ok().and_then(Result::ok))
    }

    #[tokio::test]
    async fn a_nameserver_that_accepts_and_says_nothing_is_tried_last_and_the_one_that_answers_first() {
        let listen = async || TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (hung, closing, good) = (listen().await, listen().await, listen().await);
        let at = [&hung, &closing, &good].map(|listener| listener.local_addr().expect("bound"));
        tokio::spawn(async move { while closing.accept().await.is_ok() {} });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = good.accept().await {
                stream.write_all(b"!").await.expect("taken");
            }
        });
        let servers = Nameservers::given(at);
        let [hung, closing, good] = at;
        assert_eq!(ask(&servers, Duration::from_millis(100)).await, (hung, None));
        assert_eq!(servers.in_order(), at, "a client that leaves early proves nothing");
        assert_eq!(ask(&servers, SILENCE + PATIENCE).await, (hung, None));
        assert_eq!(servers.in_order(), [closing, good, hung]);
        assert_eq!(ask(&servers, PATIENCE).await, (closing, None));
        assert_eq!(servers.in_order(), [good, hung, closing]);
        assert_eq!(ask(&servers, PATIENCE).await, (good, Some(b'!')));
        assert_eq!(servers.in_order(), [good, hung, closing]);
        assert_eq!(lock(&servers.met).first, Some(good));
    }

    #[test]
    fn a_changed_list_is_tried_in_its_own_order() {
        let [one, two, three] = [1, 2, 3].map(|last| SocketAddr::from(([192, 0, 2, last], PORT)));
        let mut servers = Nameservers::given([one, two]);
        assert_eq!(servers.in_order(), [one, two]);
        lock(&servers.met).answers(two);
        lock(&servers.met).is_silent(one);
        assert_eq!(servers.in_order(), [two, one]);
        servers.source = Source::Given(vec![one, two, three]);
        assert_eq!(servers.in_order(), [one, two, three]);
        lock(&servers.met).is_silent(SocketAddr::from(([192, 0, 2, 9], PORT)));
        assert_eq!(lock(&servers.met).silent, [], "a stream may outlast the list that named its nameserver");
    }
}
