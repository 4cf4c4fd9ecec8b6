//! Standard input and output at the speed of a pipe.
//!
//! Files have no asynchronous reads and writes, so each has a thread. Blocks travel through channels of a few
//! elements: enough to keep both sides busy, few enough for back pressure.

use std::io::{self, ErrorKind, Read, Write};

use bytes::Bytes;
use plait_host::Pool;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Bytes read from standard input at a time: four super-segments of 46 times 1,408 bytes, so that blocks cut
/// from them need not be joined.
const BLOCK: usize = 4 * 64_768;
/// Blocks in a channel.
const DEPTH: usize = 4;
/// Blocks that are kept for reuse: 32 MiB, more than a connection keeps.
const MAX_SPARE: usize = 128;

/// Reads standard input: blocks, or the error. Ends at its end.
pub(crate) fn read_from(input: impl Read + Send + 'static) -> Receiver<io::Result<Bytes>> {
    let (blocks, receiver) = channel(DEPTH);
    std::thread::spawn(move || read_all(input, &blocks));
    receiver
}

/// Writes standard output: accepts blocks; the second value is ready when all are written.
pub(crate) fn write_to(
    output: impl Write + Send + 'static,
) -> (Sender<Bytes>, oneshot::Receiver<io::Result<()>>) {
    let (blocks, receiver) = channel(DEPTH);
    let (done, result) = oneshot::channel();
    std::thread::spawn(move || {
        // If the caller no longer waits for the result, it is dropped.
        let _ = done.send(write_all(output, receiver));
    });
    (blocks, result)
}

fn read_all(mut input: impl Read, blocks: &Sender<io::Result<Bytes>>) {
    let pool = Pool::new(BLOCK, MAX_SPARE);
    let mut room = pool.take();
    loop {
        let block = match input.read(room.as_mut()) {
            Ok(0) => return,
            Ok(len) => {
                let (block, rest) = room.split(len);
                room = rest.unwrap_or_else(|| pool.take());
                Ok(block)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_error = block.is_err();
        if blocks.blocking_send(block).is_err() || is_error {
            return;
        }
    }
}

fn write_all(mut output: impl Write, mut blocks: Receiver<Bytes>) -> io::Result<()> {
    while let Some(block) = blocks.blocking_recv() {
        output.write_all(&block)?;
        if blocks.is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_goes_in_comes_out_in_order() {
        let data: Vec<u8> = (0..1_000_000).map(|i| (i % 251) as u8).collect();
        let mut blocks = read_from(io::Cursor::new(data.clone()));
        let mut read = Vec::new();
        while let Some(block) = blocks.recv().await {
            read.extend_from_slice(&block.expect("memory"));
        }
        assert!(read == data);
    }

    #[tokio::test]
    async fn a_reader_that_fails_says_so_once() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(ErrorKind::Other.into())
            }
        }
        let mut blocks = read_from(Broken);
        assert!(blocks.recv().await.expect("the error").is_err());
        assert!(blocks.recv().await.is_none());
    }

    #[tokio::test]
    async fn an_output_that_is_closed_ends_the_writing() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (blocks, done) = write_to(Closed);
        blocks.send(Bytes::from_static(b"x")).await.expect("the channel is open");
        let error = done.await.expect("a result").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
