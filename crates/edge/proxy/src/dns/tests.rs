//! Questions that another host answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::convert::{Destination, Instance};
use crate::dns::messages::FORMAT_ERROR;
use crate::request;
use crate::silence::SilenceLimit;

/// A server whose resolver answers with the query's bytes behind the header reversed.
#[derive(Default)]
struct Far {
    /// Streams that cannot be opened, and then those that break with the first query.
    unreachable: usize,
    breaking: usize,
    dialed: Arc<AtomicUsize>,
    /// The first stream answers no query.
    is_silent_once: bool,
    /// Answers to so many queries leave at once, the last first.
    together: usize,
    /// The stream is closed when this is asked, before what else has come is answered.
    poison: Option<u32>,
    /// Answers have only an identifier.
    is_short: bool,
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
        let together = if self.is_silent_once && number == 0 { usize::MAX } else { self.together.max(1) };
        tokio::spawn(resolve(far, breaks, together, (self.records, self.poison, self.is_short)));
        Ok(near)
    }

    fn number(&self, _: &DuplexStream) -> u64 {
        0
    }

    fn answered(&self, _: u64, _: Option<Instance>) {}

    fn silence_limit(&self) -> SilenceLimit {
        SilenceLimit::new(None)
    }

    async fn delivered(&self, _: &DuplexStream) -> io::Result<()> {
        Ok(())
    }
}

async fn resolve(
    mut far: DuplexStream,
    breaks: bool,
    together: usize,
    (records, poison, is_short): (usize, Option<u32>, bool),
) {
    let (to, mut bytes) = request::request(&mut far).await.expect("a stream").expect("a request");
    assert_eq!(to, Destination::Resolver);
    request::reply(&mut far, Ok(None)).await.expect("room");
    let (mut answers, mut answered) = (Vec::new(), 0);
    loop {
        while let Some(len) = bytes.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)))
            && bytes.len() >= 2 + len
        {
            let mut answer: Vec<u8> = bytes.drain(..2 + len).collect();
            if poison.is_some_and(|number| answer[2 + HEADER..] == question(number)) {
                return;
            }
            if is_short {
                answers.push([&[0, 2], &answer[2..4]].concat());
            } else if records == 0 {
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

const HEAD: &[u8; HEADER] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";

/// The question for a name of four bytes.
fn question(number: u32) -> Vec<u8> {
    [&[4][..], &number.to_be_bytes(), &[0, 0, 1, 0, 1]].concat()
}

fn query(number: u32) -> Vec<u8> {
    [&HEAD[..], &question(number)].concat()
}

/// What [`Far`] answers.
fn reversed(number: u32) -> Vec<u8> {
    [&HEAD[..], &question(number).into_iter().rev().collect::<Vec<_>>()].concat()
}

/// The query with a response code.
fn failed(number: u32) -> Vec<u8> {
    let mut answer = query(number);
    answer[2..4].copy_from_slice(&[0x81, 2]);
    answer
}

async fn no_streams() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

/// Sends `count` queries from one program, all with the same identifier, and returns the answers as they come.
async fn ask(far: Far, count: u32) -> Vec<Vec<u8>> {
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let at = server.local_addr().expect("bound");
    tokio::spawn(serve_queries((server, None), no_streams().await, Arc::new(far), Default::default()));
    let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    program.send_to(b"short", at).await.expect("sent and ignored");
    for number in 0..count {
        program.send_to(&query(number), at).await.expect("sent");
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
    assert_eq!(ask(Far::default(), 1).await, [reversed(0)]);
}

#[tokio::test]
async fn many_queries_share_one_stream_and_their_answers_come_in_any_order() {
    let dialed = Arc::default();
    let far = Far { dialed: Arc::clone(&dialed), together: 100, ..Far::default() };
    let mut answers = ask(far, 100).await;
    answers.sort_unstable_by_key(|answer| answer[HEADER + 5]);
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer, reversed(number));
    }
    assert_eq!(dialed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_answer_is_repeated_from_the_cache_while_it_is_true() {
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let at = server.local_addr().expect("bound");
    let dialed: Arc<AtomicUsize> = Arc::default();
    // The second query has no answer but the cached one.
    let far = Far { dialed: Arc::clone(&dialed), records: 1, ..Far::default() };
    tokio::spawn(serve_queries((server, None), no_streams().await, Arc::new(far), Default::default()));
    let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    for id in [[1, 2], [3, 4]] {
        let query = [&id[..], b"\x01\0\0\x01\0\0\0\0\0\0\x01x\0\0\x01\0\x01"].concat();
        program.send_to(&query, at).await.expect("sent");
        let mut buffer = [0; 64];
        let len = program.recv(&mut buffer).await.expect("an answer");
        assert_eq!(buffer[..2], id, "each client gets the identifier that it asked with");
        assert!(buffer[..len].ends_with(&[0, 4, 192, 0, 2, 1]), "{:?}", &buffer[..len]);
    }
    assert_eq!(dialed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_query_is_asked_again_where_the_stream_broke_and_not_for_ever() {
    assert_eq!(ask(Far { breaking: 1, ..Far::default() }, 1).await, [reversed(0)]);
    assert_eq!(ask(Far { breaking: 2, ..Far::default() }, 1).await, [failed(0)]);
    assert_eq!(ask(Far { unreachable: 2, ..Far::default() }, 1).await, [failed(0)]);
}

#[tokio::test]
async fn queries_are_asked_again_where_the_stream_says_nothing() {
    let mut answers = ask(Far { is_silent_once: true, ..Far::default() }, 3).await;
    answers.sort_unstable_by_key(|answer| answer[HEADER + 5]);
    assert_eq!(answers, (0..3).map(reversed).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_query_for_which_the_resolver_closes_the_stream_takes_no_other_along() {
    let mut answers = ask(Far { poison: Some(3), ..Far::default() }, 100).await;
    answers.sort_unstable();
    let others = (0..100).filter(|number| *number != 3).map(reversed);
    let mut expected: Vec<_> = others.chain([failed(3)]).collect();
    expected.sort_unstable();
    assert!(answers == expected, "{answers:?}");
}

#[tokio::test]
async fn a_malformed_query_is_answered_here_and_not_sent_on() {
    let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let at = server.local_addr().expect("bound");
    let dialed: Arc<AtomicUsize> = Arc::default();
    let far = Far { dialed: Arc::clone(&dialed), ..Far::default() };
    tokio::spawn(serve_queries((server, None), no_streams().await, Arc::new(far), Default::default()));
    let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let with = |change: fn(&mut Vec<u8>)| {
        let mut query = query(7);
        change(&mut query);
        query
    };
    for malformed in [
        with(|query| query.truncate(HEADER)),
        with(|query| query.truncate(HEADER + 3)),
        with(|query| query.push(0)),
        with(|query| query[5] = 2),
        with(|query| query[11] = 1),
        with(|query| query[HEADER] = 60),
    ] {
        program.send_to(&malformed, at).await.expect("sent");
        let mut buffer = [0; 64];
        let len = program.recv(&mut buffer).await.expect("an answer");
        assert_eq!((len, &buffer[..4]), (HEADER, &[0x12, 0x34, 0x81, FORMAT_ERROR][..]), "{malformed:?}");
    }
    assert_eq!(dialed.load(Ordering::Relaxed), 0);
}

#[test]
fn a_query_with_options_is_one() {
    let mut query = [query(7), b"\0\0\x29\x10\0\0\0\0\0\0\0".to_vec()].concat();
    query[11] = 1;
    assert!(is_query(&query));
}

/// Sends these queries over one TCP connection and returns the answers in the order in which they come.
async fn ask_over_tcp(far: Far, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let listener = no_streams().await;
    let at = listener.local_addr().expect("bound");
    tokio::spawn(serve_queries((socket, None), listener, Arc::new(far), Default::default()));
    let mut program = tokio::net::TcpStream::connect(at).await.expect("it listens");
    for query in numbers.map(query) {
        let len = u16::try_from(query.len()).expect("short").to_be_bytes();
        program.write_all(&[&len[..], &query].concat()).await.expect("sent");
    }
    program.shutdown().await.expect("half-closed");
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    program.read_to_end(&mut bytes).await.expect("an end");
    while let Some(len) = bytes.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len))) {
        answers.push(bytes.drain(..2 + len).skip(2).collect());
    }
    answers
}

#[tokio::test]
async fn queries_over_tcp_are_answered_all_of_them() {
    assert_eq!(ask_over_tcp(Far::default(), 0..1).await, [reversed(0)]);
    let mut answers = ask_over_tcp(Far { together: 10, ..Far::default() }, 0..100).await;
    answers.sort_unstable_by_key(|answer| answer[HEADER + 5]);
    assert_eq!(answers, (0..100).map(reversed).collect::<Vec<_>>());
    assert_eq!(ask_over_tcp(Far { unreachable: 2, ..Far::default() }, 0..1).await, [failed(0)]);
}

#[tokio::test]
async fn an_answer_that_is_shorter_than_a_header_is_a_failure() {
    let answers = ask(Far { is_short: true, ..Far::default() }, 1);
    assert_eq!(timeout(QUERY_TIMEOUT, answers).await.expect("an answer"), [failed(0)]);
}

/// A program's TCP connection to the door.
async fn connection(far: Far) -> tokio::net::TcpStream {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let listener = no_streams().await;
    let at = listener.local_addr().expect("bound");
    tokio::spawn(serve_queries((socket, None), listener, Arc::new(far), Default::default()));
    tokio::net::TcpStream::connect(at).await.expect("it listens")
}

#[tokio::test(start_paused = true)]
async fn a_program_that_sends_a_query_byte_by_byte_loses_its_connection() {
    let mut program = connection(Far::default()).await;
    let begun = Instant::now();
    let mut buffer = [0; 1];
    let ended = loop {
        program.write_all(&[0xff]).await.expect("taken");
        if let Ok(read) = timeout(IDLE / 3, program.read(&mut buffer)).await {
            break read;
        }
        assert!(begun.elapsed() < IDLE * 3, "each byte restarts the time");
    };
    assert_eq!(ended.expect("an end"), 0);
    assert!(begun.elapsed() >= IDLE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_takes_no_answers_loses_its_connection() {
    // Failures are as long as their queries.
    let mut program = connection(Far { unreachable: usize::MAX, ..Far::default() }).await;
    let mut query = [query(7), b"\0\0\x29\x10\0\0\0\0\0\xea\x60".to_vec(), vec![0; 60_000]].concat();
    query[11] = 1;
    assert!(is_query(&query));
    let len = u16::try_from(query.len()).expect("short").to_be_bytes();
    let message = [&len[..], &query].concat();
    let asking = async { while program.write_all(&message).await.is_ok() {} };
    timeout(IDLE * 60, asking).await.expect("the connection ends");
}

#[tokio::test]
async fn a_device_has_its_places_and_the_next_query_fails_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let at = socket.local_addr().expect("bound");
    let places = Arc::new(());
    let admission: Admission = Arc::new(move |from| {
        assert!(from.is_loopback());
        (Arc::strong_count(&places) < 3).then(|| Box::new(places.clone()) as Place)
    });
    // Answers leave when three queries have come, and two have places.
    let far = Far { together: 3, ..Far::default() };
    let of_devices = (Arc::default(), admission);
    tokio::spawn(serve_queries_of_devices((socket, None), no_streams().await, Arc::new(far), of_devices));
    let program = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    program.connect(at).await.expect("connected");
    let mut answer = [0; 512];
    for number in 0..3 {
        program.send(&query(number)).await.expect("sent");
    }
    let len = timeout(QUERY_TIMEOUT, program.recv(&mut answer)).await.expect("at once").expect("an answer");
    assert_eq!(answer[..len], failed(2)[..]);
}
