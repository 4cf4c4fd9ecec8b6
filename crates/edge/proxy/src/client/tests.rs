use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, pause, resume, sleep};

use super::*;
use crate::convert::ErrorCode;
use crate::request;

/// Every stream ends at such a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Refuses,
    Echoes,
    /// Accepts, and never sends a byte.
    Listens,
    /// Accepts and ends its direction at once.
    Ends,
}

struct Far {
    kind: Kind,
    limit: SilenceLimit,
}

impl Far {
    fn new(kind: Kind) -> Self {
        Self { kind, limit: SilenceLimit::new(Some(SilenceLimit::DEFAULT)) }
    }
}

impl Dialer for Far {
    type Stream = DuplexStream;

    async fn dial(&self, _: &Destination) -> io::Result<DuplexStream> {
        let (near, mut far) = duplex(64 * 1024);
        let kind = self.kind;
        tokio::spawn(async move {
            let (_, first) = request::request(&mut far).await.expect("a stream").expect("a request");
            if kind == Kind::Refuses {
                return request::reply(&mut far, Err(ErrorCode::NotAuthorized)).await.expect("room");
            }
            request::reply(&mut far, Ok(None)).await.expect("room");
            match kind {
                Kind::Refuses | Kind::Echoes => {}
                Kind::Listens => pending().await,
                Kind::Ends => {
                    far.shutdown().await.expect("half-closed");
                    pending::<()>().await;
                }
            }
            far.write_all(&first).await.expect("room");
            let (mut read, mut write) = tokio::io::split(far);
            tokio::io::copy(&mut read, &mut write).await.expect("copied");
            write.shutdown().await.expect("closed");
        });
        Ok(near)
    }

    fn number(&self, _: &DuplexStream) -> u64 {
        0
    }

    fn answered(&self, _: u64, _: Option<Instance>) {}

    fn silence_limit(&self) -> SilenceLimit {
        self.limit.clone()
    }

    async fn delivered(&self, _: &DuplexStream) -> io::Result<()> {
        Ok(())
    }
}

fn anywhere() -> Destination {
    Destination::Name("example.org".into(), 80)
}

/// Streams that are ready, and one that is new if they fail.
struct Stocked {
    ready: Mutex<Vec<DuplexStream>>,
    is_distrusted: AtomicBool,
    far: Far,
}

impl Stocked {
    fn with(ready: DuplexStream) -> Self {
        let far = Far::new(Kind::Echoes);
        Self { ready: Mutex::new(vec![ready]), is_distrusted: AtomicBool::new(false), far }
    }
}

impl Dialer for Stocked {
    type Stream = DuplexStream;

    fn ready(&self, _: &Destination) -> Option<DuplexStream> {
        self.ready.lock().expect("one thread").pop()
    }

    fn distrust(&self) {
        self.is_distrusted.store(true, Ordering::Relaxed);
    }

    async fn dial(&self, to: &Destination) -> io::Result<DuplexStream> {
        self.far.dial(to).await
    }

    fn number(&self, _: &DuplexStream) -> u64 {
        0
    }

    fn answered(&self, _: u64, _: Option<Instance>) {}

    fn silence_limit(&self) -> SilenceLimit {
        self.far.silence_limit()
    }

    async fn delivered(&self, _: &DuplexStream) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_request_takes_a_stream_that_is_ready() {
    let far = Far::new(Kind::Echoes);
    let dialer = Stocked::with(far.dial(&anywhere()).await.expect("a stream"));
    let mut opened = open(&dialer, anywhere(), Early::Once(b"early")).await.expect("an answer");
    let behind = 5 - opened.first.len();
    opened.stream.read_exact(&mut vec![0; behind]).await.expect("an echo");
    assert!(dialer.ready.lock().expect("one thread").is_empty());
    assert!(!dialer.is_distrusted.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_ready_stream_that_ends_unread_fails_or_is_silent_is_replaced_by_a_new_one() {
    let (ended, mut far_end) = duplex(1000);
    far_end.shutdown().await.expect("ended in order");
    let (failed, gone) = duplex(1000);
    drop(gone);
    let (silent, _kept) = duplex(1000);
    let (again, gone) = duplex(1000);
    drop(gone);
    for (ready, early) in [
        (ended, Early::Once(b"early")),
        (failed, Early::Once(b"")),
        (silent, Early::Once(b"")),
        (again, Early::Repeatable(b"query")),
    ] {
        let dialer = Stocked::with(ready);
        let begun = Instant::now();
        let mut opened = open(&dialer, anywhere(), early).await.expect("over a new stream");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        opened.stream.write_all(b"GET /").await.expect("room");
        let behind = early.bytes().len() + 5 - opened.first.len();
        opened.stream.read_exact(&mut vec![0; behind]).await.expect("an echo");
        assert!(dialer.is_distrusted.load(Ordering::Relaxed), "others may have the same reason");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_of_the_program_that_may_have_been_delivered_are_not_sent_twice() {
    let (reset, gone) = duplex(1000);
    drop(gone);
    let dialer = Stocked::with(reset);
    let error = open(&dialer, anywhere(), Early::Once(b"early")).await.map(drop).expect_err("once");
    assert!(matches!(error, RequestError::Lost(_)), "{error}");
    assert!(dialer.is_distrusted.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_forward_over_a_dead_stream_takes_a_new_one_and_its_bytes_arrive_once() {
    for first in [&b""[..], b"GET /"] {
        // A server that was started again is silent; one that stops ends the stream unread.
        let (ready, mut far) = duplex(1000);
        if !first.is_empty() {
            far.shutdown().await.expect("ended in order");
        }
        let (mut near, mut program) = duplex(1000);
        near.write_all(first).await.expect("room");
        tokio::spawn(async move {
            let joined = forward(&Stocked::with(ready), &mut program, anywhere()).await;
            drop(far);
            joined
        });
        sleep(Duration::from_millis(20)).await;
        near.write_all(b" the rest").await.expect("room");
        near.shutdown().await.expect("half-closed");
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.expect("an echo");
        assert_eq!(got, [first, b" the rest"].concat());
    }
}

#[tokio::test]
async fn every_byte_comes_back_once_and_in_order_while_both_directions_flow() {
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_be_bytes).collect();
    let (mut near, program) = duplex(1000);
    tokio::spawn(async move { forward(&Far::new(Kind::Echoes), &mut { program }, anywhere()).await });
    let (mut read, mut write) = tokio::io::split(&mut near);
    let mut got = Vec::new();
    let writing = async {
        write.write_all(&sent).await.expect("room");
        write.shutdown().await.expect("half-closed");
    };
    tokio::join!(writing, async { read.read_to_end(&mut got).await.expect("an end") });
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
}

#[tokio::test]
async fn a_refusal_is_an_error_and_not_an_empty_answer() {
    let (near, mut program) = duplex(1000);
    let error = forward(&Far::new(Kind::Refuses), &mut program, anywhere()).await.expect_err("refused");
    let refused = ForwardError::Server(RequestError::Refused(ErrorCode::NotAuthorized));
    assert_eq!(error.to_string(), refused.to_string());
    drop(near);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_has_ended_and_gets_no_answer_is_reset_and_one_that_has_all_is_not() {
    for (kind, ends, complete) in [(Kind::Listens, true, false), (Kind::Ends, false, true)] {
        let (mut near, mut program) = duplex(1000);
        if ends {
            near.shutdown().await.expect("half-closed");
        }
        let begun = Instant::now();
        let error = forward(&Far::new(kind), &mut program, anywhere()).await.expect_err("silence");
        assert!(begun.elapsed() < SilenceLimit::DEFAULT + Duration::from_secs(2), "{:?}", begun.elapsed());
        let ForwardError::Silent { silent: Silent(after), is_complete } = error else { panic!("{error}") };
        assert_eq!((after, is_complete), (SilenceLimit::DEFAULT, complete));
    }
}

/// A server at this address, over the kernel's TCP.
struct Kernel(SocketAddr);

impl Dialer for Kernel {
    type Stream = TcpStream;

    async fn dial(&self, _: &Destination) -> io::Result<TcpStream> {
        TcpStream::connect(self.0).await
    }

    fn number(&self, _: &TcpStream) -> u64 {
        0
    }

    fn answered(&self, _: u64, _: Option<Instance>) {}

    fn silence_limit(&self) -> SilenceLimit {
        SilenceLimit::new(None)
    }

    async fn delivered(&self, _: &TcpStream) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_slow_program_gets_every_byte_that_came_before_the_reset_of_the_stream() {
    const ANSWER: usize = 50_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let dialer = Kernel(listener.local_addr().expect("bound"));
    let (mut near, mut program) = duplex(1000);
    let forwarding = tokio::spawn(async move { forward(&dialer, &mut program, anywhere()).await });
    near.shutdown().await.expect("half-closed");
    let (mut far, _) = listener.accept().await.expect("connected");
    request::request(&mut far).await.expect("a stream").expect("a request");
    request::reply(&mut far, Ok(None)).await.expect("room");
    assert_eq!(far.read(&mut [0]).await.expect("open"), 0, "the end has arrived");
    far.write_all(&[7; ANSWER]).await.expect("room");
    near.read_exact(&mut [0; 10_000]).await.expect("the first part");
    far.set_zero_linger().expect("a socket");
    drop(far);
    // The clock jumps over some checks.
    pause();
    sleep(Duration::from_secs(60)).await;
    resume();
    let mut rest = Vec::new();
    near.read_to_end(&mut rest).await.expect("the rest");
    assert_eq!(rest.len(), ANSWER - 10_000);
    let error = forwarding.await.expect("no panic").expect_err("a reset");
    assert!(matches!(error, ForwardError::Reset(_)), "{error}");
}
