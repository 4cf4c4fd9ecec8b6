//! DNS queries of enclosed programs, answered by the resolver of the server.
//!
//! A query that came over UDP or TCP leaves as DNS over TCP (RFC 7766: two bytes of length in front), so that no path sees the names. All queries
//! share one stream, which lasts while there are some. They leave without waiting for each other, under identifiers of our own, and their
//! answers come in any order. If the stream breaks, queries without an answer are repeated once over another. Answers are cached for their
//! time to live, and no longer.
//!
//! Names that are reached directly are asked for at the nameservers of this host, in the same way: the server may not know them.
//!
//! An answer over UDP has at most the length that its query allows. A longer one is cut, and the program asks again over TCP.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Duration, Instant, interval, timeout};

use crate::client::Dialer;
use crate::direct::Direct;
use crate::dns_cache::Cache;
use crate::names::Names;
use crate::nameservers::Nameservers;
use crate::request::RequestError;

mod addresses;
mod datagrams;
mod messages;
mod streams;
mod upstream;

pub(crate) use addresses::{addresses_in, is_host};

use self::upstream::{OfServer, Upstream};
use datagrams::{Datagrams, Return};
use messages::{HEADER, MAX_DATAGRAM, RESPONSE, error_for, failure, fitted, is_query, name_in};

/// Time after which a program's resolver asks again anyway.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most queries that wait for an answer; more are answered with a failure. Two for each of a few thousand programs that start at the same
/// time.
const MAX_WAITING: usize = 8192;
/// Most queries set apart to be asked alone: each has broken a stream, which is rare.
const MAX_APART: usize = 64;
/// How long the idle stream is kept for the next query: less than resolvers do.
const IDLE: Duration = Duration::from_secs(10);
/// How long a stream may say nothing while queries wait: its nameserver may have died, and the server tries the next one for a new stream.
const SILENCE: Duration = Duration::from_secs(4);
/// How often a query is asked: again only if the stream broke.
const MAX_TRIES: u8 = 2;

/// A place among those that may wait. It is free again when this is dropped.
pub type Place = Box<dyn Send + Sync>;

/// Gives a place to a query from this address, or to a connection with queries; `None` if it has as many as it may have.
pub type Admission = Arc<dyn Fn(IpAddr) -> Option<Place> + Send + Sync>;

/// A query that waits for its answer.
struct Query {
    /// The query of the program.
    bytes: Vec<u8>,
    from: Asker,
    until: Instant,
    tries: u8,
    /// Held until it has its answer.
    place: Option<Place>,
}

/// The place where a program waits for an answer.
enum Asker {
    /// UDP: this address.
    Datagram(Return),
    /// TCP: the stream that writes what is sent here, and the address of its peer.
    Stream(Sender<Vec<u8>>, IpAddr),
}

impl Asker {
    fn address(&self) -> IpAddr {
        match self {
            Self::Datagram(back) => back.to.ip(),
            Self::Stream(_, peer) => *peer,
        }
    }
}

/// Answers the queries that arrive at the sockets for IPv4 and IPv6, or over connections to `listener`, until a socket fails. `names` learns
/// the answers. Names that `direct` takes are asked for at the nameservers of this host.
///
/// # Errors
/// A socket failed.
pub async fn serve_queries<D: Dialer>(
    sockets: (UdpSocket, Option<UdpSocket>),
    listener: TcpListener,
    dialer: Arc<D>,
    (names, direct): (Arc<Names>, Arc<Direct>),
) -> io::Result<()> {
    serve(sockets, listener, dialer, (names, direct), None).await
}

/// The same for the queries of different devices, each of which has as many places as `admission` gives it.
///
/// # Errors
/// A socket failed.
pub async fn serve_queries_of_devices<D: Dialer>(
    sockets: (UdpSocket, Option<UdpSocket>),
    listener: TcpListener,
    dialer: Arc<D>,
    (names, admission): (Arc<Names>, Admission),
) -> io::Result<()> {
    serve(sockets, listener, dialer, (names, Arc::default()), Some(admission)).await
}

async fn serve<D: Dialer>(
    (socket, socket6): (UdpSocket, Option<UdpSocket>),
    listener: TcpListener,
    dialer: Arc<D>,
    (names, direct): (Arc<Names>, Arc<Direct>),
    admission: Option<Admission>,
) -> io::Result<()> {
    let (queue, queued) = mpsc::channel(MAX_WAITING);
    let (apart, set_apart) = mpsc::channel(MAX_APART);
    let (here, queued_here) = mpsc::channel(MAX_WAITING);
    let (apart_here, set_apart_here) = mpsc::channel(MAX_APART);
    let (socket, socket6) = (Datagrams::new(socket)?, socket6.map(Datagrams::new).transpose()?);
    let door = Arc::new(Door { socket, socket6, cache: Mutex::default(), names, direct, here, admission });
    let (server, own) = (OfServer(&*dialer), Nameservers::in_file("/etc/resolv.conf"));
    tokio::select! {
        failed = take_queries(Some(&door.socket), &door, &queue) => failed,
        failed = take_queries(door.socket6.as_ref(), &door, &queue) => failed,
        () = streams::accept_all(listener, &door, &queue) => Ok(()),
        () = ask_all(&door, &server, queued, apart) => Ok(()),
        () = ask_apart(&door, &server, set_apart) => Ok(()),
        () = ask_all(&door, &own, queued_here, apart_here) => Ok(()),
        () = ask_apart(&door, &own, set_apart_here) => Ok(()),
    }
}

/// The sockets of the programs' queries and their answers.
struct Door {
    socket: Datagrams,
    /// Of IPv6, if the host has it.
    socket6: Option<Datagrams>,
    cache: Mutex<Cache>,
    names: Arc<Names>,
    direct: Arc<Direct>,
    /// Queries for the nameservers of this host.
    here: Sender<Query>,
    /// `None`: all programs are of one host, and share the places.
    admission: Option<Admission>,
}

impl Door {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a query or a connection from this address.
    fn admit(&self, from: IpAddr) -> Result<Option<Place>, Full> {
        let place = self.admission.as_ref().map(|admission| admission(from.to_canonical()));
        place.map(|place| place.ok_or(Full)).transpose()
    }

    /// Sends an answer; a client that no longer listens is ignored.
    async fn answer(&self, query: &Query, response: Vec<u8>) {
        // Before the program can connect to the address.
        self.names.note(&response);
        match &query.from {
            Asker::Datagram(back) => {
                let socket = self.socket6.as_ref().filter(|_| back.to.is_ipv6()).unwrap_or(&self.socket);
                let _ = socket.send(&fitted(&query.bytes, response), *back).await;
            }
            // There is room for an answer to each query of the stream.
            Asker::Stream(answers, _) => {
                let _ = answers.try_send(response);
            }
        }
    }

    /// Tells a program that its query failed.
    async fn fail(&self, query: &Query) {
        self.answer(query, failure(&query.bytes)).await;
    }

    /// The queue of a query: that of this host for names that are reached directly.
    fn queue_for<'a>(&'a self, message: &[u8], queue: &'a Sender<Query>) -> &'a Sender<Query> {
        let is_direct =
            self.direct.has_names() && name_in(message).is_some_and(|name| self.direct.takes_name(&name));
        if is_direct { &self.here } else { queue }
    }

    /// Answers a message from here if that is possible; otherwise queues it. Returns whether it has or will have an answer.
    async fn take(&self, message: &[u8], from: Asker, queue: &Sender<Query>) -> bool {
        if message.len() < HEADER || message[2] & RESPONSE != 0 {
            return false;
        }
        let now = Instant::now();
        let mut query =
            Query { bytes: message.to_vec(), from, until: now + QUERY_TIMEOUT, tries: 0, place: None };
        if !is_query(message) {
            // A resolver may answer it by closing the stream, which loses all queries asked over it.
            self.answer(&query, error_for(&message[..HEADER], messages::FORMAT_ERROR)).await;
            return true;
        }
        let known = self.cache().find(message, now);
        if let Some(response) = known {
            self.answer(&query, response).await;
            return true;
        }
        match self.admit(query.from.address()) {
            Ok(place) => query.place = place,
            Err(Full) => {
                self.fail(&query).await;
                return true;
            }
        }
        if let Err(full) = self.queue_for(message, queue).try_send(query) {
            self.fail(&full.into_inner()).await;
        }
        true
    }
}

/// There is no place for an asker.
struct Full;

/// Takes the queries that arrive at a socket; waits for ever if there is none.
async fn take_queries(socket: Option<&Datagrams>, door: &Door, queue: &Sender<Query>) -> io::Result<()> {
    let Some(socket) = socket else { return pending().await };
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let (len, back) = socket.receive(&mut buffer).await?;
        door.take(&buffer[..len], Asker::Datagram(back), queue).await;
    }
}

/// Asks the queued queries over one stream after the other, each until it breaks or the queue is empty. The first query without an answer
/// may be the reason of a broken stream: it is set apart, and the others are asked again.
async fn ask_all<U: Upstream>(door: &Door, upstream: &U, mut queued: Receiver<Query>, apart: Sender<Query>) {
    let mut again = Vec::new();
    loop {
        if again.is_empty() {
            let Some(first) = queued.recv().await else { return };
            again.push(first);
        }
        let mut asked = Asked::default();
        again.drain(..).for_each(|query| asked.ask(query));
        let was_open = asked.run(door, upstream, &mut queued).await;
        for (number, mut query) in asked.waiting.into_values().enumerate() {
            // Without an answer programs wait; "server failure" lets them continue.
            if query.until <= Instant::now() || (!was_open && query.tries >= MAX_TRIES) {
                door.fail(&query).await;
            } else if !was_open {
                again.push(query);
            } else if number > 0 {
                // This try does not count. Each stream that breaks leaves one query fewer.
                query.tries -= 1;
                again.push(query);
            } else if let Err(full) = apart.try_send(query) {
                door.fail(&full.into_inner()).await;
            }
        }
    }
}

/// Asks each query that was set apart once more, over a stream of its own.
async fn ask_apart<U: Upstream>(door: &Door, upstream: &U, mut apart: Receiver<Query>) {
    while let Some(query) = apart.recv().await {
        let mut asked = Asked { is_alone: true, ..Asked::default() };
        asked.ask(query);
        asked.run(door, upstream, &mut apart).await;
        for query in asked.waiting.into_values() {
            door.fail(&query).await;
        }
    }
}

/// The queries of one stream.
#[derive(Default)]
struct Asked {
    /// The key is the identifier under which it was asked.
    waiting: BTreeMap<u16, Query>,
    next: u16,
    /// Bytes that are not sent yet.
    outgoing: Vec<u8>,
    /// No other query uses this stream, which ends with the answer.
    is_alone: bool,
}

impl Asked {
    /// Asks over a stream until it breaks or the queue is empty; returns whether there was one. The remaining queries have no answer.
    async fn run<U: Upstream>(&mut self, door: &Door, upstream: &U, queued: &mut Receiver<Query>) -> bool {
        let outgoing = std::mem::take(&mut self.outgoing);
        let opened = timeout(QUERY_TIMEOUT, upstream.open(&outgoing)).await;
        let was_open = matches!(opened, Ok(Ok(_)));
        let ended = match opened {
            Ok(Ok((stream, got))) => self.exchange(door, stream, got, queued).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the stream of DNS queries has ended");
        }
        was_open
    }

    /// The query leaves under an identifier of ours: those of different programs may be the same.
    fn ask(&mut self, mut query: Query) {
        query.tries += 1;
        // Fewer queries wait than there are identifiers.
        while self.waiting.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.outgoing.extend_from_slice(&(query.bytes.len() as u16).to_be_bytes());
        self.outgoing.extend_from_slice(&self.next.to_be_bytes());
        self.outgoing.extend_from_slice(&query.bytes[2..]);
        self.waiting.insert(self.next, query);
        self.next = self.next.wrapping_add(1);
    }

    /// Asks and answers until the stream ends, or has been idle for a while.
    async fn exchange(
        &mut self,
        door: &Door,
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite,
        mut got: Vec<u8>,
        queued: &mut Receiver<Query>,
    ) -> Result<(), RequestError> {
        let (mut reader, mut writer) = split(stream);
        let mut look = interval(Duration::from_secs(1));
        let (mut busy_at, mut heard_at) = (Instant::now(), Instant::now());
        loop {
            if self.waiting.is_empty() {
                heard_at = Instant::now();
            }
            self.take_answers(door, &mut got).await;
            if self.is_alone && self.waiting.is_empty() {
                writer.shutdown().await?;
                return Ok(());
            }
            let has_room = self.waiting.len() < MAX_WAITING && !self.is_alone;
            tokio::select! {
                query = queued.recv(), if has_room => match query {
                    Some(query) => self.ask(query),
                    None => return Ok(()),
                },
                written = writer.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    self.outgoing.drain(..written?);
                }
                read = reader.read_buf(&mut got) => {
                    if read? == 0 {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    heard_at = Instant::now();
                }
                _ = look.tick() => {
                    self.give_up_late(door).await;
                    // The answer to a query that is asked alone may just be slow.
                    if !self.is_alone && heard_at.elapsed() >= SILENCE {
                        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                    }
                }
            }
            if !self.waiting.is_empty() {
                busy_at = Instant::now();
            } else if busy_at.elapsed() > IDLE {
                writer.shutdown().await?;
                return Ok(());
            }
        }
    }

    /// Sends each complete answer to the clients that asked for it.
    async fn take_answers(&mut self, door: &Door, got: &mut Vec<u8>) {
        let mut taken = 0;
        while let Some(len) = got[taken..].first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)))
            && let Some(response) = got.get(taken + 2..taken + 2 + len)
        {
            taken += 2 + len;
            let asked = response.first_chunk().and_then(|id| self.waiting.remove(&u16::from_be_bytes(*id)));
            let Some(query) = asked else { continue };
            if len < HEADER {
                door.fail(&query).await;
            } else {
                let mut response = response.to_vec();
                response[..2].copy_from_slice(&query.bytes[..2]);
                door.cache().keep(&query.bytes, &response, Instant::now());
                door.answer(&query, response).await;
            }
        }
        got.drain(..taken);
    }

    /// Queries that have waited for too long fail.
    async fn give_up_late(&mut self, door: &Door) {
        let now = Instant::now();
        let is_late = |query: &Query| query.until <= now;
        for query in self.waiting.values().filter(|query| is_late(query)) {
            door.fail(query).await;
        }
        self.waiting.retain(|_, query| !is_late(query));
    }
}

#[cfg(test)]
mod tests;
