//! The server's side of a stream until its request has come.
//!
//! A client may greet first: it asks for no destination, and is told that the server accepts it. Its stream then waits for a request, which
//! costs no handshake any more. A stream that ends in order without an answer has had no request that was read: a client may repeat it.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::convert::{Destination, ErrorCode, Instance, MAX_MESSAGE, Message, Parsed};
use crate::relay::Abort;
use crate::request;
use crate::serve::{Outcome, Service};

/// Time limit for a client's request, or its greeting.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a forwarder waits for the first bytes. After it, the client counts as one that listens first: a
/// request comes in the first flight, at worst after some retransmissions.
const FIRST_WORDS: Duration = Duration::from_secs(3);
/// Time for the rest of a client's data, before the stream is closed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// For a destination; with the bytes behind the request.
    For(Destination, Vec<u8>),
    /// None: these bytes, or silence, are for the service of a forwarder.
    Speaks(Vec<u8>),
    /// None: the client was greeted, and the stream has ended, or failed, before a request.
    Nothing,
    /// One that makes no sense; the client was told.
    Nonsense,
}

/// Waits for the request of a stream, and answers greetings before it. `wait` is called once, after the first greeting: it returns a future
/// that completes when the stream has waited for long enough, or `None` if it may not wait.
///
/// # Errors
/// The stream failed before a greeting, or the client was silent for too long; it was reset then.
pub async fn asked<S, F>(
    stream: &mut S,
    service: &Service,
    instance: Option<Instance>,
    wait: impl FnOnce() -> Option<F>,
) -> io::Result<Asked>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
    F: Future<Output = ()>,
{
    let first = match service {
        Service::Forward(_) => opening(stream).await?,
        Service::Proxy { .. } => match timeout(REQUEST_TIMEOUT, next(stream, Vec::new())).await {
            Ok(next) => next?,
            Err(_) => {
                stream.abort();
                return Err(io::ErrorKind::TimedOut.into());
            }
        },
    };
    let Asked::For(Destination::Nowhere, bytes) = first else { return Ok(first) };
    request::reply(stream, Ok(instance)).await?;
    if let Some(over) = wait() {
        tokio::select! {
            biased;
            asked = later(stream, bytes, instance) => return Ok(asked.unwrap_or_else(|error| {
                tracing::debug!(%error, "a connection has failed before its request");
                Asked::Nothing
            })),
            () = pin!(over) => {}
        }
    }
    stream.shutdown().await?;
    drain(stream).await;
    Ok(Asked::Nothing)
}

/// Waits for the request of a client that was greeted.
async fn later<S>(stream: &mut S, mut bytes: Vec<u8>, instance: Option<Instance>) -> io::Result<Asked>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match next(stream, bytes).await {
            Ok(Asked::For(Destination::Nowhere, rest)) => {
                request::reply(stream, Ok(instance)).await?;
                bytes = rest;
            }
            Ok(asked) => return Ok(asked),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                stream.shutdown().await?;
                return Ok(Asked::Nothing);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The next request; `bytes` of it were read before.
async fn next<S>(stream: &mut S, bytes: Vec<u8>) -> io::Result<Asked>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = request::request_after(stream, bytes).await?;
    Ok(request.map_or(Asked::Nonsense, |(to, first)| Asked::For(to, first)))
}

/// The first words of a client of a forwarder.
async fn opening(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
    let mut bytes = Vec::with_capacity(MAX_MESSAGE);
    loop {
        match Message::parse(&bytes) {
            Parsed::Message(Message::Connect(to), len) => return Ok(Asked::For(to, bytes.split_off(len))),
            Parsed::Message(Message::Connected(_) | Message::Failed(_), _) | Parsed::Invalid(_) => {
                return Ok(Asked::Speaks(bytes));
            }
            Parsed::Incomplete => {}
        }
        match timeout(FIRST_WORDS, stream.read_buf(&mut bytes)).await {
            Ok(Ok(1..)) => {}
            Ok(Err(error)) => return Err(error),
            Ok(Ok(0)) | Err(_) => return Ok(Asked::Speaks(bytes)),
        }
    }
}

/// Tells a client that it is refused, and ends the stream.
///
/// # Errors
/// The stream failed.
pub async fn refuse<S>(stream: &mut S, code: ErrorCode) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    request::reply(stream, Err(code)).await?;
    stream.shutdown().await?;
    drain(stream).await;
    Ok(())
}

/// Ends a stream whose request has come while its client has as many connections as it may have.
///
/// # Errors
/// The stream failed.
pub async fn turn_away<S>(stream: &mut S, asked: Asked) -> io::Result<Outcome>
where
    S: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let code = ErrorCode::ResourceExceeded;
    let destination = match asked {
        Asked::For(destination, _) => {
            refuse(stream, code).await?;
            destination.to_string()
        }
        // A client that has not asked does not expect an answer.
        Asked::Speaks(_) | Asked::Nothing | Asked::Nonsense => {
            stream.abort();
            "unknown".to_owned()
        }
    };
    Ok(Outcome::Refused { destination, code })
}

/// Reads the rest of the client's data for a while: a reset because of unread bytes could overtake the end.
pub(crate) async fn drain(stream: &mut (impl AsyncRead + Unpin)) {
    let _ = timeout(LAST_WORDS, tokio::io::copy(stream, &mut tokio::io::sink())).await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::nameservers::Nameservers;
    use crate::request::{Answer, answer, ask};
    use crate::services::Services;

    const INSTANCE: Option<Instance> = Some(Instance([3; 16]));
    const LONG: Duration = Duration::from_secs(200);

    fn services() -> [Service; 2] {
        let proxy = Service::Proxy {
            rules: Vec::new(),
            nameservers: Nameservers::given([]),
            services: Services::default(),
        };
        [proxy, Service::Forward("127.0.0.1:1".parse().expect("a service"))]
    }

    /// A client whose stream may wait for this long after its greeting.
    fn client(service: Service, patience: Option<Duration>) -> (DuplexStream, JoinHandle<io::Result<Asked>>) {
        let (client, mut server) = duplex(4096);
        let wait = move || patience.map(sleep);
        (client, tokio::spawn(async move { asked(&mut server, &service, INSTANCE, wait).await }))
    }

    async fn greet(client: &mut DuplexStream) {
        ask(client, Destination::Nowhere).await.expect("room");
        let answered = answer(client).await.expect("welcome");
        assert_eq!(answered, Answer { instance: INSTANCE, first: Vec::new() });
    }

    fn web() -> Destination {
        Destination::Name("web.example".into(), 80)
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeted_stream_waits_for_its_request() {
        for service in services() {
            let (mut client, asked) = client(service, Some(LONG));
            greet(&mut client).await;
            greet(&mut client).await;
            sleep(LONG / 2).await;
            ask(&mut client, web()).await.expect("room");
            client.write_all(b"GET /").await.expect("room");
            let asked = asked.await.expect("no panic").expect("a request");
            assert!(matches!(&asked, Asked::For(to, _) if *to == web()), "{asked:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_right_behind_the_greeting_is_not_lost() {
        for service in services() {
            let (mut client, asked) = client(service, Some(LONG));
            ask(&mut client, Destination::Nowhere).await.expect("room");
            ask(&mut client, web()).await.expect("room");
            let asked = asked.await.expect("no panic").expect("a request");
            assert_eq!(asked, Asked::For(web(), Vec::new()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_waited_for_long_or_may_not_wait_ends_in_order_without_an_answer() {
        for (service, patience) in services().into_iter().zip([Some(LONG), None]) {
            let (mut client, asked) = client(service, patience);
            greet(&mut client).await;
            // The request crosses the end.
            sleep(patience.unwrap_or_default() + Duration::from_secs(1)).await;
            ask(&mut client, web()).await.expect("room");
            let error = answer(&mut client).await.expect_err("an end").to_string();
            assert!(error.contains("end of file"), "{error}");
            drop(client);
            assert_eq!(asked.await.expect("no panic").expect("in order"), Asked::Nothing);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeted_stream_that_the_client_ends_has_asked_for_nothing() {
        for service in services() {
            let (mut client, asked) = client(service, Some(LONG));
            greet(&mut client).await;
            client.shutdown().await.expect("half-closed");
            assert_eq!(client.read(&mut [0]).await.expect("open"), 0);
            assert_eq!(asked.await.expect("no panic").expect("in order"), Asked::Nothing);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_was_greeted_may_be_silent() {
        let begun = Instant::now();
        let [proxy, forwarder] = services();
        let (_silent, asked) = client(proxy, Some(LONG));
        let error = asked.await.expect("no panic").expect_err("silence");
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        let (_silent, asked) = client(forwarder, Some(LONG));
        assert_eq!(asked.await.expect("no panic").expect("it listens"), Asked::Speaks(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_makes_no_sense_after_a_greeting_is_answered() {
        for service in services() {
            let (mut client, asked) = client(service, Some(LONG));
            greet(&mut client).await;
            client.write_all(b"GET / HTTP/1.1\r\n").await.expect("room");
            assert_eq!(asked.await.expect("no panic").expect("answered"), Asked::Nonsense);
        }
    }

    #[tokio::test]
    async fn the_wait_ends_with_the_request() {
        let (mut client, mut server) = duplex(4096);
        let (place, mut freed) = tokio::sync::oneshot::channel::<()>();
        let wait = || {
            Some(async move {
                let _place = place;
                pending::<()>().await;
            })
        };
        ask(&mut client, Destination::Nowhere).await.expect("room");
        ask(&mut client, web()).await.expect("room");
        let [service, _] = services();
        asked(&mut server, &service, INSTANCE, wait).await.expect("a request");
        assert!(
            freed.try_recv().is_err_and(|error| error.to_string().contains("closed")),
            "its place is free"
        );
    }
}
