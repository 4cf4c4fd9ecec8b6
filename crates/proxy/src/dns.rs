//! DNS queries of enclosed programs, answered by the resolver of the server.
//!
//! A query that came over UDP leaves as DNS over TCP (RFC 7766: two bytes of length in front), so that no path sees names that are asked for.
//! All queries share one stream, which lasts while there are some: they leave without waiting for each other, under identifiers of our own,
//! and their answers come in any order. When it breaks, those without an answer are asked once more over another. What was answered is kept for as
//! long as it says, and no longer.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Duration, Instant, interval, timeout};

use crate::client::Dialer;
use crate::convert::Destination;
use crate::dns_cache::Cache;
use crate::request::{RequestError, answer, ask};

/// Longest query or answer by UDP (RFC 6891: more than anybody uses).
const MAX_DATAGRAM: usize = 4096;
/// Header of a message; shorter is no query.
const HEADER: usize = 12;
/// How long a program's resolver waits before it asks again anyway.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Queries that wait for an answer; more are answered with a failure. Two for each of a few thousand programs that start at the same time.
const MAX_WAITING: usize = 8192;
/// How long the stream is kept for the next query: less than resolvers do.
const IDLE: Duration = Duration::from_secs(10);
/// How often a query is asked: again only where the stream broke.
const MAX_TRIES: u8 = 2;

/// A query that waits for its answer.
struct Query {
    /// As the program has sent it.
    bytes: Vec<u8>,
    from: SocketAddr,
    until: Instant,
    tries: u8,
}

/// Answers the queries that come in at `socket`, until it fails.
///
/// # Errors
/// The socket failed.
pub async fn serve_queries<D: Dialer>(socket: UdpSocket, dialer: Arc<D>) -> io::Result<()> {
    let (queue, queued) = mpsc::channel(MAX_WAITING);
    let door = Door { socket, cache: Mutex::default() };
    tokio::select! {
        failed = take_queries(&door, &queue) => failed,
        () = ask_all(&door, &*dialer, queued) => Ok(()),
    }
}

/// Where programs ask and are answered.
struct Door {
    socket: UdpSocket,
    cache: Mutex<Cache>,
}

impl Door {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an answer; whoever does not listen any more is not told.
    async fn answer(&self, response: Vec<u8>, to: SocketAddr) {
        let _ = self.socket.send_to(&truncate(response), to).await;
    }

    /// Tells a program that its query failed.
    async fn fail(&self, query: &Query) {
        self.answer(failure(&query.bytes), query.from).await;
    }
}

async fn take_queries(door: &Door, queue: &Sender<Query>) -> io::Result<()> {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let (len, from) = door.socket.recv_from(&mut buffer).await?;
        if len < HEADER {
            continue;
        }
        let now = Instant::now();
        let known = door.cache().find(&buffer[..len], now);
        if let Some(response) = known {
            door.answer(response, from).await;
            continue;
        }
        let until = now + QUERY_TIMEOUT;
        let query = Query { bytes: buffer[..len].to_vec(), from, until, tries: 0 };
        if let Err(full) = queue.try_send(query) {
            door.fail(&full.into_inner()).await;
        }
    }
}

/// Asks what is queued over one stream after the other, each until it breaks or nothing more is asked.
async fn ask_all<D: Dialer>(door: &Door, dialer: &D, mut queued: Receiver<Query>) {
    let mut again = Vec::new();
    loop {
        if again.is_empty() {
            let Some(first) = queued.recv().await else { return };
            again.push(first);
        }
        let mut asked = Asked { waiting: BTreeMap::new(), next: 0, outgoing: Vec::new() };
        again.drain(..).for_each(|query| asked.ask(query));
        let opened = timeout(QUERY_TIMEOUT, open(dialer, &mut asked)).await;
        let ended = match opened {
            Ok(Ok((stream, got))) => asked.exchange(door, stream, got, &mut queued).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the stream of DNS queries has ended");
        }
        for (_, query) in asked.waiting {
            // Silence makes programs wait; "server failure" makes them go on.
            if query.tries < MAX_TRIES && query.until > Instant::now() {
                again.push(query);
            } else {
                door.fail(&query).await;
            }
        }
    }
}

/// A stream to the server's resolver, with what is asked so far on its way, and the first bytes that came back.
async fn open<D: Dialer>(dialer: &D, asked: &mut Asked) -> Result<(D::Stream, Vec<u8>), RequestError> {
    let mut stream = dialer.dial(&Destination::Resolver).await?;
    ask(&mut stream, Destination::Resolver).await?;
    stream.write_all(&asked.outgoing).await?;
    asked.outgoing.clear();
    let answered = answer(&mut stream).await?;
    dialer.answered(dialer.number(&stream), answered.instance);
    Ok((stream, answered.first))
}

/// What was asked over one stream.
struct Asked {
    /// By the identifier under which it was asked.
    waiting: BTreeMap<u16, Query>,
    next: u16,
    /// Bytes that have still to leave.
    outgoing: Vec<u8>,
}

impl Asked {
    /// The query leaves under an identifier of ours: those of different programs may be the same.
    fn ask(&mut self, mut query: Query) {
        query.tries += 1;
        // Fewer wait than there are identifiers.
        while self.waiting.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.outgoing.extend_from_slice(&(query.bytes.len() as u16).to_be_bytes());
        self.outgoing.extend_from_slice(&self.next.to_be_bytes());
        self.outgoing.extend_from_slice(&query.bytes[2..]);
        self.waiting.insert(self.next, query);
        self.next = self.next.wrapping_add(1);
    }

    /// Asks and answers until the stream ends, or has had nothing to do for a while.
    async fn exchange(
        &mut self,
        door: &Door,
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite,
        mut got: Vec<u8>,
        queued: &mut Receiver<Query>,
    ) -> Result<(), RequestError> {
        let (mut reader, mut writer) = split(stream);
        let mut look = interval(Duration::from_secs(1));
        let mut busy_at = Instant::now();
        loop {
            self.take_answers(door, &mut got).await;
            let has_room = self.waiting.len() < MAX_WAITING;
            tokio::select! {
                query = queued.recv(), if has_room => match query {
                    Some(query) => self.ask(query),
                    None => return Ok(()),
                },
                written = writer.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    self.outgoing.drain(..written?);
                }
                read = reader.read_buf(&mut got) => if read? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                },
                _ = look.tick() => self.give_up_late(door).await,
            }
            if !self.waiting.is_empty() {
                busy_at = Instant::now();
            } else if busy_at.elapsed() > IDLE {
                writer.shutdown().await?;
                return Ok(());
            }
        }
    }

    /// Sends the answers that are there whole to those who have asked.
    async fn take_answers(&mut self, door: &Door, got: &mut Vec<u8>) {
        let mut taken = 0;
        while let Some(len) = got[taken..].first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)))
            && let Some(response) = got.get(taken + 2..taken + 2 + len)
        {
            taken += 2 + len;
            let asked = response.first_chunk().and_then(|id| self.waiting.remove(&u16::from_be_bytes(*id)));
            if let Some(query) = asked.filter(|_| len >= HEADER) {
                let mut response = response.to_vec();
                response[..2].copy_from_slice(&query.bytes[..2]);
                door.cache().keep(&query.bytes, &response, Instant::now());
                door.answer(response, query.from).await;
            }
        }
        got.drain(..taken);
    }

    /// What has waited for too long fails.
    async fn give_up_late(&mut self, door: &Door) {
        let now = Instant::now();
        let is_late = |query: &Query| query.until <= now;
        for query in self.waiting.values().filter(|query| is_late(query)) {
            door.fail(query).await;
        }
        self.waiting.retain(|_, query| !is_late(query));
    }
}

/// What does not fit is cut with the TC bit set: the program asks again by TCP (RFC 1035, section 4.1.1).
fn truncate(mut response: Vec<u8>) -> Vec<u8> {
    if response.len() > MAX_DATAGRAM {
        response.truncate(HEADER);
        response[2] |= 0x02;
        // Counts of the sections that were cut off.
        response[4..].fill(0);
    }
    response
}

/// SERVFAIL for a query.
fn failure(query: &[u8]) -> Vec<u8> {
    let mut response = query.to_vec();
    response[2] |= 0x80;
    response[3] = (response[3] & 0xf0) | 0x02;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::request;

    /// A server whose resolver answers with the query's bytes behind the header reversed.
    #[derive(Default)]
    struct Far {
        /// Streams that cannot be opened, and then those that break with the first query.
        unreachable: usize,
        breaking: usize,
        dialed: Arc<AtomicUsize>,
        /// Answers to so many queries leave at once, the last first.
        together: usize,
        /// So many queries are answered by an address, and the stream says nothing to others; without it, see above.
        records: usize,
    }

    impl Dialer for Far {
        type Stream = DuplexStream;

        async fn dial(&self, _: &Destination) -> io::Result<DuplexStream> {
            let number = self.dialed.fetch_add(1, Ordering::Relaxed);
            if number < self.unreachable {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let breaks = number < self.unreachable + self.breaking;
            let (near, far) = duplex(8192);
            tokio::spawn(resolve(far, breaks, self.together.max(1), self.records));
            Ok(near)
        }

        async fn delivered(&self, _: &DuplexStream) -> io::Result<()> {
            Ok(())
        }
    }

    async fn resolve(mut far: DuplexStream, breaks: bool, together: usize, records: usize) {
        let (to, mut bytes) = request::request(&mut far).await.expect("a stream").expect("a request");
        assert_eq!(to, Destination::Resolver);
        request::reply(&mut far, Ok(None)).await.expect("room");
        let (mut answers, mut answered) = (Vec::new(), 0);
        loop {
            while let Some(len) = bytes.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)))
                && bytes.len() >= 2 + len
            {
                let mut answer: Vec<u8> = bytes.drain(..2 + len).collect();
                if records == 0 {
                    answer[14..].reverse();
                    answers.push(answer);
                } else if answered < records {
                    answered += 1;
                    answer.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
                    let len = u16::try_from(answer.len() - 2).expect("short");
                    answer[..2].copy_from_slice(&len.to_be_bytes());
                    answer[4] |= 0x80;
                    answer[9] = 1;
                    answers.push(answer);
                }
            }
            if breaks && !answers.is_empty() {
                return;
            }
            if answers.len() >= together {
                for answer in answers.drain(..).rev() {
                    far.write_all(&answer).await.expect("room");
                }
            }
            if far.read_buf(&mut bytes).await.is_ok_and(|read| read == 0) {
                return;
            }
        }
    }

    /// Sends `count` queries from one program, all with the same identifier, and returns the answers as they come.
    async fn ask(far: Far, count: u32) -> Vec<Vec<u8>> {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let at = server.local_addr().expect("bound");
        tokio::spawn(serve_queries(server, Arc::new(far)));
        let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        program.send_to(b"short", at).await.expect("sent and ignored");
        for number in 0..count {
            let query = [b"\x12\x34\x01\x00headers!", &number.to_be_bytes()[..]].concat();
            program.send_to(&query, at).await.expect("sent");
        }
        let mut answers = Vec::new();
        for _ in 0..count {
            let mut buffer = [0; 64];
            let len = program.recv(&mut buffer).await.expect("an answer");
            answers.push(buffer[..len].to_vec());
        }
        answers
    }

    #[tokio::test]
    async fn a_query_is_answered_by_the_servers_resolver() {
        assert_eq!(ask(Far::default(), 1).await, [b"\x12\x34\x01\x00headers!\0\0\0\0"]);
    }

    #[tokio::test]
    async fn many_queries_share_one_stream_and_their_answers_come_in_any_order() {
        let dialed = Arc::default();
        let far = Far { dialed: Arc::clone(&dialed), together: 100, ..Far::default() };
        let mut answers = ask(far, 100).await;
        answers.sort_unstable_by_key(|answer| answer[12]);
        for (number, answer) in (0_u32..).zip(answers) {
            let mut body = number.to_be_bytes();
            body.reverse();
            assert_eq!(answer, [b"\x12\x34\x01\x00headers!", &body[..]].concat());
        }
        assert_eq!(dialed.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_was_answered_is_not_asked_again_while_it_is_true() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let at = server.local_addr().expect("bound");
        let dialed: Arc<AtomicUsize> = Arc::default();
        // Whoever asks a second time has no answer but the one that is kept.
        let far = Far { dialed: Arc::clone(&dialed), records: 1, ..Far::default() };
        tokio::spawn(serve_queries(server, Arc::new(far)));
        let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        for id in [[1, 2], [3, 4]] {
            let query = [&id[..], b"\x01\0\0\x01\0\0\0\0\0\0\x01x\0\0\x01\0\x01"].concat();
            program.send_to(&query, at).await.expect("sent");
            let mut buffer = [0; 64];
            let len = program.recv(&mut buffer).await.expect("an answer");
            assert_eq!(buffer[..2], id, "everybody gets the identifier that it asked with");
            assert!(buffer[..len].ends_with(&[0, 4, 192, 0, 2, 1]), "{:?}", &buffer[..len]);
        }
        assert_eq!(dialed.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_query_is_asked_again_where_the_stream_broke_and_not_for_ever() {
        assert_eq!(
            ask(Far { breaking: 1, ..Far::default() }, 1).await,
            [b"\x12\x34\x01\x00headers!\0\0\0\0"]
        );
        let failed = b"\x12\x34\x81\x02headers!\0\0\0\0";
        assert_eq!(ask(Far { breaking: 2, ..Far::default() }, 1).await, [failed]);
        assert_eq!(ask(Far { unreachable: 2, ..Far::default() }, 1).await, [failed]);
    }

    #[test]
    fn an_answer_that_is_too_long_asks_for_tcp() {
        let short = truncate(vec![0x01; MAX_DATAGRAM + 1]);
        assert_eq!(short, [1, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(truncate(vec![1; 100]).len(), 100);
    }
}
