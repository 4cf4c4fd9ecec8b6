//! Copies bytes from one stream to another, with a buffer only while there is data.
//!
//! A server has thousands of connections that are idle most of the time. A full-size buffer for each direction of each connection would be
//! most of its memory.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use plait_host::Pool;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::silence::Silence;

/// Bytes read at a time: a few super-segments.
const BUFFER: usize = 256 * 1024;
/// Buffers that are kept for later: for as many directions as are likely to carry something in the same moment.
const MAX_SPARE: usize = 16;

static BUFFERS: LazyLock<Pool> = LazyLock::new(|| Pool::new(BUFFER, MAX_SPARE));

/// The end of a copy that failed.
#[derive(Debug)]
pub(crate) enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Reading(error) | Broken::Writing(error) => error,
        }
    }
}

/// The result of one read of the source stream.
enum Passed {
    /// The stream has ended.
    End,
    /// This many bytes were read and written.
    All(usize),
    /// This many bytes were read; the given ones are not written yet.
    Some(usize, Bytes),
}

/// Copies until `from` has ended, which `to` is not told, and returns how many bytes that were. `to` has to take what is written
/// without being flushed, as sockets do. `silence` is told of each movement.
pub(crate) async fn copy(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    silence: &Silence,
) -> Result<u64, Broken> {
    let mut copied = 0;
    loop {
        match poll_fn(|context| poll_pass(&BUFFERS, context, Pin::new(&mut from), Pin::new(&mut *to))).await?
        {
            Passed::End => return Ok(copied),
            Passed::All(len) => {
                silence.on_moved();
                copied += len as u64;
            }
            Passed::Some(len, mut rest) => {
                silence.on_moved();
                while !rest.is_empty() {
                    match to.write(&rest).await.map_err(Broken::Writing)? {
                        0 => return Err(Broken::Writing(ErrorKind::WriteZero.into())),
                        written => rest.advance(written),
                    }
                    silence.on_moved();
                }
                copied += len as u64;
            }
        }
    }
}

/// Reads into a buffer that is given back at once, unless `to` does not take what a good part of it is full of.
fn poll_pass(
    buffers: &Pool,
    context: &mut Context<'_>,
    from: Pin<&mut impl AsyncRead>,
    mut to: Pin<&mut impl AsyncWrite>,
) -> Poll<Result<Passed, Broken>> {
    let mut buffer = buffers.take();
    let mut room = ReadBuf::new(buffer.as_mut());
    ready!(from.poll_read(context, &mut room)).map_err(Broken::Reading)?;
    let (len, mut written) = (room.filled().len(), 0);
    while written < len {
        match to.as_mut().poll_write(context, &buffer.as_ref()[written..len]) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(Broken::Writing(ErrorKind::WriteZero.into()))),
            Poll::Ready(Ok(more)) => written += more,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Writing(error))),
            Poll::Pending => {
                let (bytes, _) = buffer.split(len);
                return Poll::Ready(Ok(Passed::Some(len, bytes.slice(written..))));
            }
        }
    }
    Poll::Ready(Ok(if len == 0 { Passed::End } else { Passed::All(len) }))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::silence::SilenceLimit;

    fn unlimited() -> Silence {
        Silence::new(&SilenceLimit::new(None))
    }

    fn numbers(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[tokio::test]
    async fn what_goes_in_comes_out_whatever_fits_at_a_time() {
        for (len, fits) in [(1, 1), (1000, 7), (BUFFER, 100_000), (3 * BUFFER + 17, BUFFER), (1 << 20, 1000)]
        {
            let sent = numbers(len);
            let (mut near, mut far) = duplex(fits);
            let copying = async {
                let copied = copy(&sent[..], &mut near, &unlimited()).await.expect("open");
                near.shutdown().await.expect("open");
                copied
            };
            let mut got = Vec::new();
            let (copied, read) = tokio::join!(copying, far.read_to_end(&mut got));
            assert_eq!((copied, read.expect("an end")), (len as u64, len));
            assert!(got == sent, "{len} bytes, {fits} at a time");
        }
    }

    /// Never has anything, or fails; keeps in mind what it was to read into.
    struct Reader {
        room: *mut u8,
        fails: bool,
    }

    impl AsyncRead for Reader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.room = room.initialize_unfilled().as_mut_ptr();
            if self.fails { Poll::Ready(Err(ErrorKind::Other.into())) } else { Poll::Pending }
        }
    }

    #[test]
    fn all_copies_that_wait_for_data_share_one_buffer() {
        let pool = Pool::new(BUFFER, MAX_SPARE);
        let mut context = Context::from_waker(Waker::noop());
        let rooms = [(); 3].map(|()| {
            let mut reader = Reader { room: std::ptr::null_mut(), fails: false };
            let polled = poll_pass(&pool, &mut context, Pin::new(&mut reader), Pin::new(&mut Vec::new()));
            assert!(polled.is_pending());
            reader.room
        });
        assert!(!rooms[0].is_null() && rooms.iter().all(|room| *room == rooms[0]));
    }

    #[tokio::test]
    async fn it_is_told_which_end_has_failed() {
        let (mut near, far) = duplex(10);
        drop(far);
        assert!(matches!(copy(&[1][..], &mut near, &unlimited()).await, Err(Broken::Writing(_))));
        let failing = Reader { room: std::ptr::null_mut(), fails: true };
        assert!(matches!(copy(failing, &mut Vec::new(), &unlimited()).await, Err(Broken::Reading(_))));
    }
}
