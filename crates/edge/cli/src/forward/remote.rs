//! `-R`: ports of the server that lead to destinations here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use plait_proxy::client::{Dialer, Opened, join};
use plait_proxy::convert::{Destination, ErrorCode};
use plait_proxy::direct::connect_directly;
use plait_proxy::relay::Abort;
use plait_proxy::remote::wait_for_connection;
use plait_proxy::request::{self, RequestError, answer, ask};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::local::{destination, words};
use crate::dial::Watched;
use crate::late_dial::LateDial;
use crate::output::say;

const WRONG: &str = "not [ADDR:]PORT:HOST:PORT, as in 8080:127.0.0.1:80 or [::]:8080:web.example:80";
/// Streams that wait for connections to a port. While one is replaced, which takes some round trips, the others serve.
const WAITING: usize = 4;
/// Pauses between two attempts: the shortest, which doubles each time, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stream that has waited for less is not replaced at once: the server may be stopping.
const SHORT: Duration = Duration::from_secs(10);

/// A port of the server, and a destination here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Remote {
    at: SocketAddr,
    to: Destination,
}

/// The end of a stream that has waited.
enum Waited {
    /// A connection from this address.
    Connection(Box<Watched>, SocketAddr),
    /// The server has ended it in order.
    Over,
    /// The server does not listen.
    Refused(ErrorCode),
    Failed(RequestError),
}

impl Remote {
    /// Lets connections to the port of the server come here. Ready only with an error: the server does not allow it.
    pub(super) async fn serve(self, dial: Arc<LateDial>, room: Arc<Semaphore>) -> anyhow::Error {
        let (listening, mut listens) = mpsc::channel(1);
        let mut waiting = JoinSet::new();
        let (mut has_listened, mut pause) = (false, Duration::ZERO);
        loop {
            // The first stream learns whether the server allows it.
            while waiting.len() < if has_listened { WAITING } else { 1 } {
                waiting.spawn(wait(self.at, dial.clone(), pause, listening.clone()));
            }
            let waited = tokio::select! {
                Some(()) = listens.recv() => {
                    pause = Duration::ZERO;
                    if !has_listened {
                        has_listened = true;
                        self.announce();
                    }
                    continue;
                }
                Some(waited) = waiting.join_next() => waited,
            };
            match waited {
                Ok(Waited::Connection(stream, from)) => {
                    let (to, dial, room) = (self.to.clone(), dial.clone(), room.clone());
                    tokio::spawn(connect(*stream, (from, to), dial, room));
                }
                Ok(Waited::Over) => {}
                Ok(Waited::Refused(code)) if !has_listened => {
                    return anyhow!("the server does not listen on {} for this client: {code}", self.at);
                }
                Ok(Waited::Refused(code)) => {
                    tracing::warn!(at = %self.at, "the server does not listen any more: {code}");
                    pause = (2 * pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                }
                Ok(Waited::Failed(error)) => {
                    tracing::info!(at = %self.at, "a stream for connections of the server has failed: {error}");
                    pause = (2 * pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                }
                // It has panicked, which is reported already.
                Err(_) => pause = LONGEST_PAUSE,
            }
        }
    }

    fn announce(&self) {
        // For people, and for scripts that wait for it.
        say(&format!("forwarding {} of the server to {}", self.at, self.to));
        if !self.at.ip().is_loopback() {
            say(&format!("warning: every host that reaches {} of the server can use it", self.at));
        }
    }
}

/// Lets a stream wait for one connection.
async fn wait(at: SocketAddr, dial: Arc<LateDial>, pause: Duration, listening: mpsc::Sender<()>) -> Waited {
    sleep(pause).await;
    let to = Destination::Remote(at);
    let asked = async {
        let mut stream = dial.dial(&to).await?;
        ask(&mut stream, to.clone()).await?;
        let answered = answer(&mut stream).await?;
        Ok((stream, answered))
    };
    let (mut stream, answered) = match asked.await {
        Ok(asked) => asked,
        Err(RequestError::Refused(code)) => return Waited::Refused(code),
        Err(error) => return Waited::Failed(error),
    };
    dial.answered(dial.number(&stream), answered.instance);
    let begun = Instant::now();
    let _ = listening.send(()).await;
    match wait_for_connection(&mut stream, answered.first).await {
        Ok(Some(from)) => Waited::Connection(Box::new(stream), from),
        Ok(None) => {
            let _ = stream.shutdown().await;
            let _ = dial.delivered(&stream).await;
            if begun.elapsed() < SHORT {
                sleep(SHORTEST_PAUSE).await;
            }
            Waited::Over
        }
        Err(error) => {
            stream.abort();
            Waited::Failed(error.into())
        }
    }
}

/// Joins a connection of the server with its destination here.
async fn connect(
    mut stream: Watched,
    (from, to): (SocketAddr, Destination),
    dial: Arc<LateDial>,
    room: Arc<Semaphore>,
) {
    // It is never closed.
    let Ok(_place) = room.acquire_owned().await else { return };
    let destination = to.to_string();
    let connected = match connect_directly(&to).await {
        Ok(connected) => request::reply(&mut stream, Ok(None)).await.map(|()| connected).map_err(Into::into),
        Err(error) => {
            let code = if let RequestError::Refused(code) = error { code } else { ErrorCode::NetworkFailure };
            let _ = request::reply(&mut stream, Err(code)).await;
            let _ = stream.shutdown().await;
            let _ = dial.delivered(&stream).await;
            Err(error)
        }
    };
    let mut local = match connected {
        Ok(local) => local,
        Err(error) => {
            return tracing::info!(
                destination,
                "a connection to the server has no destination here: {error}"
            );
        }
    };
    tracing::debug!(%from, destination, "a connection to the server");
    match join(&*dial, &mut local, Opened { stream, first: Vec::new() }).await {
        Ok((sent, received)) => tracing::info!(destination, sent, received, "a connection has ended"),
        Err(error) => tracing::info!(destination, %error, "a connection has ended early"),
    }
}

/// As for `-L`; both ends are ports.
impl FromStr for Remote {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = words(text).ok_or(WRONG)?;
        let (address, port, rest) = match words[..] {
            [port, ref rest @ ..] if rest.len() == 2 => (IpAddr::V4(Ipv4Addr::LOCALHOST), port, rest),
            [address, port, ref rest @ ..] if rest.len() == 2 => {
                (address.parse().map_err(|_| WRONG)?, port, rest)
            }
            _ => return Err(WRONG),
        };
        let port = port.parse::<u16>().ok().filter(|port| *port != 0).ok_or(WRONG)?;
        Ok(Self { at: SocketAddr::new(address, port), to: destination(rest).map_err(|_| WRONG)? })
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the server:{}", self.at, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_port_is_written_as_for_ssh() {
        let parse =
            |text: &str| text.parse::<Remote>().map(|remote| (remote.at.to_string(), remote.to.to_string()));
        for (text, at, to) in [
            ("8080:127.0.0.1:80", "127.0.0.1:8080", "127.0.0.1:80"),
            ("0.0.0.0:8080:web.example:80", "0.0.0.0:8080", "web.example:80"),
            ("[::]:8080:[2001:db8::1]:80", "[::]:8080", "[2001:db8::1]:80"),
        ] {
            assert_eq!(parse(text), Ok((at.to_owned(), to.to_owned())));
        }
        for wrong in [
            "",
            "8080",
            "8080:80",
            "0:web:80",
            "8080:web",
            "8080:/run/x",
            "x:8080:web:80",
            "8080:web:0",
            "/x:web:80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
