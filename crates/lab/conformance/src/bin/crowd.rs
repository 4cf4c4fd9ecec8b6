//! Many concurrent sealed connections over UDP, and the TCP service behind their server.
//!
//! * `crowd echo ADDRESS:PORT` sends received data back, until it is killed.
//! * `crowd connect ADDRESS:PORT FINGERPRINT COUNT DEVICE...` does what the lines of its standard input say, and answers each by a line of
//!   JSON with its own memory and descriptors: `open` opens COUNT connections, `talk` exchanges some bytes over each that is open, `close` ends them,
//!   `row` opens COUNT short ones, a few at a time.
//!
//! `scripts/interop` runs both around `plait serve`.

#![allow(clippy::disallowed_methods, reason = "it measures itself")]

use std::error::Error;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plait::{Carriers, Fingerprint, Host, Stream, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const USAGE: &str = "usage: crowd echo ADDRESS:PORT | connect ADDRESS:PORT FINGERPRINT COUNT DEVICE...";
/// Connections that are being opened, or are talking, at a time: fewer than the handshakes that a server allows one network.
const AT_A_TIME: usize = 32;
/// The same where each ends before the next begins.
const IN_A_ROW: usize = 4;
/// Bytes in each direction, each time.
const BYTES: usize = 1000;
/// How long one of the steps of one connection may take.
const TIMEOUT: Duration = Duration::from_secs(60);

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match words[..] {
        ["echo", at] => {
            raise_open_files(16_000)?;
            Ok(runtime.block_on(echo(at.parse()?))?)
        }
        ["connect", server, key, count, ref devices @ ..] if !devices.is_empty() => {
            let count: usize = count.parse()?;
            // A socket for each subflow.
            raise_open_files(count * devices.len() + 1000)?;
            let (server, key) = (server.parse()?, key.parse()?);
            runtime.block_on(async {
                let paths = devices.iter().map(|device| device.parse()).collect::<Result<Vec<_>, _>>()?;
                let builder =
                    paths.into_iter().fold(Host::builder().carriers(Carriers::Udp), plait::HostBuilder::path);
                let crowd = Crowd { host: builder.start()?, server, key, count, open: Vec::new() };
                crowd.obey().await
            })
        }
        _ => Err(USAGE.into()),
    }
}

/// Allows as many open files.
fn raise_open_files(wanted: usize) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = hard.max(wanted as u64);
    setrlimit(Resource::RLIMIT_NOFILE, limit, limit).map_err(|_| {
        format!("the limit of open files is {hard}, and {wanted} are needed (ulimit -Hn)").into()
    })
}

async fn echo(at: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(at).await?;
    eprintln!("listening");
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // The side that breaks off has seen that itself.
            let _ = send_back(stream).await;
        });
    }
}

async fn send_back(mut stream: TcpStream) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return stream.shutdown().await,
            len => stream.write_all(&bytes[..len]).await?,
        }
    }
}

/// The connections.
struct Crowd {
    host: Host,
    server: SocketAddr,
    key: Fingerprint,
    count: usize,
    open: Vec<Stream>,
}

/// The result of one step.
#[derive(Default)]
struct Outcome {
    failed: usize,
    error: Option<String>,
    /// The connections that are open still.
    open: Vec<Stream>,
}

impl Crowd {
    async fn obey(mut self) -> Result<()> {
        eprintln!("ready");
        for line in io::stdin().lock().lines() {
            let mut outcome = match line?.as_str() {
                "open" => {
                    each(self.attempts(), AT_A_TIME, |start| async { start.open().await.map(Some) }).await?
                }
                "talk" => {
                    let numbered = self.open.drain(..).enumerate();
                    each(numbered, AT_A_TIME, |(number, mut stream)| async move {
                        exchange(&mut stream, number).await?;
                        Ok(Some(stream))
                    })
                    .await?
                }
                "close" => {
                    each(self.open.drain(..), AT_A_TIME, |stream| async { end(stream).await.map(|()| None) })
                        .await?
                }
                "row" => {
                    each(self.attempts(), IN_A_ROW, |start| async {
                        end(start.open().await?).await.map(|()| None)
                    })
                    .await?
                }
                other => return Err(format!("cannot {other}").into()),
            };
            self.open.append(&mut outcome.open);
            println!("{}", self.report(&outcome)?);
        }
        Ok(())
    }

    fn attempts(&self) -> impl Iterator<Item = Start> {
        let Self { host, server, key, count, open: _ } = self;
        let (host, server, key) = (host.clone(), *server, *key);
        (0..*count).map(move |number| Start { host: host.clone(), server, key, number })
    }

    fn report(&self, outcome: &Outcome) -> Result<serde_json::Value> {
        let statuses = || self.open.iter().filter_map(Stream::status);
        let usable =
            |status: plait::Status| status.subflows().iter().filter(|subflow| subflow.is_usable()).count();
        Ok(serde_json::json!({
            "open": self.open.len(),
            "sealed": statuses().filter(plait::Status::is_sealed).count(),
            "subflows": statuses().map(usable).sum::<usize>(),
            "failed": outcome.failed,
            "error": outcome.error,
            "resident": resident_bytes()?,
            "descriptors": std::fs::read_dir("/proc/self/fd")?.count(),
        }))
    }
}

/// A connection that is yet to be opened.
struct Start {
    host: Host,
    server: SocketAddr,
    key: Fingerprint,
    number: usize,
}

impl Start {
    /// Opens it, and exchanges the first bytes.
    async fn open(self) -> io::Result<Stream> {
        let Self { host, server, key, number } = self;
        let mut stream = timeout(TIMEOUT, host.connect(server, Trust::pinned(key))).await??;
        exchange(&mut stream, number).await?;
        Ok(stream)
    }
}

/// Does the same with each of `all`, so many at a time.
async fn each<T, F: Future<Output = io::Result<Option<Stream>>> + Send + 'static>(
    all: impl Iterator<Item = T>,
    most: usize,
    what: impl Fn(T) -> F,
) -> Result<Outcome> {
    let (mut running, mut outcome) = (JoinSet::new(), Outcome::default());
    for one in all {
        if running.len() >= most
            && let Some(ended) = running.join_next().await
        {
            outcome.note(ended?);
        }
        running.spawn(what(one));
    }
    while let Some(ended) = running.join_next().await {
        outcome.note(ended?);
    }
    Ok(outcome)
}

impl Outcome {
    fn note(&mut self, ended: io::Result<Option<Stream>>) {
        match ended {
            Ok(stream) => self.open.extend(stream),
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// Sends bytes that no other connection sends, and gets the same.
async fn exchange(stream: &mut Stream, number: usize) -> io::Result<()> {
    let sent = number.to_be_bytes().repeat(BYTES / size_of::<usize>());
    let mut back = vec![0; sent.len()];
    let both = async {
        stream.write_all(&sent).await?;
        stream.read_exact(&mut back).await
    };
    timeout(TIMEOUT, both).await??;
    if back == sent { Ok(()) } else { Err(io::Error::other("other bytes came back")) }
}

/// Ends both directions in order.
async fn end(mut stream: Stream) -> io::Result<()> {
    let ended = async {
        stream.shutdown().await?;
        match stream.read(&mut [0]).await? {
            0 => stream.closed().await,
            _ => Err(io::Error::other("more bytes came back")),
        }
    };
    timeout(TIMEOUT, ended).await?
}

/// Memory in use that is the process's own or touched (`VmRSS`).
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}
