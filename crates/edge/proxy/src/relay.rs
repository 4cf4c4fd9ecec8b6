//! Joins two streams: data from one leaves on the other, and each direction ends on its own.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::copying::copy;
use crate::shared::Shared;
use crate::silence::{Silence, SilenceLimit};

/// A stream that can be aborted, so that the other side does not take it for the end of the data.
pub trait Abort {
    /// Resets it.
    fn abort(&mut self);

    /// Returns the number of bytes that the peer has acknowledged, or 0 if the stream does not count them.
    fn acknowledged(&self) -> u64 {
        0
    }

    /// Checks whether the stream has failed, without reading or writing. The failure may overtake data that has arrived: only a stream that
    /// has been read to its end is checked.
    ///
    /// # Errors
    /// It has failed.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Abort + ?Sized> Abort for &mut S {
    fn abort(&mut self) {
        (**self).abort();
    }

    fn acknowledged(&self) -> u64 {
        (**self).acknowledged()
    }

    fn check(&self) -> io::Result<()> {
        (**self).check()
    }
}

impl Abort for TcpStream {
    fn abort(&mut self) {
        // A socket that is already gone has no linger time to set.
        let _ = self.set_zero_linger();
    }

    fn check(&self) -> io::Result<()> {
        // On Linux, SO_ERROR also holds errors that the connection survives, such as EHOSTUNREACH. Only a connection that is over has no peer.
        if self.peer_addr().is_ok() {
            return Ok(());
        }
        self.take_error()?.map_or(Ok(()), Err)
    }
}

impl Abort for plait::Stream {
    fn abort(&mut self) {
        Self::abort(self);
    }

    fn acknowledged(&self) -> u64 {
        self.status().map_or(0, |status| status.bytes_delivered())
    }

    fn check(&self) -> io::Result<()> {
        match pin!(self.closed()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => Ok(()),
        }
    }
}

/// Copies until both directions have ended and returns the bytes each carried, `a` to `b` first. A failure on
/// one side becomes a reset on both: a broken stream must never look like a complete one. Once one direction has ended, silence beyond the
/// limit is such a failure. So is the loss of `a`, a client or a program, after its end in order. The loss of `b`, the service, after its end is
/// none until `a` writes.
///
/// # Errors
/// One side failed, or was silent for too long ([`Silent`](crate::silence::Silent) is then the source).
pub async fn relay<A, B>(a: &mut A, b: &mut B, limit: &SilenceLimit) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Abort + Unpin,
    B: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let result = relay_shared(&Shared::new(a), &Shared::new(b), limit).await;
    if result.is_err() {
        a.abort();
        b.abort();
    }
    result
}

async fn relay_shared<A, B>(
    a: &Shared<'_, A>,
    b: &Shared<'_, B>,
    limit: &SilenceLimit,
) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Abort + Unpin,
    B: AsyncRead + AsyncWrite + Abort + Unpin,
{
    let silence = Silence::new(limit);
    let (a_has_ended, b_has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let there = async {
        let copied = copy(a, &mut &*b, &silence).await?;
        let ended = (&*b).shutdown().await;
        // A service that has ended before may be gone by now.
        if !b_has_ended.load(Ordering::Relaxed) {
            ended?;
        }
        a_has_ended.store(true, Ordering::Relaxed);
        silence.on_half_closed();
        Ok(copied)
    };
    let back = async {
        let copied = copy(b, &mut &*a, &silence).await?;
        (&*a).shutdown().await?;
        b_has_ended.store(true, Ordering::Relaxed);
        silence.on_half_closed();
        Ok(copied)
    };
    let acknowledged = || a.with(A::acknowledged) + b.with(B::acknowledged);
    let check = || -> io::Result<()> {
        if a_has_ended.load(Ordering::Relaxed) {
            a.with(A::check)?;
        }
        // The kernel of a service forgets a closed connection after a minute, and then resets it. What the service has sent before its end
        // may still be on its way to the client.
        Ok(())
    };
    tokio::select! {
        biased;
        joined = async { tokio::try_join!(there, back) } => joined,
        silent = silence.too_long(acknowledged, check) => Err(io::Error::new(io::ErrorKind::TimedOut, silent?)),
    }
}

#[cfg(test)]
impl Abort for tokio::io::DuplexStream {
    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, pause, resume, sleep};

    use super::*;
    use crate::silence::Silent;

    const LIMIT: Duration = Duration::from_secs(300);

    /// A client and a service, joined.
    fn joined(limit: Option<Duration>) -> (DuplexStream, DuplexStream, JoinHandle<io::Result<(u64, u64)>>) {
        let (client, mut a) = duplex(1000);
        let (service, mut b) = duplex(1000);
        let limit = SilenceLimit::new(limit);
        let relaying = tokio::spawn(async move { relay(&mut a, &mut b, &limit).await });
        (client, service, relaying)
    }

    /// The time until both were reset because of silence.
    async fn reset_after(relaying: JoinHandle<io::Result<(u64, u64)>>) -> Duration {
        let begun = Instant::now();
        let error = relaying.await.expect("no panic").expect_err("silence");
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        assert_eq!(source, Some(&Silent(LIMIT)), "{error}");
        begun.elapsed()
    }

    async fn is_open(stream: &mut DuplexStream) -> bool {
        let mut byte = [0];
        let mut buffer = tokio::io::ReadBuf::new(&mut byte);
        poll_fn(|context| {
            Poll::Ready(AsyncRead::poll_read(Pin::new(stream), context, &mut buffer).is_pending())
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_never_answers_a_client_that_has_ended_loses_the_connection() {
        let (mut client, mut service, relaying) = joined(Some(LIMIT));
        client.write_all(b"GET /").await.expect("room");
        client.shutdown().await.expect("half-closed");
        let took = reset_after(relaying).await;
        assert!((300..302).contains(&took.as_secs()), "{took:?}");
        let mut got = Vec::new();
        service.read_to_end(&mut got).await.expect("an end");
        assert_eq!(got, b"GET /");
        // A client that does not end after its service loses it, too.
        let (_client, mut service, relaying) = joined(Some(LIMIT));
        service.shutdown().await.expect("half-closed");
        let took = reset_after(relaying).await;
        assert!((300..302).contains(&took.as_secs()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_after_a_half_close_arrives_and_each_part_of_it_restarts_the_time() {
        let (mut client, mut service, relaying) = joined(Some(LIMIT));
        client.shutdown().await.expect("half-closed");
        for _ in 0..3 {
            sleep(LIMIT - Duration::from_secs(5)).await;
            service.write_all(b"part ").await.expect("room");
        }
        drop(service);
        let mut got = String::new();
        client.read_to_string(&mut got).await.expect("an answer");
        assert_eq!(got, "part part part ");
        assert_eq!(relaying.await.expect("no panic").expect("in order"), (0, 15));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_slowly_restarts_the_time_with_each_piece() {
        let (mut client, mut service, relaying) = joined(Some(LIMIT));
        client.shutdown().await.expect("half-closed");
        tokio::spawn(async move { service.write_all(&[7; 4000]).await });
        for _ in 0..4 {
            sleep(LIMIT - Duration::from_secs(5)).await;
            client.read_exact(&mut [0; 1000]).await.expect("open");
        }
        assert_eq!(relaying.await.expect("no panic").expect("in order"), (0, 4000));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_no_limit_while_both_directions_are_open_or_where_none_was_set() {
        let (mut client, mut service, _relaying) = joined(Some(LIMIT));
        sleep(100 * LIMIT).await;
        assert!(is_open(&mut client).await && is_open(&mut service).await);
        let (mut client, mut service, _relaying) = joined(None);
        client.shutdown().await.expect("half-closed");
        sleep(100 * LIMIT).await;
        assert!(is_open(&mut client).await);
        service.write_all(b"late").await.expect("open");
        client.read_exact(&mut [0; 4]).await.expect("the answer");
    }

    /// Both ends of a connection of the kernel.
    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(at), listener.accept());
        (near.expect("connected"), far.expect("connected").0)
    }

    #[tokio::test]
    async fn a_slow_reader_gets_every_byte_that_came_before_the_reset_of_the_service() {
        const ANSWER: usize = 50_000;
        let (mut client, mut near) = duplex(1000);
        let (mut service, mut far) = sockets().await;
        let limit = SilenceLimit::new(None);
        let relaying = tokio::spawn(async move { relay(&mut near, &mut far, &limit).await });
        client.shutdown().await.expect("half-closed");
        assert_eq!(service.read(&mut [0]).await.expect("open"), 0, "the end has arrived");
        service.write_all(&[7; ANSWER]).await.expect("room");
        client.read_exact(&mut [0; 10_000]).await.expect("the first part");
        service.set_zero_linger().expect("a socket");
        drop(service);
        // The clock jumps over some checks.
        pause();
        sleep(Duration::from_secs(60)).await;
        resume();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("the rest");
        assert_eq!(rest.len(), ANSWER - 10_000);
        let error = relaying.await.expect("no panic").expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }

    #[tokio::test]
    async fn a_service_that_is_gone_after_its_end_cuts_nothing_that_the_client_has_not_read() {
        const ANSWER: usize = 1_000_000;
        let ((mut client, mut near), (mut service, mut far)) = (sockets().await, sockets().await);
        let limit = SilenceLimit::new(Some(LIMIT));
        let relaying = tokio::spawn(async move { relay(&mut near, &mut far, &limit).await });
        service.write_all(&vec![7; ANSWER]).await.expect("room");
        service.shutdown().await.expect("half-closed");
        sleep(Duration::from_millis(300)).await;
        // A keepalive of the server gets this answer, a minute after the service has closed.
        service.set_zero_linger().expect("a socket");
        drop(service);
        pause();
        sleep(Duration::from_secs(60)).await;
        assert!(!relaying.is_finished());
        resume();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.expect("every byte, and the end");
        assert_eq!(got.len(), ANSWER);
        client.shutdown().await.expect("open");
        assert_eq!(relaying.await.expect("no panic").expect("in order"), (0, ANSWER as u64));
    }

    #[tokio::test]
    async fn a_reset_of_the_end_that_is_not_read_any_more_ends_both() {
        let (mut client, mut a) = sockets().await;
        let (mut service, mut b) = duplex(1000);
        let limit = SilenceLimit::new(None);
        let relaying = tokio::spawn(async move { relay(&mut a, &mut b, &limit).await });
        client.shutdown().await.expect("half-closed");
        assert_eq!(service.read(&mut [0]).await.expect("open"), 0, "the end has arrived");
        client.set_zero_linger().expect("a socket");
        drop(client);
        // The clock jumps to the next check.
        pause();
        let error = relaying.await.expect("no panic").expect_err("a reset");
        assert!(
            matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
            "{error}"
        );
    }
}
