//! The client's side: each connection of a program is a stream of its own.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::convert::{Destination, Instance};
use crate::copying::{Broken, copy};
use crate::relay::Abort;
use crate::request::{Answer, RequestError, answer, ask};
use crate::shared::Shared;
use crate::silence::{Silence, SilenceLimit, Silent};

/// Opens protected streams to the server.
pub trait Dialer: Send + Sync + 'static {
    /// The type of a stream.
    type Stream: AsyncRead + AsyncWrite + Abort + Unpin + Send + 'static;

    /// Opens a stream for a connection to `to`. It need not send the destination: the caller sends the request.
    fn dial(&self, to: &Destination) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// The number of a stream for [`Dialer::answered`].
    fn number(&self, stream: &Self::Stream) -> u64;

    /// Called when this instance of the server has answered the request on the stream with that number.
    fn answered(&self, number: u64, instance: Option<Instance>);

    /// The time limit for silence on connections of which one direction has ended.
    fn silence_limit(&self) -> SilenceLimit;

    /// Waits until both directions have ended and the server has everything.
    fn delivered(&self, stream: &Self::Stream) -> impl Future<Output = io::Result<()>> + Send;
}

/// The reason of an early end of a program's connection.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The program itself aborted it.
    #[error("the program broke its connection off: {0}")]
    Program(io::Error),
    /// The server refused, or its stream broke.
    #[error(transparent)]
    Server(#[from] RequestError),
    /// The server reset an answered connection, as it does for a destination that resets it.
    #[error("the destination or the server has reset the connection: {0}")]
    Reset(io::Error),
    /// One direction has ended, and the other one was silent for too long.
    #[error("{silent}")]
    Silent {
        /// The time limit.
        silent: Silent,
        /// Whether the program has got all data: it is not reset then, since it may still be reading.
        is_complete: bool,
    },
}

impl From<io::Error> for ForwardError {
    fn from(error: io::Error) -> Self {
        Self::Server(error.into())
    }
}

/// Asks a server over a new stream whether it accepts this client, and returns its instance.
///
/// # Errors
/// The server refuses, or the stream failed.
pub async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<Option<Instance>, RequestError> {
    ask(stream, Destination::Nowhere).await?;
    answer(stream).await.map(|answered| answered.instance)
}

/// A stream to a destination that the server has connected to.
#[derive(Debug)]
pub struct Opened<S> {
    /// The stream.
    pub stream: S,
    /// Bytes that came with the answer.
    pub first: Vec<u8>,
}

/// Opens a stream to `to`, sends these bytes with the request, and waits for the answer.
///
/// # Errors
/// The server refused, or the stream broke; it was reset.
pub async fn open<D: Dialer>(
    dialer: &D,
    to: Destination,
    early: &[u8],
) -> Result<Opened<D::Stream>, RequestError> {
    let mut stream = dialer.dial(&to).await?;
    let asked = async {
        ask(&mut stream, to).await?;
        stream.write_all(early).await?;
        answer(&mut stream).await
    };
    match asked.await {
        Ok(Answer { instance, first }) => {
            dialer.answered(dialer.number(&stream), instance);
            Ok(Opened { stream, first })
        }
        Err(error) => {
            stream.abort();
            Err(error)
        }
    }
}

/// Joins `program` with its opened stream; returns the bytes from and to it.
///
/// # Errors
/// A stream broke; the program's connection was reset.
pub async fn join<D, P>(
    dialer: &D,
    program: &mut P,
    opened: Opened<D::Stream>,
) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let Opened { mut stream, first } = opened;
    let first = async |_: &Shared<'_, D::Stream>| Ok(first);
    let joined = relay_both(program, &mut stream, first, &dialer.silence_limit()).await;
    finish(dialer, program, stream, joined).await
}

/// Joins `program` with `to` by a stream of `dialer`, optimistically: the program's data leaves with the request. A
/// refusal becomes a reset of the program's connection, the only signal left at that time.
///
/// # Errors
/// The server refused, or a stream broke; the program's connection was reset.
pub async fn forward<D, P>(dialer: &D, program: &mut P, to: Destination) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let asked = async {
        let mut stream = dialer.dial(&to).await?;
        ask(&mut stream, to).await?;
        io::Result::Ok(stream)
    };
    let mut stream = asked.await.inspect_err(|_| program.abort())?;
    let number = dialer.number(&stream);
    let answered = async |mut stream: &Shared<'_, D::Stream>| {
        let Answer { instance, first } = answer(&mut stream).await?;
        dialer.answered(number, instance);
        Ok(first)
    };
    let joined = relay_both(program, &mut stream, answered, &dialer.silence_limit()).await;
    finish(dialer, program, stream, joined).await
}

/// Ends both connections: in order, or by resets on both sides.
async fn finish<D, P>(
    dialer: &D,
    program: &mut P,
    mut stream: D::Stream,
    joined: Result<(u64, u64), ForwardError>,
) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: Abort,
{
    let joined = match joined {
        Ok(bytes) => dialer.delivered(&stream).await.map(|()| bytes).map_err(after_answer),
        Err(error) => {
            stream.abort();
            Err(error)
        }
    };
    joined.inspect_err(|error| {
        if !matches!(error, ForwardError::Silent { silent: _, is_complete: true }) {
            program.abort();
        }
    })
}

/// The reason of the failure of a stream on which the server has answered.
fn after_answer(error: io::Error) -> ForwardError {
    match error.kind() {
        io::ErrorKind::ConnectionReset => ForwardError::Reset(error),
        _ => error.into(),
    }
}

/// Copies both ways; `begin` waits for the first message on the stream, and returns the program's bytes after it.
async fn relay_both<P, S>(
    program: &mut P,
    stream: &mut S,
    begin: impl AsyncFnOnce(&Shared<'_, S>) -> Result<Vec<u8>, RequestError>,
    limit: &SilenceLimit,
) -> Result<(u64, u64), ForwardError>
where
    P: AsyncRead + AsyncWrite + Abort + Unpin,
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let silence = Silence::new(limit);
    let is_answered = AtomicBool::new(false);
    let (is_sent, is_complete) = (AtomicBool::new(false), AtomicBool::new(false));
    let broken = |error: io::Error| match is_answered.load(Ordering::Relaxed) {
        true => after_answer(error),
        false => error.into(),
    };
    let (program, stream) = (&Shared::new(program), &Shared::new(stream));
    let (mut program_out, mut stream_out) = (program, stream);
    let upload = async {
        let sent = match copy(program, &mut stream_out, &silence).await {
            Ok(sent) => sent,
            Err(Broken::Reading(error)) => return Err(ForwardError::Program(error)),
            Err(Broken::Writing(error)) => return Err(broken(error)),
        };
        stream_out.shutdown().await.map_err(broken)?;
        is_sent.store(true, Ordering::Relaxed);
        silence.on_half_closed();
        Ok(sent)
    };
    let download = async {
        let first = begin(stream).await?;
        is_answered.store(true, Ordering::Relaxed);
        program_out.write_all(&first).await.map_err(ForwardError::Program)?;
        let received = match copy(stream, &mut program_out, &silence).await {
            Ok(received) => received,
            Err(Broken::Reading(error)) => return Err(broken(error)),
            Err(Broken::Writing(error)) => return Err(ForwardError::Program(error)),
        };
        // A program that has ended by now has got everything.
        let _ = program_out.shutdown().await;
        is_complete.store(true, Ordering::Relaxed);
        silence.on_half_closed();
        Ok(received + first.len() as u64)
    };
    let check = || -> Result<(), ForwardError> {
        if is_sent.load(Ordering::Relaxed) {
            program.with(P::check).map_err(ForwardError::Program)?;
        }
        if is_complete.load(Ordering::Relaxed) {
            stream.with(S::check).map_err(broken)?;
        }
        Ok(())
    };
    tokio::select! {
        biased;
        joined = async { tokio::try_join!(upload, download) } => joined,
        silent = silence.too_long(|| stream.with(S::acknowledged), check) => {
            Err(ForwardError::Silent { silent: silent?, is_complete: is_complete.load(Ordering::Relaxed) })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
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
                    Kind::Listens => std::future::pending().await,
                    Kind::Ends => {
                        far.shutdown().await.expect("half-closed");
                        std::future::pending::<()>().await;
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
            assert!(
                begun.elapsed() < SilenceLimit::DEFAULT + Duration::from_secs(2),
                "{:?}",
                begun.elapsed()
            );
            let ForwardError::Silent { silent: Silent(after), is_complete } = error else {
                panic!("{error}")
            };
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
}
