//! The client's side: each connection of a program is a stream of its own.

use std::future::{Future, pending};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::convert::{Destination, Instance};
use crate::copying::{Broken, copy};
use crate::relay::Abort;
use crate::request::{Answer, RequestError, answer, ask};
use crate::shared::Shared;
use crate::silence::{Silence, SilenceLimit, Silent};

/// Time in which the server acknowledges a request on a stream that was ready: a round trip, and a retransmission on most paths. A server
/// that has been started again does not know the stream.
pub const ACKNOWLEDGMENT: Duration = Duration::from_millis(1500);

/// Time that a program has for its first bytes, so that they leave with its request.
const FIRST_WORDS: Duration = Duration::from_millis(5);
/// Most of them.
const FIRST_BYTES: usize = 16 * 1024;

/// Opens protected streams to the server.
pub trait Dialer: Send + Sync + 'static {
    /// The type of a stream.
    type Stream: AsyncRead + AsyncWrite + Abort + Unpin + Send + 'static;

    /// Takes a stream that is open, and on which nothing was asked for except by [`greet`]; `None` if there is none.
    fn ready(&self, _to: &Destination) -> Option<Self::Stream> {
        None
    }

    /// How long the server may take to acknowledge a request on a stream that was ready.
    fn patience(&self, _stream: &Self::Stream) -> Duration {
        ACKNOWLEDGMENT
    }

    /// Called if a stream of [`Dialer::ready`] has failed, or is silent: others may have the same reason.
    fn distrust(&self) {}

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

/// Asks a server over a new stream whether it accepts this client, and returns its instance. The stream can be asked for a destination
/// afterwards.
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

/// Bytes of a program that leave with a request.
#[derive(Clone, Copy, Debug)]
pub enum Early<'a> {
    /// The destination may get them once.
    Once(&'a [u8]),
    /// The destination may get them again, as queries of DNS.
    Repeatable(&'a [u8]),
}

impl Early<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Once(bytes) | Self::Repeatable(bytes) => bytes,
        }
    }

    fn may_be_repeated(&self) -> bool {
        match self {
            Self::Once(bytes) => bytes.is_empty(),
            Self::Repeatable(_) => true,
        }
    }
}

/// Opens a stream to `to`, sends these bytes with the request, and waits for the answer. A stream that was ready and fails, or whose request
/// the server does not acknowledge, is replaced by a new one, unless bytes that may be delivered once have left on it.
///
/// # Errors
/// The server refused, or the stream broke; it was reset.
pub async fn open<D: Dialer>(
    dialer: &D,
    to: Destination,
    early: Early<'_>,
) -> Result<Opened<D::Stream>, RequestError> {
    if let Some(asked) = over_ready(dialer, &to, early).await {
        return asked;
    }
    let stream = dialer.dial(&to).await?;
    request(dialer, stream, (to, early), None).await
}

/// The same over a stream that was ready; `None` if a new one is needed.
async fn over_ready<D: Dialer>(
    dialer: &D,
    to: &Destination,
    early: Early<'_>,
) -> Option<Result<Opened<D::Stream>, RequestError>> {
    let stream = dialer.ready(to)?;
    let limit = early.may_be_repeated().then(|| dialer.patience(&stream));
    match request(dialer, stream, (to.clone(), early), limit).await {
        Err(RequestError::Lost(error)) => {
            tracing::debug!(%error, "a stream that was ready has failed");
            dialer.distrust();
            let is_over = !early.may_be_repeated() && !has_ended_unread(&error);
            is_over.then_some(Err(error.into()))
        }
        asked => Some(asked),
    }
}

/// Whether the server has ended a stream in order before its answer: it has not read the request then ([`asked`](crate::asked)).
fn has_ended_unread(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Sends a request and waits for the answer. If the peer acknowledges nothing within `limit`, the stream counts as failed.
async fn request<D: Dialer>(
    dialer: &D,
    mut stream: D::Stream,
    (to, early): (Destination, Early<'_>),
    limit: Option<Duration>,
) -> Result<Opened<D::Stream>, RequestError> {
    let before = stream.acknowledged();
    let shared = Shared::new(&mut stream);
    let asked = async {
        ask(&mut &shared, to).await?;
        (&shared).write_all(early.bytes()).await?;
        answer(&mut &shared).await
    };
    let unacknowledged = async {
        let Some(limit) = limit else { return pending().await };
        sleep(limit).await;
        if shared.with(D::Stream::acknowledged) != before {
            pending::<()>().await;
        }
    };
    let asked = tokio::select! {
        biased;
        asked = asked => asked,
        () = unacknowledged => Err(RequestError::Lost(io::ErrorKind::TimedOut.into())),
    };
    match asked {
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

/// Joins `program` with `to` by a stream of `dialer`, optimistically: the program's first bytes leave with the request, and over a new
/// stream all that follow. A refusal becomes a reset of the program's connection, the only signal left at that time.
///
/// # Errors
/// The server refused, or a stream broke; the program's connection was reset.
pub async fn forward<D, P>(dialer: &D, program: &mut P, to: Destination) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let early = first_bytes(program).await.map_err(ForwardError::Program);
    let early = early.inspect_err(|_| program.abort())?;
    let joined = match over_ready(dialer, &to, Early::Once(&early)).await {
        Some(asked) => {
            let opened = asked.inspect_err(|_| program.abort())?;
            join(dialer, program, opened).await?
        }
        None => over_new(dialer, program, to, &early).await?,
    };
    Ok((joined.0 + early.len() as u64, joined.1))
}

/// The bytes with which a program begins; none if it waits for its destination.
async fn first_bytes(program: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES);
    // A read that is cut short has read nothing.
    if let Ok(read) = timeout(FIRST_WORDS, program.read_buf(&mut bytes)).await {
        read?;
    }
    Ok(bytes)
}

/// Joins `program` with `to` by a new stream, after its first bytes.
async fn over_new<D, P>(
    dialer: &D,
    program: &mut P,
    to: Destination,
    early: &[u8],
) -> Result<(u64, u64), ForwardError>
where
    D: Dialer,
    P: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let asked = async {
        let mut stream = dialer.dial(&to).await?;
        ask(&mut stream, to).await?;
        stream.write_all(early).await?;
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
mod tests;
