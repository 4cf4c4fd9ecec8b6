//! Queries over TCP (RFC 7766): of programs that got a cut answer, and of those that ask so at once.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::{Asker, Door, IDLE, Query};

/// Most connections at a time; more wait in the kernel.
const MAX_STREAMS: usize = 1024;
/// Most queries of a connection that wait for their answers; more wait in the kernel.
const MAX_IN_FLIGHT: usize = 64;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers the queries over all connections to `listener`.
pub(super) async fn accept_all(listener: TcpListener, door: &Arc<Door>, queue: &Sender<Query>) {
    let mut streams = JoinSet::new();
    loop {
        let has_room = streams.len() < MAX_STREAMS;
        tokio::select! {
            Some(_) = streams.join_next() => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, from)) => {
                    // It is closed at once if its device has too many.
                    let Ok(place) = door.admit(from.ip()) else { continue };
                    let (door, queue) = (Arc::clone(door), queue.clone());
                    streams.spawn(async move {
                        let _place = place;
                        if let Err(error) = serve((stream, from.ip()), &door, &queue).await {
                            tracing::debug!(%error, "a connection with DNS queries has ended early");
                        }
                    });
                }
                // Most likely out of descriptors: the program waits until some are free.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection with DNS queries");
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

/// Answers the queries of one connection until the program ends it, or it is idle: for a while, no query was complete and none waited. Parts
/// of a query do not count. The program has the same time to take an answer.
async fn serve(
    (mut stream, peer): (TcpStream, IpAddr),
    door: &Door,
    queue: &Sender<Query>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.split();
    let (sender, mut answers) = mpsc::channel::<Vec<u8>>(MAX_IN_FLIGHT);
    let (mut got, mut in_flight, mut has_ended) = (Vec::new(), 0, false);
    let mut idle_until = Instant::now() + IDLE;
    loop {
        while in_flight < MAX_IN_FLIGHT
            && let Some(len) = got.first_chunk().map(|len| 2 + usize::from(u16::from_be_bytes(*len)))
            && got.len() >= len
        {
            let message: Vec<u8> = got.drain(..len).skip(2).collect();
            in_flight += usize::from(door.take(&message, Asker::Stream(sender.clone(), peer), queue).await);
        }
        if has_ended && in_flight == 0 {
            return writer.shutdown().await;
        }
        let has_room = !has_ended && in_flight < MAX_IN_FLIGHT;
        tokio::select! {
            read = reader.read_buf(&mut got), if has_room => has_ended = read? == 0,
            Some(answer) = answers.recv() => {
                in_flight -= 1;
                // A longer one is not an answer: lengths have two bytes.
                let Ok(len) = u16::try_from(answer.len()) else { continue };
                let bytes = [&len.to_be_bytes()[..], &answer].concat();
                timeout(IDLE, writer.write_all(&bytes)).await??;
                idle_until = Instant::now() + IDLE;
            }
            () = sleep_until(idle_until), if in_flight == 0 => return writer.shutdown().await,
        }
    }
}
